// What every process group promises, as checks that run on one rank of a group of any backend: tensors are of the
// current context's device, and nothing is shared with other ranks but the group.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "framework/core/tensor.h"
#include "framework/distributed/process_group.h"
#include "tests/support/seed.h"

namespace lockstep {

// Of host memory.
template <class T>
View view_of(std::vector<T>& values) {
  return {values.data(), dtype_of<T>(), {static_cast<std::int64_t>(values.size())}};
}

template <class T>
Tensor tensor_of(const std::vector<T>& values) {
  return Tensor::from_host(std::span<const T>(values), {static_cast<std::int64_t>(values.size())});
}

// Waits for the work and for the device, on which wait() does not block the host; then asks once more, since a failure
// on the device is known no sooner.
void complete(const Work& work);

// Values of rank `rank` that any other rank can compute too.
template <class T>
std::vector<T> values_of(int rank, std::size_t count, std::uint64_t salt = 0) {
  std::mt19937_64 source(testing::test_seed() * 1000 + salt * 100 + static_cast<std::uint64_t>(rank));
  std::vector<T> values(count);
  for (T& value : values) {
    if constexpr (std::is_same_v<T, bfloat16>) {
      const float real = std::normal_distribution<float>(0, 3)(source);
      value = {static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(real) >> 16)};
    } else if constexpr (std::is_floating_point_v<T>) {
      value = std::normal_distribution<T>(0, 3)(source);
    } else {
      value = static_cast<T>(std::uniform_int_distribution<int>(0, 50)(source));
    }
  }
  return values;
}

inline double real(bfloat16 value) { return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16); }
template <class T>
double real(T value) {
  return static_cast<double>(value);
}

// The largest relative error of one rounding.
template <class T>
constexpr double kUnitRoundoff = 0;
template <>
inline constexpr double kUnitRoundoff<float> = 0x1p-24;
template <>
inline constexpr double kUnitRoundoff<double> = 0x1p-53;
template <>
inline constexpr double kUnitRoundoff<bfloat16> = 0x1p-8;

inline double combine(ReduceOp op, double a, double b) {
  return op == ReduceOp::sum ? a + b : op == ReduceOp::max ? std::max(a, b) : std::min(a, b);
}

// The reduction of all ranks' values in double precision against `got`.
template <class T>
void expect_reduced(const std::vector<T>& got, ReduceOp op, int size, std::size_t count, std::size_t begin = 0) {
  std::vector<std::vector<T>> all;
  for (int rank = 0; rank < size; ++rank) all.push_back(values_of<T>(rank, count));
  for (std::size_t i = 0; i < got.size(); ++i) {
    double expected = real(all[0][begin + i]);
    double magnitude = std::abs(expected);
    for (int rank = 1; rank < size; ++rank) {
      const double value = real(all[static_cast<std::size_t>(rank)][begin + i]);
      expected = combine(op, expected, value);
      magnitude += std::abs(value);
    }
    // Each addition rounds once, by no more than that share of all absolute values together; so do the reference's.
    const double rounding = kUnitRoundoff<T> + kUnitRoundoff<double>;
    const double allowed = op == ReduceOp::sum ? 1.01 * size * rounding * magnitude : 0;
    ASSERT_NEAR(real(got[i]), expected, allowed) << "element " << i << " of " << got.size() << ", " << size << " ranks";
  }
}

template <class T>
std::string bits_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// Sizes around the edges of parts, blocks and the small-message path.
inline const std::vector<std::size_t> kSizes{0, 1, 2, 3, 17, 1000, 4099, 70001};

template <class T>
void expect_equal_bits_on_all_ranks(ProcessGroup& group, const std::vector<T>& values) {
  const Tensor of_rank_0 = tensor_of(values);
  complete(group.broadcast(of_rank_0, 0));
  EXPECT_EQ(bits_of(of_rank_0.to_host<T>()), bits_of(values)) << "ranks differ in bits";
}

template <class T, ReduceOp op = ReduceOp::sum>
void check_all_reduce(ProcessGroup& group) {
  for (const std::size_t count : kSizes) {
    const Tensor tensor = tensor_of(values_of<T>(group.rank(), count));
    complete(group.all_reduce(tensor, op));
    expect_reduced(tensor.to_host<T>(), op, group.size(), count);
    expect_equal_bits_on_all_ranks(group, tensor.to_host<T>());
  }
}

void check_large_all_reduce(ProcessGroup& group);
void check_all_reduce_out_of_place(ProcessGroup& group);
void check_broadcast(ProcessGroup& group);
void check_all_gather(ProcessGroup& group);
void check_reduce_scatter(ProcessGroup& group);
void check_many_outstanding(ProcessGroup& group);
void check_ring_all_reduce(ProcessGroup& group);
void check_send_order(ProcessGroup& group);       // at least 2 ranks
void check_exchange(ProcessGroup& group);         // 2 ranks
void check_wrong_arguments(ProcessGroup& group);  // 2 ranks

}  // namespace lockstep
