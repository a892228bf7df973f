#include "kernels/layer_norm.h"

#include <cmath>

#include "kernels/cpu/parallel.h"
#include "kernels/cpu/sum.h"

namespace lockstep::kernels {
namespace {

std::int64_t row_grain(std::int64_t columns) {
  return cpu::kElementGrain / (4 * std::max<std::int64_t>(columns, 1)) + 1;
}

template <class T>
void forward_row(const T* x, const T* gamma, const T* beta, T eps, std::int64_t columns, T* y, T& mean, T& rstd) {
  const auto count = static_cast<T>(columns);
  const T m = cpu::lane_sum<T>(0, columns, [=](std::int64_t c) { return x[c]; }) / count;
  const T variance = cpu::lane_sum<T>(0, columns, [=](std::int64_t c) { return (x[c] - m) * (x[c] - m); }) / count;
  const T r = T(1) / std::sqrt(variance + eps);
#pragma omp simd
  for (std::int64_t c = 0; c < columns; ++c) y[c] = (x[c] - m) * r * gamma[c] + beta[c];
  mean = m;
  rstd = r;
}

template <bool kAccumulate, class T>
void backward_row(const T* dy, const T* x, const T* gamma, T mean, T rstd, std::int64_t columns, T* dx) {
  const auto count = static_cast<T>(columns);
  const auto g = [=](std::int64_t c) { return dy[c] * gamma[c]; };
  const auto xhat = [=](std::int64_t c) { return (x[c] - mean) * rstd; };
  const T mean_g = cpu::lane_sum<T>(0, columns, g) / count;
  const T mean_gx = cpu::lane_sum<T>(0, columns, [=](std::int64_t c) { return g(c) * xhat(c); }) / count;
#pragma omp simd
  for (std::int64_t c = 0; c < columns; ++c) {
    cpu::write<kAccumulate>(dx[c], rstd * (g(c) - mean_g - xhat(c) * mean_gx));
  }
}

template <class T>
void write_row(const T* row, GradView target) {
  if (!target) return;
  cpu::with_write_mode(target, [&](auto accumulate) {
    T* out = target.view.as<T>();
    for (std::int64_t c = 0; c < target.view.numel(); ++c) cpu::write<accumulate>(out[c], row[c]);
  });
}

// dgamma and dbeta are sums over rows. Each block of rows gets a pair of partial sums; the size of a block depends on
// the number of rows alone, and blocks are combined in order.
template <class T>
void backward_columns(const ExecContext& exec, const T* dy, const T* x, const T* mean, const T* rstd, std::int64_t rows,
                      std::int64_t columns, GradView dgamma, GradView dbeta) {
  constexpr std::int64_t kMaxBlocks = 128;
  const std::int64_t block = std::max<std::int64_t>(32, (rows + kMaxBlocks - 1) / kMaxBlocks);
  const std::int64_t blocks = std::max<std::int64_t>(1, (rows + block - 1) / block);
  const std::int64_t pair = 2 * columns;
  T* partials = static_cast<T*>(exec.workspace->reserve(static_cast<std::size_t>(blocks * pair) * sizeof(T)));
  cpu::parallel_for(exec, blocks, row_grain(columns) / block + 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t b = begin; b < end; ++b) {
      T* sum_gamma = partials + b * pair;
      T* sum_beta = sum_gamma + columns;
      std::fill_n(sum_gamma, pair, T(0));
      for (std::int64_t row = b * block; row < std::min(rows, (b + 1) * block); ++row) {
        const T* dy_row = dy + row * columns;
        const T* x_row = x + row * columns;
        const T m = mean[row];
        const T r = rstd[row];
#pragma omp simd
        for (std::int64_t c = 0; c < columns; ++c) {
          sum_gamma[c] += dy_row[c] * (x_row[c] - m) * r;
          sum_beta[c] += dy_row[c];
        }
      }
    }
  });
  for (std::int64_t b = 1; b < blocks; ++b) {
    const T* partial = partials + b * pair;
#pragma omp simd
    for (std::int64_t c = 0; c < pair; ++c) partials[c] += partial[c];
  }
  write_row(partials, dgamma);
  write_row(partials + columns, dbeta);
}

}  // namespace

void cpu::layer_norm_forward(const ExecContext& exec, ConstView x, ConstView gamma, ConstView beta, double eps, View y,
                             View mean, View rstd) {
  const std::int64_t columns = x.shape[1];
  with_float_type(x.dtype, [&]<class T>(T) {
    const T* in = x.as<T>();
    T* out = y.as<T>();
    parallel_for(exec, x.shape[0], row_grain(columns), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        forward_row(in + row * columns, gamma.as<T>(), beta.as<T>(), static_cast<T>(eps), columns, out + row * columns,
                    mean.as<T>()[row], rstd.as<T>()[row]);
      }
    });
  });
}

void cpu::layer_norm_backward(const ExecContext& exec, ConstView dy, ConstView x, ConstView gamma, ConstView mean,
                              ConstView rstd, GradView dx, GradView dgamma, GradView dbeta) {
  const std::int64_t rows = x.shape[0];
  const std::int64_t columns = x.shape[1];
  with_float_type(x.dtype, [&]<class T>(T) {
    const T* grad = dy.as<T>();
    const T* in = x.as<T>();
    if (dgamma || dbeta) {
      backward_columns(exec, grad, in, mean.as<T>(), rstd.as<T>(), rows, columns, dgamma, dbeta);
    }
    if (!dx) return;
    T* target = dx.view.as<T>();
    with_write_mode(dx, [&](auto accumulate) {
      parallel_for(exec, rows, row_grain(columns), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
          const std::int64_t offset = row * columns;
          backward_row<accumulate>(grad + offset, in + offset, gamma.as<T>(), mean.as<T>()[row], rstd.as<T>()[row],
                                   columns, target + offset);
        }
      });
    });
  });
}

}  // namespace lockstep::kernels
