// Convolutions by cuDNN's graph API. The only file beside its source that knows of cuDNN is conv2d.cc, through this.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "kernels/tensor_view.h"

namespace lockstep::kernels::cuda {

enum class ConvPass : std::uint8_t { forward, data_gradient, weight_gradient };

// What a pass does to its sums on the way.
enum class ConvEpilogue : std::uint8_t {
  none,
  bias,       // forward: adds the bias; weight gradient: the bias has one too, which cuDNN leaves to others
  bias_relu,  // forward: and takes the larger of that and 0
  rectify,    // data gradient: leaves 0 where x is not positive
};

// One pass of a convolution: all that a plan for it depends on. NHWC; x (images, height, width, channels), weight
// (outputs, kernel_rows, kernel_columns, channels), y (images, out_height, out_width, outputs).
struct ConvProblem {
  ConvPass pass = ConvPass::forward;
  std::int64_t images, height, width, channels, outputs, kernel_rows, kernel_columns, out_height, out_width;
  std::int64_t stride, padding;
  DType dtype;  // of all tensors: f32 or bf16
  ConvEpilogue epilogue;
  int alignment;  // of all addresses, in bytes, at most 16
  bool allow_tf32, deterministic;
  int device;

  auto operator<=>(const ConvProblem&) const = default;
  std::string text() const;  // as it stands in messages and in the record of choices
};

// The plans that cuDNN has for a problem: the best by each of its two heuristics, each in the order in which it expects
// them to be fast. Sums are f32. In f32, plans that use tensor cores or narrow their inputs are left out, unless TF32
// is allowed; where results are to be deterministic, so are plans that are not.
class ConvGraph {
 public:
  explicit ConvGraph(const ConvProblem& problem);
  ~ConvGraph();
  ConvGraph(const ConvGraph&) = delete;
  ConvGraph& operator=(const ConvGraph&) = delete;

  int plans() const;  // 0: cuDNN cannot do this
  std::string name(int plan) const;
  // Of one plan. Builds it, which can take a while, when it is first asked for; throws where that fails.
  std::size_t workspace_bytes(int plan);
  // forward: a = x, b = weight; data gradient: a = dy, b = weight; weight gradient: a = dy, b = x. operand: of the
  // epilogue, the bias or x. The plan has been built.
  void run(int plan, void* stream, const void* a, const void* b, const void* operand, void* out, void* workspace);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::kernels::cuda
