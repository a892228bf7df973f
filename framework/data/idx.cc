#include "framework/data/idx.h"

#include <fmt/core.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <span>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "framework/core/error.h"

namespace lockstep {
namespace {

// Deflate cannot pack more than this many bytes into one (a run of length 258 takes two bits).
constexpr std::int64_t kMaxCompression = 1032;

// Whether the last member of a gzip file is whole. gzread does not say: it takes data whose checksum was cut off
// together with the end of the file for complete, and never compares it.
bool ends_with_checksum(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  std::vector<unsigned char> in(256 << 10);
  std::vector<unsigned char> out(256 << 10);
  z_stream inflater{};
  constexpr int kGzip = 16;
  if (inflateInit2(&inflater, MAX_WBITS + kGzip) != Z_OK) throw Error("zlib: out of memory");
  int state = Z_OK;
  while (stream.read(reinterpret_cast<char*>(in.data()), static_cast<std::streamsize>(in.size())),
         stream.gcount() > 0) {
    inflater.next_in = in.data();
    inflater.avail_in = static_cast<unsigned>(stream.gcount());
    while (inflater.avail_in > 0 && (state == Z_OK || state == Z_STREAM_END)) {
      if (state == Z_STREAM_END) inflateReset(&inflater);  // another member follows
      inflater.next_out = out.data();
      inflater.avail_out = static_cast<unsigned>(out.size());
      state = inflate(&inflater, Z_NO_FLUSH);
    }
  }
  inflateEnd(&inflater);
  return state == Z_STREAM_END;
}

// Reads a plain or gzip file from its beginning to its end; zlib tells them apart.
class IdxReader {
 public:
  explicit IdxReader(const std::filesystem::path& file) : name_(file.string()), file_(nullptr, &gzclose) {
    std::error_code error;  // asked first: opening a pipe would wait for its writer
    file_bytes_ = static_cast<std::int64_t>(std::filesystem::file_size(file, error));
    if (error) fail("a regular file", error.message(), 0);
    file_.reset(gzopen(name_.c_str(), "rb"));
    if (!file_) fail("a readable file", std::generic_category().message(errno), 0);
    gzbuffer(file_.get(), 256 << 10);
  }

  std::int64_t offset() const { return offset_; }

  // Fills `out`; `what` names it in the error.
  void read(std::span<std::uint8_t> out, const std::string& what) {
    for (std::size_t done = 0; done < out.size();) {
      constexpr std::size_t kChunkBytes = 1 << 30;  // gzread counts in int
      const auto chunk = static_cast<unsigned>(std::min(out.size() - done, kChunkBytes));
      const int got = gzread(file_.get(), out.data() + done, chunk);
      if (got <= 0) fail(what, stream_state(), offset_);
      done += static_cast<std::size_t>(got);
      offset_ += got;
    }
  }

  std::uint32_t read_u32(const std::string& what) {
    std::array<std::uint8_t, 4> bytes{};
    read(bytes, what);
    return std::uint32_t{bytes[0]} << 24 | std::uint32_t{bytes[1]} << 16 | std::uint32_t{bytes[2]} << 8 | bytes[3];
  }

  // More than this cannot follow, whatever the header says: asked before memory for it is allocated.
  std::int64_t most_bytes_left() const {
    return gzdirect(file_.get()) != 0 ? file_bytes_ - offset_ : file_bytes_ * kMaxCompression;
  }

  // Reads past the last byte, which also makes zlib check the checksum.
  void expect_end() {
    std::uint8_t byte = 0;
    const int got = gzread(file_.get(), &byte, 1);
    int code = Z_OK;
    gzerror(file_.get(), &code);
    if (got != 0 || code != Z_OK) fail("the end of the file", got > 0 ? "more data" : stream_state(), offset_);
    if (gzdirect(file_.get()) == 0 && !ends_with_checksum(name_)) {
      fail("a checksum behind the last byte", "a truncated gzip stream", offset_);
    }
  }

  [[noreturn]] void fail(const std::string& expected, const std::string& found, std::int64_t offset) const {
    const bool compressed = file_ && gzdirect(file_.get()) == 0;
    throw std::invalid_argument(fmt::format("{}: expected {}, found {}, at offset {}{}", name_, expected, found, offset,
                                            compressed ? " of the decompressed data" : ""));
  }

 private:
  // Why a read gave nothing.
  std::string stream_state() const {
    int code = Z_OK;
    gzerror(file_.get(), &code);
    switch (code) {
      case Z_OK:
        return "the end of the file";
      case Z_BUF_ERROR:
        return "a truncated gzip stream";
      case Z_ERRNO:
        return std::generic_category().message(errno);
      default:
        return "a corrupt gzip stream";
    }
  }

  std::string name_;
  std::unique_ptr<gzFile_s, int (*)(gzFile)> file_;
  std::int64_t file_bytes_ = 0;
  std::int64_t offset_ = 0;
};

[[noreturn]] void fail_at(const std::filesystem::path& file, const std::string& expected, const std::string& found,
                          std::int64_t offset) {
  throw std::invalid_argument(
      fmt::format("{}: expected {}, found {}, at offset {}", file.string(), expected, found, offset));
}

// Where extent `dimension` stands, and where the elements begin.
constexpr std::int64_t extent_offset(int dimension) { return 4 + 4 * dimension; }
constexpr std::int64_t data_offset(int rank) { return extent_offset(rank); }

class IdxDataset : public DatasetOf<std::uint8_t> {
 public:
  IdxDataset(DatasetInfo info, IdxArray images, IdxArray labels)
      : DatasetOf(std::move(info)), images_(std::move(images)), labels_(std::move(labels)) {}

  void read(std::int64_t index, std::span<std::uint8_t> pixels, std::int32_t& label) const override {
    std::memcpy(pixels.data(), images_.data.get() + index * sample_bytes(), pixels.size());
    label = labels_.data[static_cast<std::size_t>(index)];
  }

 private:
  IdxArray images_;
  IdxArray labels_;
};

std::filesystem::path find_fashion_mnist(const std::filesystem::path& directory, const std::string& file) {
  std::filesystem::path plain = directory / file;
  std::filesystem::path compressed = directory / (file + ".gz");
  std::error_code ignored;
  if (std::filesystem::exists(plain, ignored)) return plain;
  if (std::filesystem::exists(compressed, ignored)) return compressed;
  throw std::invalid_argument(
      fmt::format("{}: expected a file of Fashion-MNIST, found none (nor without .gz); install the package "
                  "dataset-fashion-mnist or name the directory by --data",
                  compressed.string()));
}

}  // namespace

IdxArray read_idx(const std::filesystem::path& file, int rank) {
  IdxReader reader(file);
  constexpr std::uint32_t kUnsignedByte = 0x0800;
  const std::uint32_t expected_magic = kUnsignedByte | static_cast<std::uint32_t>(rank);
  const std::string magic_text = fmt::format("the magic number {:#010x}", expected_magic);
  const std::uint32_t magic = reader.read_u32(magic_text);
  if (magic != expected_magic) reader.fail(magic_text, fmt::format("{:#010x}", magic), 0);

  std::array<std::int64_t, Shape::kMaxRank> extents{};
  for (int i = 0; i < rank; ++i) {
    const std::uint32_t extent = reader.read_u32(fmt::format("the extent of dimension {}", i));
    if (extent == 0) reader.fail(fmt::format("an extent of at least 1 in dimension {}", i), "0", extent_offset(i));
    extents[static_cast<std::size_t>(i)] = extent;
  }
  const Shape shape{std::span<const std::int64_t>(extents).first(static_cast<std::size_t>(rank))};

  std::int64_t bytes = 1;
  const std::int64_t most = reader.most_bytes_left();
  for (const std::int64_t extent : shape.span()) {
    if (extent > most / bytes) {
      reader.fail(fmt::format("the data of an array {}", shape.to_string()), fmt::format("at most {} bytes", most),
                  data_offset(rank));
    }
    bytes *= extent;
  }
  const auto size = static_cast<std::size_t>(bytes);
  IdxArray array{shape, std::make_unique_for_overwrite<std::uint8_t[]>(size)};
  reader.read({array.data.get(), size}, fmt::format("{} bytes for an array {}", bytes, shape.to_string()));
  reader.expect_end();
  return array;
}

std::unique_ptr<DatasetOf<std::uint8_t>> read_idx_dataset(const std::filesystem::path& images,
                                                          const std::filesystem::path& labels,
                                                          const DatasetInfo& expected) {
  // The labels are small: what they show to be wrong is said before the images are read.
  IdxArray label_array = read_idx(labels, 1);
  const std::int64_t size = label_array.shape[0];
  for (std::int64_t i = 0; i < size; ++i) {
    const int label = label_array.data[static_cast<std::size_t>(i)];
    if (label >= expected.num_classes) {
      fail_at(labels, fmt::format("labels below {}", expected.num_classes), fmt::format("{}", label),
              data_offset(1) + i);
    }
  }

  IdxArray image_array = read_idx(images, 3);
  if (image_array.shape[0] != size) {
    fail_at(images, fmt::format("{} images, one for each label of {}", size, labels.filename().string()),
            fmt::format("{}", image_array.shape[0]), extent_offset(0));
  }
  const Shape sample_shape{image_array.shape[1], image_array.shape[2], 1};
  if (expected.sample_shape.rank() != 0 && sample_shape != expected.sample_shape) {
    fail_at(images, fmt::format("images {}", expected.sample_shape.to_string()), sample_shape.to_string(),
            extent_offset(1));
  }
  DatasetInfo info = expected;
  info.size = size;
  info.sample_shape = sample_shape;
  return std::make_unique<IdxDataset>(std::move(info), std::move(image_array), std::move(label_array));
}

std::unique_ptr<DatasetOf<std::uint8_t>> fashion_mnist(const std::filesystem::path& directory, Split split) {
  const std::string prefix = split == Split::train ? "train" : "t10k";
  const std::filesystem::path images = find_fashion_mnist(directory, prefix + "-images-idx3-ubyte");
  const std::filesystem::path labels = find_fashion_mnist(directory, prefix + "-labels-idx1-ubyte");
  // Mean and standard deviation over the pixels of the training set.
  return read_idx_dataset(images, labels,
                          {.name = fmt::format("fashion-mnist ({})", split_name(split)),
                           .sample_shape = {28, 28, 1},
                           .num_classes = 10,
                           .mean = {0.2860F},
                           .stddev = {0.3530F}});
}

}  // namespace lockstep
