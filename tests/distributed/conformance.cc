#include "tests/distributed/conformance.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <stdexcept>

#include "framework/core/context.h"
#include "framework/distributed/ring_all_reduce.h"

namespace lockstep {
namespace {

View part_of(const Tensor& whole, int part, std::size_t count) {
  const auto rows = static_cast<std::int64_t>(count);
  return whole.slice(part * rows, (part + 1) * rows);
}

}  // namespace

void complete(const Work& work) {
  work.wait();
  context().synchronize();
  work.wait();
}

void check_large_all_reduce(ProcessGroup& group) {
  const Tensor tensor = tensor_of(values_of<float>(group.rank(), 1'300'001));
  complete(group.all_reduce(tensor));
  expect_reduced(tensor.to_host<float>(), ReduceOp::sum, group.size(), 1'300'001);
}

void check_all_reduce_out_of_place(ProcessGroup& group) {
  for (const std::size_t count : kSizes) {
    const std::vector<float> mine = values_of<float>(group.rank(), count);
    const Tensor in = tensor_of(mine);
    const Tensor out = tensor_of(std::vector<float>(count, std::numeric_limits<float>::quiet_NaN()));
    complete(group.all_reduce(in, out));
    expect_reduced(out.to_host<float>(), ReduceOp::sum, group.size(), count);
    EXPECT_EQ(bits_of(in.to_host<float>()), bits_of(mine)) << "the input was changed";
  }
}

void check_broadcast(ProcessGroup& group) {
  for (int root = 0; root < group.size(); ++root) {
    for (const std::size_t count : kSizes) {
      const Tensor tensor = tensor_of(values_of<float>(group.rank(), count, 1));
      complete(group.broadcast(tensor, root));
      EXPECT_EQ(bits_of(tensor.to_host<float>()), bits_of(values_of<float>(root, count, 1)));
    }
  }
}

void check_all_gather(ProcessGroup& group) {
  for (const std::size_t count : kSizes) {
    const std::vector<std::int32_t> mine = values_of<std::int32_t>(group.rank(), count, 2);
    std::vector<std::int32_t> expected;
    for (int rank = 0; rank < group.size(); ++rank) {
      for (const std::int32_t value : values_of<std::int32_t>(rank, count, 2)) expected.push_back(value);
    }
    const Tensor all = tensor_of(std::vector<std::int32_t>(expected.size(), -1));
    complete(group.all_gather(tensor_of(mine), all));
    EXPECT_EQ(all.to_host<std::int32_t>(), expected);
    // In place: this rank's part of the result is its input.
    std::vector<std::int32_t> values(expected.size(), -1);
    std::copy(mine.begin(), mine.end(), values.begin() + group.rank() * static_cast<std::ptrdiff_t>(count));
    const Tensor in_place = tensor_of(values);
    complete(group.all_gather(part_of(in_place, group.rank(), count), in_place));
    EXPECT_EQ(in_place.to_host<std::int32_t>(), expected);
  }
}

void check_reduce_scatter(ProcessGroup& group) {
  for (const std::size_t count : kSizes) {
    const std::size_t whole = count * static_cast<std::size_t>(group.size());
    const std::vector<float> before = values_of<float>(group.rank(), whole);
    const Tensor in = tensor_of(before);
    const Tensor out = tensor_of(std::vector<float>(count, std::numeric_limits<float>::quiet_NaN()));
    complete(group.reduce_scatter(in, out));
    expect_reduced(out.to_host<float>(), ReduceOp::sum, group.size(), whole,
                   count * static_cast<std::size_t>(group.rank()));
    EXPECT_EQ(bits_of(in.to_host<float>()), bits_of(before)) << "the input was changed";
  }
}

void check_many_outstanding(ProcessGroup& group) {
  constexpr int kCount = 30;  // size^30 is exact in f64
  std::vector<Tensor> tensors;
  for (int i = 0; i < kCount; ++i) {
    tensors.push_back(tensor_of(values_of<float>(group.rank(), 37 * static_cast<std::size_t>(i) + 1)));
  }
  const Tensor again = tensor_of(std::vector<double>{1.0});
  std::vector<Work> works;
  for (const Tensor& tensor : tensors) {
    works.push_back(group.all_reduce(tensor));
    // The same memory again and again: right only if each starts when the one before has ended.
    works.push_back(group.all_reduce(again));
    if (works.size() % 20 == 0) works.push_back(group.barrier());
  }
  for (auto work = works.rbegin(); work != works.rend(); ++work) work->wait();
  context().synchronize();
  std::optional<Work::Clock::time_point> before;
  for (const Work& work : works) {
    EXPECT_TRUE(work.done());
    const auto at = work.finished_at();
    if (before && at) {
      EXPECT_LE(*before, *at);
    }
    before = at;
  }
  for (const Tensor& tensor : tensors) {
    const std::vector<float> got = tensor.to_host<float>();
    expect_reduced(got, ReduceOp::sum, group.size(), got.size());
  }
  EXPECT_EQ(again.to_host<double>()[0], std::pow(group.size(), kCount));
}

void check_ring_all_reduce(ProcessGroup& group) {
  for (const std::size_t count : kSizes) {
    const Tensor tensor = tensor_of(values_of<float>(group.rank(), count));
    ring_all_reduce(group, tensor);
    expect_reduced(tensor.to_host<float>(), ReduceOp::sum, group.size(), count);
    expect_equal_bits_on_all_ranks(group, tensor.to_host<float>());
  }
}

void check_send_order(ProcessGroup& group) {
  // 0 -> 1 -> 2 ..., twice as many messages as one could mix up.
  for (std::uint64_t i = 0; i < 6; ++i) {
    const std::size_t count = 1 + 997 * i;
    const std::vector<double> values = values_of<double>(0, count, 10 + i);
    if (group.rank() > 0) {
      const Tensor received = Tensor::empty({static_cast<std::int64_t>(count)}, DType::f64);
      complete(group.recv(received, group.rank() - 1));
      EXPECT_EQ(received.to_host<double>(), values);
    }
    if (group.rank() + 1 < group.size()) complete(group.send(tensor_of(values), group.rank() + 1));
  }
}

void check_exchange(ProcessGroup& group) {
  const std::size_t count = 1 << 20;
  const int other = 1 - group.rank();
  const Tensor mine = tensor_of(values_of<float>(group.rank(), count, 3));
  const Tensor theirs = Tensor::empty(mine.shape(), DType::f32);
  complete(group.send_recv(mine, other, theirs, other));
  EXPECT_EQ(bits_of(theirs.to_host<float>()), bits_of(values_of<float>(other, count, 3)));
}

void check_wrong_arguments(ProcessGroup& group) {
  const Tensor two = Tensor::zeros({2}, DType::f32);
  const Tensor three = Tensor::zeros({3}, DType::f32);
  const Tensor other = Tensor::zeros({4}, DType::f64);
  EXPECT_THROW(group.broadcast(two, 2), std::invalid_argument);
  EXPECT_THROW(group.broadcast(two, -1), std::invalid_argument);
  EXPECT_THROW(group.all_reduce(two, three), std::invalid_argument);
  EXPECT_THROW(group.all_reduce(other, Tensor::zeros({4}, DType::f32)), std::invalid_argument);
  EXPECT_THROW(group.all_gather(two, three), std::invalid_argument);
  EXPECT_THROW(group.all_gather(two, other), std::invalid_argument);
  EXPECT_THROW(group.reduce_scatter(three, two), std::invalid_argument);
  EXPECT_THROW(group.send(two, group.rank()), std::invalid_argument);
  EXPECT_THROW(group.recv(two, 7), std::invalid_argument);
  complete(group.all_reduce(two));  // and the group still works
}

}  // namespace lockstep
