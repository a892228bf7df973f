#include "framework/data/synthetic.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "framework/core/error.h"
#include "framework/data/counter_random.h"

namespace lockstep {
namespace {

constexpr std::int64_t kMostElements = std::int64_t{1} << 31;  // of a sample
constexpr std::int64_t kFields = 4;                            // along each side of an image
constexpr std::uint64_t kPatternStream = 0;
constexpr std::uint64_t kTrainStream = 1;
constexpr std::uint64_t kTestStream = 2;

// Brightness of a field and noise are each below this: a pixel is their sum, and eight of them are one sum of words.
constexpr std::uint64_t kHalf = 128;
constexpr std::uint64_t kNoiseMask = 0x7f7f7f7f7f7f7f7f;

// Byte i of the word, counted from its low end, at address i.
constexpr std::uint64_t little_endian(std::uint64_t word) {
  return std::endian::native == std::endian::little ? word : __builtin_bswap64(word);
}

class SyntheticDataset : public DatasetOf<std::uint8_t> {
 public:
  explicit SyntheticDataset(const SyntheticOptions& options)
      : DatasetOf({.name = fmt::format("{} ({})", kSyntheticName, split_name(options.split)),
                   .size = options.size,
                   .sample_shape = options.sample_shape,
                   .num_classes = options.num_classes,
                   .mean = std::vector<float>(static_cast<std::size_t>(options.sample_shape[2]), 0.5F),
                   .stddev = std::vector<float>(static_cast<std::size_t>(options.sample_shape[2]), 0.2F)}),
        noise_key_(stream_key(options.seed, options.split == Split::train ? kTrainStream : kTestStream)),
        row_pixels_(options.sample_shape[1] * options.sample_shape[2]) {
    const std::uint64_t key = stream_key(options.seed, kPatternStream);
    const std::int64_t width = options.sample_shape[1];
    const std::int64_t channels = options.sample_shape[2];
    for (std::int64_t field_row = 0; field_row < num_classes() * kFields; ++field_row) {
      for (std::int64_t x = 0; x < width; ++x) {
        for (std::int64_t c = 0; c < channels; ++c) {
          const std::int64_t field = (field_row * kFields + x * kFields / width) * channels + c;
          patterns_.push_back(static_cast<std::uint8_t>(random_bits(key, static_cast<std::uint64_t>(field)) % kHalf));
        }
      }
    }
  }

  void read(std::int64_t index, std::span<std::uint8_t> pixels, std::int32_t& label) const override {
    label = static_cast<std::int32_t>(index % num_classes());
    const std::uint64_t key = stream_key(noise_key_, static_cast<std::uint64_t>(index));
    const std::int64_t height = sample_shape()[0];
    const auto row_pixels = static_cast<std::size_t>(row_pixels_);
    std::uint64_t counter = 0;
    for (std::int64_t y = 0; y < height; ++y) {
      const std::uint8_t* pattern = patterns_.data() + (label * kFields + y * kFields / height) * row_pixels_;
      std::uint8_t* row = pixels.data() + y * row_pixels_;
      const auto add_noise = [&](std::size_t x, std::size_t count) {
        std::uint64_t word = 0;
        std::memcpy(&word, pattern + x, count);
        word += little_endian(random_bits(key, counter++) >> 1 & kNoiseMask);
        std::memcpy(row + x, &word, count);
      };
      const std::size_t whole = row_pixels / 8 * 8;
      for (std::size_t x = 0; x < whole; x += 8) add_noise(x, 8);
      if (whole < row_pixels) add_noise(whole, row_pixels - whole);
    }
  }

 private:
  std::uint64_t noise_key_;
  std::int64_t row_pixels_;             // W x C
  std::vector<std::uint8_t> patterns_;  // (num_classes, kFields, W, C): fields are stretched along W only
};

}  // namespace

std::unique_ptr<DatasetOf<std::uint8_t>> synthetic_dataset(const SyntheticOptions& options) {
  const Shape& shape = options.sample_shape;
  expect(shape.rank() == 3 && std::ranges::all_of(shape.span(), [](auto extent) { return extent >= 1; }),
         "synthetic: expected a sample shape (H, W, C), got {}", shape);
  expect(shape[0] <= kMostElements / shape[1] / shape[2], "synthetic: expected samples of at most {} elements, got {}",
         kMostElements, shape);
  return std::make_unique<SyntheticDataset>(options);
}

}  // namespace lockstep
