#include "framework/core/tensor.h"

#include "framework/core/allocator.h"
#include "framework/core/context.h"
#include "framework/core/device_copy.h"
#include "framework/core/error.h"

namespace lockstep {

Tensor Tensor::empty(const Shape& shape, DType dtype) {
  Tensor tensor;
  tensor.shape_ = shape;
  tensor.dtype_ = dtype;
  tensor.device_ = context().device();
  tensor.storage_ = allocate_shared(tensor.device_, static_cast<std::size_t>(shape.numel() * dtype_bytes(dtype)));
  tensor.data_ = tensor.storage_.get();
  return tensor;
}

Tensor Tensor::zeros(const Shape& shape, DType dtype) {
  Tensor tensor = empty(shape, dtype);
  tensor.fill_zero();
  return tensor;
}

Tensor Tensor::from_host(ConstView values, const Shape& shape) {
  Tensor tensor = empty(shape, values.dtype);
  expect(values.numel() == shape.numel(), "from_host: expected {} values for shape {}, got {}", shape.numel(), shape,
         values.numel());
  tensor.copy_from_host(values);
  return tensor;
}

Tensor Tensor::reshape(const Shape& shape) const {
  expect(shape.numel() == numel(), "reshape: expected a shape of {} elements for {}, got {}", numel(), shape_, shape);
  Tensor tensor = *this;
  tensor.shape_ = shape;
  return tensor;
}

Tensor Tensor::slice(std::int64_t begin, std::int64_t end) const {
  expect(variable_ == nullptr, "slice: expected a tensor that needs no gradient; detach() it first");
  expect(shape_.rank() >= 1 && 0 <= begin && begin <= end && end <= dim(0),
         "slice: expected rows within {}, got [{}, {})", shape_, begin, end);
  std::vector<std::int64_t> extents(shape_.span().begin(), shape_.span().end());
  extents[0] = end - begin;
  const std::int64_t row_bytes = dim(0) == 0 ? 0 : view().bytes() / dim(0);
  Tensor tensor = *this;
  tensor.shape_ = Shape(extents);
  tensor.data_ = static_cast<std::byte*>(data_) + begin * row_bytes;
  return tensor;
}

Tensor Tensor::detach() const {
  Tensor tensor = *this;
  tensor.variable_ = nullptr;
  return tensor;
}

double Tensor::item() const {
  expect(numel() == 1, "item: expected one element, got shape {}", shape_);
  return dtype_ == DType::f64 ? to_host<double>()[0] : to_host<float>()[0];
}

void Tensor::copy_to_host(View destination) const {
  expect(destination.dtype == dtype_ && destination.numel() == numel(), "copy_to_host: expected {} {}, got {} {}",
         numel(), dtype_name(dtype_), destination.numel(), dtype_name(destination.dtype));
  copy_with_host(device_, destination.data, data_, static_cast<std::size_t>(destination.bytes()));
}

void Tensor::copy_from_host(ConstView source) const {
  expect(source.dtype == dtype_ && source.numel() == numel(), "copy_from_host: expected {} {}, got {} {}", numel(),
         dtype_name(dtype_), source.numel(), dtype_name(source.dtype));
  copy_with_host(device_, data_, source.data, static_cast<std::size_t>(source.bytes()));
}

void Tensor::fill_zero() const { fill_zero_on_device(device_, data_, static_cast<std::size_t>(view().bytes())); }

}  // namespace lockstep
