// A classification data set: how many samples there are, what one looks like, and how to read one.
//
// An own data set derives from DatasetOf<std::uint8_t> (images) or DatasetOf<float> (features) and says how to read:
//
//   class Points : public DatasetOf<float> {
//    public:
//     Points() : DatasetOf({.name = "points", .size = 1000, .sample_shape = {2}, .num_classes = 2}) {}
//     void read(std::int64_t index, std::span<float> sample, std::int32_t& label) const override {
//       label = static_cast<std::int32_t>(index % 2);
//       sample[0] = ...
//     }
//   };
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/tensor_view.h"

namespace lockstep {

enum class Split : std::uint8_t { train, test };

constexpr const char* split_name(Split split) { return split == Split::train ? "train" : "test"; }

// What is known of a data set before a sample is read.
struct DatasetInfo {
  std::string name = "data set";  // for messages
  std::int64_t size = 0;          // number of samples
  Shape sample_shape = {};        // (H, W, C) for images, (features) for vectors; the last extent counts the channels
  int num_classes = 0;
  // The normalised sample is (x - mean[c]) / stddev[c] in channel c, where x is the element (f32) or the element / 255
  // (u8). Both empty: samples are used as they are (f32) or divided by 255 (u8).
  std::vector<float> mean = {};
  std::vector<float> stddev = {};
};

class Dataset {
 public:
  virtual ~Dataset() = default;
  Dataset(const Dataset&) = delete;
  Dataset& operator=(const Dataset&) = delete;

  const DatasetInfo& info() const { return info_; }
  std::int64_t size() const { return info_.size; }
  const Shape& sample_shape() const { return info_.sample_shape; }
  DType sample_dtype() const { return sample_dtype_; }
  std::int64_t sample_bytes() const { return sample_shape().numel() * dtype_bytes(sample_dtype_); }
  int num_classes() const { return info_.num_classes; }
  // (count, sample_shape...)
  Shape batch_shape(std::int64_t count) const;

  // Reads sample `index` (0 <= index < size) into sample_bytes() bytes, row-major, and its label. Called by several
  // threads at once.
  virtual void read_bytes(std::int64_t index, std::span<std::byte> sample, std::int32_t& label) const = 0;

 protected:
  // Throws std::invalid_argument where the description contradicts itself.
  Dataset(DatasetInfo info, DType sample_dtype);

 private:
  DatasetInfo info_;
  DType sample_dtype_;
};

// A data set whose samples have elements of type T: std::uint8_t or float.
template <class T>
class DatasetOf : public Dataset {
 public:
  explicit DatasetOf(DatasetInfo info) : Dataset(std::move(info), dtype_of<T>()) {}

  // Writes every element of sample `index` and its label (0 <= label < num_classes). Must be thread-safe; what it
  // throws reaches the caller of Loader::next().
  virtual void read(std::int64_t index, std::span<T> sample, std::int32_t& label) const = 0;

  void read_bytes(std::int64_t index, std::span<std::byte> sample, std::int32_t& label) const final {
    read(index, {reinterpret_cast<T*>(sample.data()), sample.size() / sizeof(T)}, label);
  }
};

}  // namespace lockstep
