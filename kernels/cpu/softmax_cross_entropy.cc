#include "kernels/softmax_cross_entropy.h"

#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

#include "kernels/cpu/lanes.h"
#include "kernels/cpu/sum.h"

namespace lockstep::kernels {
namespace {

constexpr std::int64_t kRowBlock = 8;  // rows that make one partial sum

// Blocks of rows that outweigh the start of a team, at some ten operations an element.
std::int64_t block_grain(std::int64_t columns) {
  return cpu::kElementGrain / (10 * kRowBlock * std::max<std::int64_t>(columns, 1)) + 1;
}

void check_labels(const std::int32_t* labels, std::int64_t rows, std::int64_t classes) {
  for (std::int64_t row = 0; row < rows; ++row) {
    if (labels[row] < 0 || labels[row] >= classes) {
      throw std::invalid_argument("softmax_cross_entropy: expected labels in [0, " + std::to_string(classes) +
                                  "), got " + std::to_string(labels[row]) + " in row " + std::to_string(row));
    }
  }
}

// exp(x - shift) of count <= kLaneCount elements, zero beyond them.
template <class T>
cpu::Lanes<T> exp_minus(const T* x, std::int64_t count, T shift) {
  cpu::Lanes<T> result = (cpu::load_lanes(x, count) - shift).exp();
  result.tail(cpu::kLaneCount - count) = T(0);
  return result;
}

template <class T>
T largest(const T* x, std::int64_t count) {
  T result = -std::numeric_limits<T>::infinity();
#pragma omp simd reduction(max : result)
  for (std::int64_t i = 0; i < count; ++i) result = std::max(result, x[i]);
  return result;
}

// The loss of one row, and its log-sum-exp. Everything is taken relative to the largest logit, where it is exact.
template <class T>
double row_loss(const T* x, std::int64_t classes, std::int32_t label, double label_smoothing, T& lse) {
  const T top = largest(x, classes);
  cpu::Lanes<T> sums = cpu::Lanes<T>::Zero();
  for (std::int64_t i = 0; i < classes; i += cpu::kLaneCount) {
    sums += exp_minus(x + i, std::min(cpu::kLaneCount, classes - i), top);
  }
  const T log_sum = std::log(sums.sum());
  lse = top + log_sum;
  double expected_logit = (1 - label_smoothing) * static_cast<double>(x[label] - top);
  if (label_smoothing > 0) {
    const T total = cpu::lane_sum<T>(0, classes, [x, top](std::int64_t i) { return x[i] - top; });
    expected_logit += label_smoothing * static_cast<double>(total) / static_cast<double>(classes);
  }
  return static_cast<double>(log_sum) - expected_logit;
}

}  // namespace

void cpu::softmax_cross_entropy_forward(const ExecContext& exec, ConstView logits, ConstView labels,
                                        double label_smoothing, View lse, View loss) {
  const std::int64_t rows = logits.shape[0];
  const std::int64_t classes = logits.shape[1];
  const std::int32_t* label = labels.as<std::int32_t>();
  check_labels(label, rows, classes);
  with_float_type(logits.dtype, [&]<class T>(T) {
    const T* x = logits.as<T>();
    T* row_lse = lse.as<T>();
    const double total =
        blocked_sum(exec, rows, kRowBlock, block_grain(classes), [&](std::int64_t begin, std::int64_t end) {
          double sum = 0;
          for (std::int64_t row = begin; row < end; ++row) {
            sum += row_loss(x + row * classes, classes, label[row], label_smoothing, row_lse[row]);
          }
          return sum;
        });
    *loss.as<T>() = rows == 0 ? T(0) : static_cast<T>(total / static_cast<double>(rows));
  });
}

void cpu::softmax_cross_entropy_backward(const ExecContext& exec, ConstView dy, ConstView logits, ConstView labels,
                                         ConstView lse, double label_smoothing, View gradient) {
  const std::int64_t rows = logits.shape[0];
  const std::int64_t classes = logits.shape[1];
  if (logits.numel() == 0) return;
  const std::int32_t* label = labels.as<std::int32_t>();
  with_float_type(logits.dtype, [&]<class T>(T) {
    const T* x = logits.as<T>();
    T* dx = gradient.as<T>();
    const T* row_lse = lse.as<T>();
    const T factor = *dy.as<T>() / static_cast<T>(rows);
    const T everywhere = static_cast<T>(label_smoothing / static_cast<double>(classes));
    const T at_label = static_cast<T>(1 - label_smoothing);
    parallel_for(exec, rows, kRowBlock * block_grain(classes), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const T* row_x = x + row * classes;
        T* row_dx = dx + row * classes;
        for (std::int64_t i = 0; i < classes; i += kLaneCount) {
          const std::int64_t count = std::min(kLaneCount, classes - i);
          store_lanes<false, T>(row_dx + i, count, (exp_minus(row_x + i, count, row_lse[row]) - everywhere) * factor);
        }
        row_dx[label[row]] -= at_label * factor;
      }
    });
  });
}

void cpu::count_correct(const ExecContext& exec, ConstView logits, ConstView labels, View count) {
  const std::int64_t rows = logits.shape[0];
  const std::int64_t classes = logits.shape[1];
  const std::int32_t* label = labels.as<std::int32_t>();
  with_float_type(logits.dtype, [&]<class T>(T) {
    const T* x = logits.as<T>();
    const double correct =
        blocked_sum(exec, rows, kRowBlock, block_grain(classes), [&](std::int64_t begin, std::int64_t end) {
          std::int32_t sum = 0;
          for (std::int64_t row = begin; row < end; ++row) {
            const T* row_x = x + row * classes;
            if (std::max_element(row_x, row_x + classes) - row_x == label[row]) ++sum;
          }
          return sum;
        });
    *count.as<std::int32_t>() = static_cast<std::int32_t>(correct);
  });
}

}  // namespace lockstep::kernels
