#include "framework/distributed/process_group.h"

#include <fmt/core.h>

#include <stdexcept>
#include <utility>

#include "framework/core/context.h"
#include "framework/core/error.h"
#include "framework/distributed/environment.h"
#include "framework/distributed/gloo_group.h"
#include "framework/distributed/local_group.h"
#include "framework/distributed/nccl_group.h"

namespace lockstep {
namespace {

using Kind = Collective::Kind;

const char* kind_name(Kind kind) {
  switch (kind) {
    case Kind::all_reduce:
      return "all_reduce";
    case Kind::broadcast:
      return "broadcast";
    case Kind::all_gather:
      return "all_gather";
    case Kind::reduce_scatter:
      return "reduce_scatter";
    case Kind::send_recv:
      return "send_recv";
    case Kind::barrier:
      return "barrier";
  }
  return "?";
}

void expect_parts(const char* name, const ConstView& part, const ConstView& whole, int ranks) {
  expect(part.dtype == whole.dtype, "{}: expected in and out of one dtype, got {} and {}", name, dtype_name(part.dtype),
         dtype_name(whole.dtype));
  expect(whole.numel() == part.numel() * ranks, "{}: expected {} ranks x {} = {} elements on the larger side, got {}",
         name, ranks, part.numel(), part.numel() * ranks, whole.numel());
}

}  // namespace

std::string Collective::to_string() const {
  if (kind == Kind::barrier) return label.empty() ? "barrier" : fmt::format("barrier [{}]", label);
  const ConstView& shown = in.data != nullptr ? in : ConstView(out);
  std::string text = fmt::format("{} {} {}", kind_name(kind), dtype_name(shown.dtype), shown.shape.to_string());
  if (kind == Kind::broadcast) text += fmt::format(" from rank {}", root);
  if (dst >= 0) text += fmt::format(" to rank {}", dst);
  if (src >= 0) text += fmt::format(" from rank {}", src);
  if (!label.empty()) text += fmt::format(" [{}]", label);
  return text;
}

ProcessGroup::ProcessGroup(int rank, int size) : rank_(rank), size_(size) {
  expect(size >= 1 && rank >= 0 && rank < size, "process group: expected 0 <= rank < size, got rank {} of {}", rank,
         size);
}

// Nothing to carry for empty tensors: every rank sees the same size, so all of them stay away together.
Work ProcessGroup::all_reduce(View tensor, ReduceOp op, std::string_view label) {
  return all_reduce(tensor, tensor, op, label);
}

Work ProcessGroup::all_reduce(ConstView in, View out, ReduceOp op, std::string_view label) {
  expect_parts("all_reduce", in, out, 1);
  if (in.numel() == 0) return {};
  return issue({.kind = Kind::all_reduce, .in = in, .out = out, .op = op, .label = label});
}

Work ProcessGroup::broadcast(View tensor, int root, std::string_view label) {
  expect(root >= 0 && root < size_, "broadcast: expected a root from 0 to {}, got {}", size_ - 1, root);
  if (tensor.numel() == 0) return {};
  return issue({.kind = Kind::broadcast, .in = tensor, .out = tensor, .root = root, .label = label});
}

Work ProcessGroup::all_gather(ConstView in, View out, std::string_view label) {
  expect_parts("all_gather", in, out, size_);
  if (in.numel() == 0) return {};
  return issue({.kind = Kind::all_gather, .in = in, .out = out, .label = label});
}

Work ProcessGroup::reduce_scatter(ConstView in, View out, ReduceOp op, std::string_view label) {
  expect_parts("reduce_scatter", out, in, size_);
  if (out.numel() == 0) return {};
  return issue({.kind = Kind::reduce_scatter, .in = in, .out = out, .op = op, .label = label});
}

Work ProcessGroup::send(ConstView tensor, int dst, std::string_view label) {
  return send_recv(tensor, dst, View{}, -1, label);
}

Work ProcessGroup::recv(View tensor, int src, std::string_view label) {
  return send_recv(ConstView{}, -1, tensor, src, label);
}

Work ProcessGroup::send_recv(ConstView out, int dst, View in, int src, std::string_view label) {
  Collective call{.kind = Kind::send_recv, .label = label};
  if (out.data != nullptr) {
    expect(dst >= 0 && dst < size_ && dst != rank_, "send: expected another rank from 0 to {}, got {} on rank {}",
           size_ - 1, dst, rank_);
    if (out.numel() > 0) call.in = out, call.dst = dst;
  }
  if (in.data != nullptr) {
    expect(src >= 0 && src < size_ && src != rank_, "recv: expected another rank from 0 to {}, got {} on rank {}",
           size_ - 1, src, rank_);
    if (in.numel() > 0) call.out = in, call.src = src;
  }
  if (call.dst < 0 && call.src < 0) return {};
  return issue(call);
}

Work ProcessGroup::barrier(std::string_view label) { return issue({.kind = Kind::barrier, .label = label}); }

std::unique_ptr<ProcessGroup> make_process_group(std::string_view backend, const Environment& environment,
                                                 std::shared_ptr<Store> store, const GroupOptions& options) {
  const int size = environment.world_size;
  const bool on_gpu = context().device() == DeviceType::cuda;
  if (backend == "auto") backend = size == 1 ? "local" : on_gpu ? "nccl" : "gloo";
  if (backend == "local") {
    expect(size == 1, "process group: expected 1 rank for the backend local, got {}; use gloo between processes", size);
    return std::move(make_local_groups(1, options).front());
  }
  if (backend == "gloo") {
    expect(!on_gpu, "process group: gloo carries host memory, but the current context is on a GPU; use nccl");
    return make_gloo_group(environment, std::move(store), options);
  }
  if (backend == "nccl") return make_nccl_group(environment, std::move(store), options);
  throw std::invalid_argument(
      fmt::format("process group: expected the backend auto, local, gloo or nccl, got {}", backend));
}

}  // namespace lockstep
