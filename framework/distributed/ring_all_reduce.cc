#include "framework/distributed/ring_all_reduce.h"

#include "framework/core/context.h"
#include "framework/core/error.h"
#include "framework/core/tensor.h"
#include "kernels/dispatch.h"
#include "kernels/elementwise.h"

namespace lockstep {

void ring_all_reduce(ProcessGroup& group, View tensor) {
  expect(tensor.dtype == DType::f32, "ring_all_reduce: expected f32, got {}", dtype_name(tensor.dtype));
  const int ranks = group.size();
  const int next = (group.rank() + 1) % ranks;
  const int before = (group.rank() + ranks - 1) % ranks;
  if (ranks == 1) return;

  auto* data = tensor.as<float>();
  // Chunk i, for any i from -N on: what is left of the division goes to the last chunks.
  const auto begin_of = [&](int i) { return tensor.numel() * i / ranks; };
  const auto chunk = [&](int i) {
    const int index = (i + 2 * ranks) % ranks;
    const std::int64_t begin = begin_of(index);
    return View{data + begin, DType::f32, {begin_of(index + 1) - begin}};
  };

  const Tensor arrived = Tensor::empty({(tensor.numel() + ranks - 1) / ranks}, DType::f32);
  for (int step = 0; step < ranks - 1; ++step) {
    const View outgoing = chunk(group.rank() - step);
    const View growing = chunk(group.rank() - step - 1);
    const View received = arrived.slice(0, growing.numel());
    group.send_recv(outgoing, next, received, before).wait();
    LOCKSTEP_DISPATCH(accumulate, context().exec(), received, GradView{growing, true});
  }
  for (int step = 0; step < ranks - 1; ++step) {
    const View whole = chunk(group.rank() - step + 1);
    const View replaced = chunk(group.rank() - step);
    group.send_recv(whole, next, replaced, before).wait();
  }
}

}  // namespace lockstep
