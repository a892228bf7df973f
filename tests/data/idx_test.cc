#include "framework/data/idx.h"

#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/data/testing.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using testing::rejection;
using testing::test_seed;
using Bytes = std::vector<std::uint8_t>;

// An IDX file's content, written from the format's definition.
Bytes idx_bytes(std::uint32_t magic, const std::vector<std::uint32_t>& extents, const Bytes& elements) {
  Bytes bytes;
  const auto put = [&bytes](std::uint32_t word) {
    for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(static_cast<std::uint8_t>(word >> shift));
  };
  put(magic);
  for (const std::uint32_t extent : extents) put(extent);
  bytes.insert(bytes.end(), elements.begin(), elements.end());
  return bytes;
}

class Idx : public ::testing::Test {
 protected:
  Idx() { fs::create_directories(directory_); }
  ~Idx() override { fs::remove_all(directory_); }

  fs::path path(const std::string& name) const { return directory_ / name; }

  fs::path write(const std::string& name, const Bytes& bytes) const {
    std::ofstream file(path(name), std::ios::binary);
    file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    return path(name);
  }

  fs::path write_gzip(const std::string& name, const Bytes& bytes) const {
    const gzFile file = gzopen(path(name).c_str(), "wb");
    EXPECT_EQ(gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size())), static_cast<int>(bytes.size()));
    EXPECT_EQ(gzclose(file), Z_OK);
    return path(name);
  }

  static Bytes content(const fs::path& file) {
    std::ifstream stream(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  }

  // Three images of 2 x 3 pixels with labels 0, 1, 2.
  static Bytes images() { return idx_bytes(0x803, {3, 2, 3}, pixels()); }
  static Bytes labels() { return idx_bytes(0x801, {3}, {0, 1, 2}); }
  static Bytes pixels() {
    Bytes bytes;
    for (std::uint8_t i = 0; i < 18; ++i) bytes.push_back(static_cast<std::uint8_t>(i * 13));
    return bytes;
  }
  static DatasetInfo three_classes() { return {.name = "made", .num_classes = 3}; }

  // "FILE: expected E, found F, at offset O" in one line, with E, F and O as given.
  static void expect_rejected(const fs::path& images, const fs::path& labels, const fs::path& culprit,
                              const std::string& expected, const std::string& found, const std::string& offset) {
    const std::string text = rejection([&] { read_idx_dataset(images, labels, three_classes()); });
    EXPECT_EQ(text, culprit.string() + ": expected " + expected + ", found " + found + ", at offset " + offset);
  }

 private:
  fs::path directory_ = fs::temp_directory_path() / ("lockstep_idx_test." + std::to_string(getpid()) + "." +
                                                     ::testing::UnitTest::GetInstance()->current_test_info()->name());
};

TEST_F(Idx, ReadsPlainAndGzipAlike) {
  for (const bool compressed : {false, true}) {
    const auto put = [&](const std::string& name, const Bytes& bytes) {
      return compressed ? write_gzip(name, bytes) : write(name, bytes);
    };
    const auto dataset = read_idx_dataset(put("images", images()), put("labels", labels()), three_classes());
    EXPECT_EQ(dataset->size(), 3);
    EXPECT_EQ(dataset->sample_shape(), (Shape{2, 3, 1}));
    EXPECT_EQ(dataset->num_classes(), 3);
    EXPECT_EQ(dataset->sample_dtype(), DType::u8);
    Bytes sample(6);
    for (std::int64_t i = 0; i < 3; ++i) {
      std::int32_t label = -1;
      dataset->read(i, sample, label);
      EXPECT_EQ(label, i);
      const Bytes all = pixels();
      EXPECT_EQ(sample, Bytes(all.begin() + 6 * i, all.begin() + 6 * (i + 1)));
    }
  }
}

TEST_F(Idx, NamesWrongMagic) {
  const fs::path good = write("labels", labels());
  const fs::path swapped = write("images", labels());
  expect_rejected(swapped, good, swapped, "the magic number 0x00000803", "0x00000801", "0");
  const fs::path floats = write_gzip("images.gz", idx_bytes(0xd03, {3, 2, 3}, pixels()));
  expect_rejected(floats, good, floats, "the magic number 0x00000803", "0x00000d03", "0 of the decompressed data");
  const fs::path text = write("text", {'h', 'e', 'l', 'l', 'o'});
  expect_rejected(text, good, text, "the magic number 0x00000803", "0x68656c6c", "0");
}

TEST_F(Idx, NamesWhatIsNoFile) {
  const fs::path good = write("labels", labels());
  expect_rejected(path("absent"), good, path("absent"), "a regular file", "No such file or directory", "0");
  fs::create_directory(path("folder"));
  expect_rejected(path("folder"), good, path("folder"), "a regular file", "Is a directory", "0");
  const fs::path empty = write("empty", {});
  expect_rejected(empty, good, empty, "the magic number 0x00000803", "the end of the file", "0");
}

TEST_F(Idx, NamesMismatches) {
  const fs::path good_images = write("images", images());
  const fs::path good_labels = write("labels", labels());

  const fs::path two = write("two", idx_bytes(0x801, {2}, {0, 1}));
  expect_rejected(good_images, two, good_images, "2 images, one for each label of two", "3", "4");

  const fs::path beyond = write("beyond", idx_bytes(0x801, {3}, {0, 3, 2}));
  expect_rejected(good_images, beyond, beyond, "labels below 3", "3", "9");

  const fs::path none = write("none", idx_bytes(0x801, {0}, {}));
  expect_rejected(good_images, none, none, "an extent of at least 1 in dimension 0", "0", "4");

  const fs::path longer = write("longer", idx_bytes(0x801, {3}, {0, 1, 2, 0}));
  expect_rejected(good_images, longer, longer, "the end of the file", "more data", "11");

  DatasetInfo square = three_classes();
  square.sample_shape = {3, 3, 1};
  EXPECT_EQ(rejection([&] { read_idx_dataset(good_images, good_labels, square); }),
            good_images.string() + ": expected images (3, 3, 1), found (2, 3, 1), at offset 8");
}

// A header may claim anything: the file's size is asked before memory is.
TEST_F(Idx, DoesNotAllocateWhatAHeaderClaims) {
  const fs::path good = write("labels", labels());
  const fs::path plain = write("huge", idx_bytes(0x803, {0xffffffff, 0xffffffff, 0xffffffff}, pixels()));
  expect_rejected(plain, good, plain, "the data of an array (4294967295, 4294967295, 4294967295)", "at most 18 bytes",
                  "16");
  const fs::path compressed = write_gzip("huge.gz", idx_bytes(0x803, {60000, 1000, 1000}, pixels()));
  const std::string text = rejection([&] { read_idx(compressed, 3); });
  EXPECT_NE(text.find("expected the data of an array (60000, 1000, 1000), found at most"), std::string::npos) << text;
}

void expect_one_line(const std::string& text, const fs::path& file) {
  std::size_t at = 0;
  for (const std::string& part :
       {file.string() + ": expected ", std::string(", found "), std::string(", at offset ")}) {
    at = text.find(part, at);
    ASSERT_NE(at, std::string::npos) << text;
    at += part.size();
  }
  EXPECT_EQ(text.find('\n'), std::string::npos) << text;
}

TEST_F(Idx, RejectsEveryTruncation) {
  const Bytes plain = images();
  const Bytes compressed = content(write_gzip("whole.gz", plain));
  for (std::size_t length = 0; length < plain.size(); ++length) {
    const fs::path file = write("cut", Bytes(plain.begin(), plain.begin() + static_cast<std::ptrdiff_t>(length)));
    expect_one_line(rejection([&] { read_idx(file, 3); }), file);
  }
  for (std::size_t length = 0; length < compressed.size(); ++length) {
    const fs::path file =
        write("cut.gz", Bytes(compressed.begin(), compressed.begin() + static_cast<std::ptrdiff_t>(length)));
    expect_one_line(rejection([&] { read_idx(file, 3); }), file);
  }
  const fs::path file = write("cut.gz", Bytes(compressed.begin(), compressed.end() - 9));
  EXPECT_NE(rejection([&] { read_idx(file, 3); }).find("found a truncated gzip stream"), std::string::npos);
}

// Behind gzip's header of ten bytes everything is checked but a few bits of padding, which change nothing.
TEST_F(Idx, NeverGivesDataFromACorruptGzipStream) {
  std::mt19937_64 random(test_seed());
  Bytes noise(300);
  for (std::uint8_t& byte : noise) byte = static_cast<std::uint8_t>(random());
  const Bytes compressed = content(write_gzip("whole.gz", idx_bytes(0x803, {3, 10, 10}, noise)));
  int accepted = 0;
  for (std::size_t at = 10; at < compressed.size(); ++at) {
    Bytes damaged = compressed;
    damaged[at] ^= static_cast<std::uint8_t>(1U << (random() % 8));
    const fs::path file = write("damaged.gz", damaged);
    try {
      const IdxArray array = read_idx(file, 3);
      EXPECT_EQ(Bytes(array.data.get(), array.data.get() + array.shape.numel()), noise);
      ++accepted;
    } catch (const std::invalid_argument& error) {
      expect_one_line(error.what(), file);
    }
  }
  EXPECT_LE(accepted, 2);
}

TEST_F(Idx, SaysHowFarACorruptFileCouldBeRead) {
  std::mt19937_64 random(test_seed());
  Bytes noise(1 << 20);
  for (std::uint8_t& byte : noise) byte = static_cast<std::uint8_t>(random());
  Bytes damaged = content(write_gzip("large.gz", idx_bytes(0x803, {1, 1 << 10, 1 << 10}, noise)));
  damaged[damaged.size() - 8] ^= 1;  // of the checksum
  const fs::path file = write("damaged.gz", damaged);
  const std::string text = rejection([&] { read_idx(file, 3); });
  EXPECT_NE(text.find("found a corrupt gzip stream, at offset "), std::string::npos) << text;
  EXPECT_EQ(text.find("at offset 0 "), std::string::npos) << text;
}

TEST_F(Idx, MissingFashionMnistNamesPackageAndOption) {
  const std::string text = rejection([&] { fashion_mnist(path(""), Split::test); });
  EXPECT_EQ(text, path("t10k-images-idx3-ubyte.gz").string() +
                      ": expected a file of Fashion-MNIST, found none (nor without .gz); install the package "
                      "dataset-fashion-mnist or name the directory by --data");
}

TEST_F(Idx, FashionMnistTakesPlainFilesAndChecksTheirSize) {
  Bytes pixels(2 * 28 * 28, 7);
  write("train-images-idx3-ubyte", idx_bytes(0x803, {2, 28, 28}, pixels));
  write_gzip("train-labels-idx1-ubyte.gz", idx_bytes(0x801, {2}, {9, 4}));
  EXPECT_EQ(fashion_mnist(path(""), Split::train)->size(), 2);

  pixels.resize(2 * 27 * 28);
  const fs::path small = write("train-images-idx3-ubyte", idx_bytes(0x803, {2, 27, 28}, pixels));
  EXPECT_EQ(rejection([&] { fashion_mnist(path(""), Split::train); }),
            small.string() + ": expected images (28, 28, 1), found (27, 28, 1), at offset 8");
  write("train-images-idx3-ubyte", idx_bytes(0x803, {2, 28, 28}, Bytes(2 * 28 * 28)));
  const fs::path mislabelled = write_gzip("train-labels-idx1-ubyte.gz", idx_bytes(0x801, {2}, {9, 10}));
  EXPECT_EQ(rejection([&] { fashion_mnist(path(""), Split::train); }),
            mislabelled.string() + ": expected labels below 10, found 10, at offset 9");
}

// What is published of the data set: sizes, balance, first labels, mean and standard deviation.
TEST(FashionMnist, IsWhatItSays) {
  if (!fs::exists(kFashionMnistPath)) GTEST_SKIP() << "the package dataset-fashion-mnist is not installed";
  for (const Split split : {Split::train, Split::test}) {
    const auto dataset = fashion_mnist(kFashionMnistPath, split);
    const std::int64_t size = split == Split::train ? 60000 : 10000;
    ASSERT_EQ(dataset->size(), size);
    ASSERT_EQ(dataset->sample_shape(), (Shape{28, 28, 1}));
    std::array<std::int64_t, 10> counts{};
    std::vector<std::int32_t> first_labels;
    std::vector<std::uint8_t> pixels(784);
    std::uint64_t sum = 0;
    std::uint64_t squares = 0;
    for (std::int64_t i = 0; i < size; ++i) {
      std::int32_t label = -1;
      dataset->read(i, pixels, label);
      ++counts.at(static_cast<std::size_t>(label));
      if (i < 10) first_labels.push_back(label);
      for (const std::uint64_t pixel : pixels) {
        sum += pixel;
        squares += pixel * pixel;
      }
    }
    for (const std::int64_t count : counts) EXPECT_EQ(count, size / 10);
    if (split == Split::test) {
      EXPECT_EQ(first_labels, (std::vector<std::int32_t>{9, 2, 1, 1, 6, 1, 4, 6, 5, 7}));
      continue;
    }
    EXPECT_EQ(first_labels, (std::vector<std::int32_t>{9, 0, 0, 3, 0, 2, 7, 2, 5, 5}));
    const double count = static_cast<double>(size) * 784;
    const double mean = static_cast<double>(sum) / count;
    const double stddev = std::sqrt(static_cast<double>(squares) / count - mean * mean);
    EXPECT_NEAR(dataset->info().mean.at(0), mean / 255, 1e-4);
    EXPECT_NEAR(dataset->info().stddev.at(0), stddev / 255, 1e-4);
  }
}

}  // namespace
}  // namespace lockstep
