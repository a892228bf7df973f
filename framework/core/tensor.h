// A contiguous block of elements with a shape. Copying a Tensor copies the handle, not the elements.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "kernels/exec_context.h"
#include "kernels/tensor_view.h"

namespace lockstep {

struct Variable;  // what the tape knows of a tensor: framework/autograd/variable.h

class Tensor {
 public:
  Tensor() = default;  // undefined: no memory

  // On the current context's device; elements are not initialised.
  static Tensor empty(const Shape& shape, DType dtype);
  static Tensor zeros(const Shape& shape, DType dtype);
  // Copies host memory; the number of values must fit the shape.
  template <class T>
  static Tensor from_host(std::span<const T> values, const Shape& shape) {
    return from_host(ConstView(values.data(), dtype_of<T>(), Shape{static_cast<std::int64_t>(values.size())}), shape);
  }

  bool defined() const { return storage_ != nullptr; }
  const Shape& shape() const { return shape_; }
  std::int64_t dim(int i) const { return shape_[i]; }
  std::int64_t numel() const { return shape_.numel(); }
  DType dtype() const { return dtype_; }
  DeviceType device() const { return device_; }

  View view() const { return {data_, dtype_, shape_}; }
  operator View() const { return view(); }       // NOLINT: kernels take views
  operator ConstView() const { return view(); }  // NOLINT

  // The same elements under another shape of as many elements. It is the same buffer, so it has the same gradient: no
  // node on the tape.
  Tensor reshape(const Shape& shape) const;
  // Rows [begin, end) of the leading dimension, sharing memory. Only of tensors that need no gradient.
  Tensor slice(std::int64_t begin, std::int64_t end) const;
  // The same elements, unknown to the tape.
  Tensor detach() const;

  // Waits for the device, then copies to or from the host.
  template <class T>
  std::vector<T> to_host() const {
    std::vector<T> values(static_cast<std::size_t>(numel()));
    copy_to_host({values.data(), dtype_of<T>(), shape_});
    return values;
  }
  // The one element of an f32 or f64 tensor; waits for the device.
  double item() const;
  void copy_to_host(View destination) const;
  void copy_from_host(ConstView source) const;
  void fill_zero() const;

  // True where nothing else holds this memory.
  bool unique() const { return storage_.use_count() == 1; }

  const std::shared_ptr<Variable>& variable() const { return variable_; }
  void set_variable(std::shared_ptr<Variable> variable) { variable_ = std::move(variable); }

 private:
  static Tensor from_host(ConstView values, const Shape& shape);

  std::shared_ptr<void> storage_;  // returns to the caching allocator with its last holder
  void* data_ = nullptr;
  Shape shape_;
  DType dtype_ = DType::f32;
  DeviceType device_ = DeviceType::cpu;
  std::shared_ptr<Variable> variable_;
};

}  // namespace lockstep
