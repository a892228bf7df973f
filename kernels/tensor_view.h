// What a kernel sees of a tensor: an address, an element type and a shape. Always contiguous, row-major.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <stdexcept>
#include <string>

namespace lockstep {

struct bfloat16 {
  std::uint16_t bits;
};

enum class DType : std::uint8_t { f32, bf16, f64, i32, u8 };

template <class T>
constexpr DType dtype_of();
template <>
constexpr DType dtype_of<float>() {
  return DType::f32;
}
template <>
constexpr DType dtype_of<bfloat16>() {
  return DType::bf16;
}
template <>
constexpr DType dtype_of<double>() {
  return DType::f64;
}
template <>
constexpr DType dtype_of<std::int32_t>() {
  return DType::i32;
}
template <>
constexpr DType dtype_of<std::uint8_t>() {
  return DType::u8;
}

constexpr std::int64_t dtype_bytes(DType dtype) {
  switch (dtype) {
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::bf16:
      return 2;
    case DType::f64:
      return 8;
    case DType::u8:
      return 1;
  }
  return 0;
}

// Of means, deviations, log-sum-exps, losses and master parameters beside tensors of type `dtype`: bf16 would be too
// narrow.
constexpr DType statistics_dtype(DType dtype) { return dtype == DType::bf16 ? DType::f32 : dtype; }

constexpr const char* dtype_name(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "f32";
    case DType::bf16:
      return "bf16";
    case DType::f64:
      return "f64";
    case DType::i32:
      return "i32";
    case DType::u8:
      return "u8";
  }
  return "?";
}

// Up to kMaxRank extents, held by value: a shape never allocates. A scalar has rank 0 and one element.
class Shape {
 public:
  static constexpr int kMaxRank = 5;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> extents) : Shape(std::span(extents.begin(), extents.size())) {}
  explicit Shape(std::span<const std::int64_t> extents) {
    if (extents.size() > kMaxRank) {
      throw std::invalid_argument("shape: expected at most 5 dimensions, got " + std::to_string(extents.size()));
    }
    for (const std::int64_t extent : extents) {
      if (extent < 0) {
        throw std::invalid_argument("shape: expected extents of at least 0, got " + std::to_string(extent));
      }
      extents_[static_cast<std::size_t>(rank_++)] = extent;
    }
  }

  int rank() const { return rank_; }
  // Extent i; negative i counts from the end, as in PyTorch.
  std::int64_t operator[](int i) const { return extents_[static_cast<std::size_t>(i < 0 ? i + rank_ : i)]; }
  std::int64_t numel() const {
    std::int64_t product = 1;
    for (const std::int64_t extent : span()) product *= extent;
    return product;
  }
  std::span<const std::int64_t> span() const { return {extents_.data(), static_cast<std::size_t>(rank_)}; }
  bool operator==(const Shape&) const = default;

  std::string to_string() const {
    std::string text = "(";
    for (int i = 0; i < rank_; ++i) text += (i > 0 ? ", " : "") + std::to_string((*this)[i]);
    return text + ")";
  }

 private:
  std::array<std::int64_t, kMaxRank> extents_{};
  int rank_ = 0;
};

namespace detail {
[[noreturn]] inline void wrong_dtype(DType expected, DType got) {
  throw std::logic_error(std::string("view: expected ") + dtype_name(expected) + ", got " + dtype_name(got));
}
}  // namespace detail

// A writable view. as<T>() checks the element type, so that a kernel never reinterprets memory.
struct View {
  void* data = nullptr;
  DType dtype = DType::f32;
  Shape shape;

  std::int64_t numel() const { return shape.numel(); }
  std::int64_t bytes() const { return numel() * dtype_bytes(dtype); }
  template <class T>
  T* as() const {
    if (dtype != dtype_of<T>()) detail::wrong_dtype(dtype_of<T>(), dtype);
    return static_cast<T*>(data);
  }
};

struct ConstView {
  const void* data = nullptr;
  DType dtype = DType::f32;
  Shape shape;

  ConstView() = default;
  ConstView(const void* address, DType type, const Shape& extents) : data(address), dtype(type), shape(extents) {}
  ConstView(const View& view) : data(view.data), dtype(view.dtype), shape(view.shape) {}  // NOLINT: a view may be read

  std::int64_t numel() const { return shape.numel(); }
  std::int64_t bytes() const { return numel() * dtype_bytes(dtype); }
  template <class T>
  const T* as() const {
    if (dtype != dtype_of<T>()) detail::wrong_dtype(dtype_of<T>(), dtype);
    return static_cast<const T*>(data);
  }
};

// Where a backward kernel puts a gradient. The first write of a step overwrites whatever the memory holds (it may be
// NaN), later ones add. A null view means that this gradient is not wanted. On a GPU it is f32 or bf16, whatever the
// type of the activations; on a CPU of their type.
struct GradView {
  View view;
  bool accumulate = false;
  // Not null where the op's input was made by a ReLU, to which elements of the gradient do not matter where the input
  // is not positive. A kernel that is given it leaves 0 there, whatever the target held, or else sets it.
  bool* unrectified = nullptr;

  explicit operator bool() const { return view.data != nullptr; }
};

}  // namespace lockstep
