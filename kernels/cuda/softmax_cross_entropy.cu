#include "kernels/softmax_cross_entropy.h"

#include "kernels/cuda/reduce.cuh"

namespace lockstep::kernels {
namespace {

using std::int64_t;

constexpr unsigned kRowThreads = 512;     // of a block: many rows, so that a small batch is the work of one block
constexpr int64_t kShortRow = 32;         // up to this many elements a row is the work of
constexpr int kShortLanes = 8;            // so many lanes
constexpr int64_t kLongRow = 4096;        // from this many elements on it is the work of a block
constexpr int64_t kRowsOfOneBlock = 128;  // up to this many rows a second kernel would cost more than it saves

template <class T>
struct Logits {
  const T* data;
  int64_t rows;
  int64_t classes;
  bool vectors;  // every row starts at a multiple of 16 bytes

  explicit Logits(const ConstView& view)
      : data(view.as<T>()),
        rows(view.shape[0]),
        classes(view.shape[1]),
        vectors(classes % cuda::kVector<T> == 0 && cuda::aligned(data)) {}

  // Calls body(position, value) for the elements of a row that fall to the calling thread, in rising order.
  template <class Group, class Body>
  __device__ void for_each(int64_t row, Body body) const {
    constexpr int N = cuda::kVector<T>;
    const T* const x = data + row * classes;
    if (!vectors) {
      for (int64_t i = Group::lane(); i < classes; i += Group::size()) body(i, cuda::to_float(x[i]));
      return;
    }
#pragma unroll 2
    for (int64_t i = int64_t{N} * Group::lane(); i < classes; i += int64_t{N} * Group::size()) {
      const auto values = cuda::load<N>(x + i);
#pragma unroll
      for (int k = 0; k < N; ++k) body(i + k, values[k]);
    }
  }
};

// The loss of one row, and its log-sum-exp. Everything is taken relative to the largest logit, where it is exact. The
// result is the same in every thread of the group.
template <class Group, class T>
__device__ float row_loss(const Logits<T>& logits, int64_t row, int label, float label_smoothing, float& lse) {
  float top = -INFINITY;
  logits.template for_each<Group>(row, [&](int64_t, float x) { top = fmaxf(top, x); });
  top = Group::largest(top);
  float sum = 0;
  float all = 0;
  logits.template for_each<Group>(row, [&](int64_t, float x) {
    sum += expf(x - top);
    all += x - top;
  });
  const float log_sum = logf(Group::sum(sum));
  lse = top + log_sum;
  if (label < 0 || label >= logits.classes) return NAN;
  float expected = (1 - label_smoothing) * (cuda::to_float(logits.data[row * logits.classes + label]) - top);
  if (label_smoothing > 0) expected += label_smoothing * Group::sum(all) / static_cast<float>(logits.classes);
  return log_sum - expected;
}

template <int kLanes, class T>
__global__ void __launch_bounds__(kRowThreads, 1)
    forward_kernel(Logits<T> logits, const std::int32_t* labels, float label_smoothing, float* lse, cuda::GridSum total,
                   cuda::WriteFloat write) {
  using Group = cuda::RowGroup<kLanes>;
  cuda::begin_kernel();
  double sum = 0;  // of the rows of this group, in its first lane
  for (int64_t row = Group::first_row(); row < logits.rows; row += Group::row_step()) {
    float row_lse;
    const float loss = row_loss<Group>(logits, row, labels[row], label_smoothing, row_lse);
    if (Group::lane() == 0) {
      lse[row] = row_lse;
      sum += loss;
    }
  }
  sum = cuda::block_reduce(sum, 0.0, cuda::Plus{});
  if (threadIdx.x == 0) total.put(sum, write);
}

// What the loss of a row changes by with each of its logits, times the number of rows.
struct RowGradient {
  float everywhere, at_label;

  RowGradient(double label_smoothing, int64_t classes)
      : everywhere(static_cast<float>(label_smoothing / static_cast<double>(classes))),
        at_label(static_cast<float>(1 - label_smoothing)) {}
  __device__ float operator()(float x, float lse, bool is_label) const {
    return expf(x - lse) - everywhere - (is_label ? at_label : 0);
  }
};

template <class T>
__global__ void backward_kernel(cuda::Scalar dy, Logits<T> logits, const std::int32_t* labels, const float* lse,
                                RowGradient of, T* gradient) {
  constexpr int N = cuda::kVector<T>;
  const int64_t classes = logits.classes;
  const int64_t count = logits.rows * classes;
  cuda::begin_kernel();
  const float factor = dy.read() / static_cast<float>(logits.rows);
  if (!logits.vectors) {
    for (int64_t i = cuda::thread_in_grid(); i < count; i += cuda::threads_in_grid()) {
      const int64_t row = cuda::quotient(i, classes);
      const float value = of(cuda::to_float(logits.data[i]), lse[row], i - row * classes == labels[row]);
      gradient[i] = cuda::from_float<T>(value * factor);
    }
    return;
  }
  for (int64_t i = N * cuda::thread_in_grid(); i < count; i += N * cuda::threads_in_grid()) {
    const int64_t row = cuda::quotient(i, classes);
    const int64_t at = labels[row] - (i - row * classes);  // of the label, from i
    const float row_lse = lse[row];
    auto values = cuda::load<N>(logits.data + i);
#pragma unroll
    for (int k = 0; k < N; ++k) values[k] = of(values[k], row_lse, k == at) * factor;
    cuda::store(gradient + i, values);
  }
}

// Of short rows, whose log-sum-exp is quickly had again: all but the factor is computed while the kernel before, which
// may be forward, still runs.
template <class T>
__global__ void short_backward_kernel(cuda::Scalar dy, Logits<T> logits, const std::int32_t* labels, RowGradient of,
                                      T* gradient) {
  using Group = cuda::RowGroup<kShortLanes>;
  constexpr int kEach = kShortRow / kShortLanes;
  const int64_t row = Group::first_row();
  const int64_t begin = row * logits.classes;
  const int count = row < logits.rows ? static_cast<int>(logits.classes) : 0;
  float values[kEach];
  float top = -INFINITY;
#pragma unroll
  for (int k = 0; k < kEach; ++k) {
    const int i = Group::lane() + k * kShortLanes;
    values[k] = i < count ? cuda::to_float(logits.data[begin + i]) : -INFINITY;
    top = fmaxf(top, values[k]);
  }
  top = Group::largest(top);
  float sum = 0;
#pragma unroll
  for (int k = 0; k < kEach; ++k) sum += expf(values[k] - top);
  const float lse = top + logf(Group::sum(sum));
  const int label = count > 0 ? labels[row] : 0;
  cuda::begin_kernel();
  const float factor = dy.read() / static_cast<float>(logits.rows);
#pragma unroll
  for (int k = 0; k < kEach; ++k) {
    const int i = Group::lane() + k * kShortLanes;
    if (i < count) gradient[begin + i] = cuda::from_float<T>(of(values[k], lse, i == label) * factor);
  }
}

template <int kLanes, class T>
__global__ void __launch_bounds__(kRowThreads, 1)
    count_kernel(Logits<T> logits, const std::int32_t* labels, cuda::GridSum total, cuda::WriteInteger write) {
  using Group = cuda::RowGroup<kLanes>;
  cuda::begin_kernel();
  double correct = 0;
  for (int64_t row = Group::first_row(); row < logits.rows; row += Group::row_step()) {
    float top = -INFINITY;
    logits.template for_each<Group>(row, [&](int64_t, float x) { top = fmaxf(top, x); });
    top = Group::largest(top);
    // The label is right if it is at the largest logit and no earlier one equals it.
    const int64_t label = labels[row];
    float right = 0;
    float earlier = 0;
    logits.template for_each<Group>(row, [&](int64_t i, float x) {
      if (x == top && i == label) right = 1;
      if (x == top && i < label) earlier = 1;
    });
    right = Group::sum(right);
    earlier = Group::sum(earlier);
    if (Group::lane() == 0 && right > 0 && earlier == 0) correct += 1;
  }
  correct = cuda::block_reduce(correct, 0.0, cuda::Plus{});
  if (threadIdx.x == 0) total.put(correct, write);
}

// Calls body(std::integral_constant<lanes of a row>, blocks).
template <class Body>
void with_row_grid(int64_t rows, int64_t classes, Body body) {
  if (classes >= kLongRow) {
    return body(std::integral_constant<int, cuda::kWholeBlock>{}, cuda::blocks_for(rows, 1));
  }
  const auto with_lanes = [&](auto lanes) {
    body(lanes, rows <= kRowsOfOneBlock ? 1U : cuda::blocks_for(rows, kRowThreads / lanes.value));
  };
  classes <= kShortRow ? with_lanes(std::integral_constant<int, kShortLanes>{})
                       : with_lanes(std::integral_constant<int, cuda::kWarp>{});
}

}  // namespace

void cuda::softmax_cross_entropy_forward(const ExecContext& exec, ConstView logits, ConstView labels,
                                         double label_smoothing, View lse, View loss) {
  const int64_t rows = logits.shape[0];
  with_float_type(logits.dtype, [&]<class T>(T) {
    with_row_grid(rows, logits.shape[1], [&](auto lanes, unsigned blocks) {
      const GridSum total = grid_sum(exec, blocks, rows == 0 ? 0.0 : 1.0 / static_cast<double>(rows));
      const WriteFloat write{Scalar(loss)};
      Launch(exec, blocks, kRowThreads)(forward_kernel<lanes.value, T>, Logits<T>(logits), labels.as<std::int32_t>(),
                                        static_cast<float>(label_smoothing), lse.as<float>(), total, write);
      finish(exec, total, blocks, write);
    });
  });
}

void cuda::softmax_cross_entropy_backward(const ExecContext& exec, ConstView dy, ConstView logits, ConstView labels,
                                          ConstView lse, double label_smoothing, View gradient) {
  if (logits.numel() == 0) return;
  with_float_type(logits.dtype, [&]<class T>(T) {
    Logits<T> of(logits);
    of.vectors = of.vectors && aligned(gradient.as<T>());
    const RowGradient row_gradient(label_smoothing, of.classes);
    const auto* const label = labels.as<std::int32_t>();
    if (of.classes <= kShortRow) {
      constexpr int64_t kRows = kThreads / kShortLanes;
      Launch(exec, static_cast<unsigned>((of.rows + kRows - 1) / kRows))(short_backward_kernel<T>, Scalar(dy), of,
                                                                         label, row_gradient, gradient.as<T>());
    } else {
      const int64_t per_thread = of.vectors ? kVector<T> : 1;
      Launch(exec, blocks_for(logits.numel(), per_thread * kThreads))(backward_kernel<T>, Scalar(dy), of, label,
                                                                      lse.as<float>(), row_gradient, gradient.as<T>());
    }
  });
}

void cuda::count_correct(const ExecContext& exec, ConstView logits, ConstView labels, View count) {
  with_float_type(logits.dtype, [&]<class T>(T) {
    with_row_grid(logits.shape[0], logits.shape[1], [&](auto lanes, unsigned blocks) {
      const GridSum total = grid_sum(exec, blocks, 1);
      const WriteInteger write{count.as<std::int32_t>()};
      Launch(exec, blocks, kRowThreads)(count_kernel<lanes.value, T>, Logits<T>(logits), labels.as<std::int32_t>(),
                                        total, write);
      finish(exec, total, blocks, write);
    });
  });
}

}  // namespace lockstep::kernels
