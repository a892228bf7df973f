// A run directory, and tensors to be saved in it.
#pragma once

#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "framework/train/checkpoint.h"
#include "tests/support/seed.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/text.h"
#include "tests/support/thrown_by.h"

namespace lockstep {

namespace fs = std::filesystem;

using testing::text_of;
using testing::thrown_by;

inline void overwrite(const fs::path& file, const std::string& bytes) {
  std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
}

inline std::set<std::string> names_in(const fs::path& directory) {
  std::set<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory)) names.insert(entry.path().filename());
  return names;
}

// The elements as bytes.
inline std::string bytes_of(const Tensor& tensor) {
  std::string bytes(static_cast<std::size_t>(tensor.view().bytes()), '\0');
  tensor.copy_to_host({bytes.data(), tensor.dtype(), tensor.shape()});
  return bytes;
}

class CheckpointTest : public ::testing::Test {
 protected:
  CheckpointTest() : random_(testing::test_seed()), log_(spdlog::default_logger()) {
    spdlog::set_default_logger(
        std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::ostream_sink_st>(warnings_)));
  }
  ~CheckpointTest() override { spdlog::set_default_logger(log_); }

  std::int64_t below(std::int64_t end) { return std::uniform_int_distribution<std::int64_t>(0, end - 1)(random_); }

  Tensor random_tensor(const Shape& shape, DType dtype) {
    Tensor tensor = Tensor::empty(shape, dtype);
    std::string bytes(static_cast<std::size_t>(tensor.view().bytes()), '\0');
    for (char& value : bytes) value = static_cast<char>(random_());
    tensor.copy_from_host({bytes.data(), dtype, shape});
    return tensor;
  }

  // A few tensors of every kind, none larger than a page.
  std::vector<NamedTensor> small_tensors() {
    return {{"conv.weight", random_tensor({6, 5, 5, 1}, DType::f32)},
            {"conv.bias", random_tensor({6}, DType::f32)},
            {"half", random_tensor({3, 7}, DType::bf16)},
            {"none", random_tensor({0, 3}, DType::f32)},
            {"scalar", random_tensor({}, DType::f64)},
            {"count", random_tensor({17}, DType::i32)},
            {"bytes", random_tensor({129}, DType::u8)}};
  }

  static std::vector<NamedTensor> zeros_like(const std::vector<NamedTensor>& tensors) {
    std::vector<NamedTensor> zeros;
    for (const auto& [name, value] : tensors) zeros.push_back({name, Tensor::zeros(value.shape(), value.dtype())});
    return zeros;
  }

  static void expect_equal(const std::vector<NamedTensor>& expected, const std::vector<NamedTensor>& got) {
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(bytes_of(expected[i].value) == bytes_of(got[i].value)) << expected[i].name;
    }
  }

  fs::path checkpoints() const { return run_ / "checkpoints"; }

  std::mt19937_64 random_;
  std::shared_ptr<spdlog::logger> log_;
  std::ostringstream warnings_;
  const TemporaryDirectory directory_;
  const fs::path run_ = directory_.path();
};

}  // namespace lockstep
