#include "kernels/layer_norm.h"

#include <cmath>

#include "kernels/cpu/parallel.h"
#include "kernels/cpu/sum.h"

namespace lockstep::kernels {
namespace {

std::int64_t row_grain(std::int64_t columns) {
  return cpu::kElementGrain / (4 * std::max<std::int64_t>(columns, 1)) + 1;
}

}  // namespace

void cpu::layer_norm_forward(const ExecContext& exec, ConstView x, ConstView gamma, ConstView beta, double eps, View y,
                             View mean, View rstd) {
  const std::int64_t rows = x.shape[0];
  const std::int64_t columns = x.shape[1];
  with_float_type(x.dtype, [&]<class T>(T) {
    const T* g = gamma.as<T>();
    const T* b = beta.as<T>();
    parallel_for(exec, rows, row_grain(columns), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const T* in = x.as<T>() + row * columns;
        T* out = y.as<T>() + row * columns;
        const T m = lane_sum<T>(0, columns, [=](std::int64_t c) { return in[c]; }) / static_cast<T>(columns);
        const T variance = lane_sum<T>(0, columns, [=](std::int64_t c) { return (in[c] - m) * (in[c] - m); }) /
                           static_cast<T>(columns);
        const T r = T(1) / std::sqrt(variance + static_cast<T>(eps));
        mean.as<T>()[row] = m;
        rstd.as<T>()[row] = r;
#pragma omp simd
        for (std::int64_t c = 0; c < columns; ++c) out[c] = (in[c] - m) * r * g[c] + b[c];
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
    const T* g = gamma.as<T>();

    const auto write_dx = [&](std::int64_t row) {
      const T* dy_row = grad + row * columns;
      const T* x_row = in + row * columns;
      T* target = dx.view.as<T>() + row * columns;
      const T m = mean.as<T>()[row];
      const T r = rstd.as<T>()[row];
      const auto xhat = [=](std::int64_t c) { return (x_row[c] - m) * r; };
      const T mean_g =
          lane_sum<T>(0, columns, [=](std::int64_t c) { return dy_row[c] * g[c]; }) / static_cast<T>(columns);
      const T mean_gx =
          lane_sum<T>(0, columns, [=](std::int64_t c) { return dy_row[c] * g[c] * xhat(c); }) / static_cast<T>(columns);
      with_write_mode(dx, [&](auto accumulate) {
#pragma omp simd
        for (std::int64_t c = 0; c < columns; ++c) {
          write<accumulate>(target[c], r * (dy_row[c] * g[c] - mean_g - xhat(c) * mean_gx));
        }
      });
    };

    // dgamma and dbeta are sums over rows: one pair of partial sums for each block of rows, whose size depends on the
    // number of rows alone.
    const bool wants_columns = dgamma || dbeta;
    constexpr std::int64_t kMaxBlocks = 128;
    const std::int64_t block = std::max<std::int64_t>(32, (rows + kMaxBlocks - 1) / kMaxBlocks);
    const std::int64_t blocks = (rows + block - 1) / block;
    T* partials = nullptr;
    if (wants_columns) {
      partials = static_cast<T*>(exec.workspace->reserve(
          static_cast<std::size_t>(std::max<std::int64_t>(blocks, 1) * 2 * columns) * sizeof(T)));
      std::fill_n(partials, std::max<std::int64_t>(blocks, 1) * 2 * columns, T(0));
    }

    parallel_for(exec, blocks, row_grain(columns) / block + 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t b = begin; b < end; ++b) {
        for (std::int64_t row = b * block; row < std::min(rows, (b + 1) * block); ++row) {
          if (dx) write_dx(row);
          if (!wants_columns) continue;
          const T* dy_row = grad + row * columns;
          const T* x_row = in + row * columns;
          T* sum_gamma = partials + b * 2 * columns;
          T* sum_beta = sum_gamma + columns;
          const T m = mean.as<T>()[row];
          const T r = rstd.as<T>()[row];
#pragma omp simd
          for (std::int64_t c = 0; c < columns; ++c) {
            sum_gamma[c] += dy_row[c] * (x_row[c] - m) * r;
            sum_beta[c] += dy_row[c];
          }
        }
      }
    });

    if (!wants_columns) return;
    for (std::int64_t b = 1; b < blocks; ++b) {
      const T* partial = partials + b * 2 * columns;
#pragma omp simd
      for (std::int64_t c = 0; c < 2 * columns; ++c) partials[c] += partial[c];
    }
    const auto write_sums = [&](const GradView& target, const T* sums) {
      if (!target) return;
      with_write_mode(target, [&](auto accumulate) {
        T* out = target.view.as<T>();
        for (std::int64_t c = 0; c < columns; ++c) write<accumulate>(out[c], sums[c]);
      });
    };
    write_sums(dgamma, partials);
    write_sums(dbeta, partials + columns);
  });
}

}  // namespace lockstep::kernels
