// The one hot loop under linear layers and convolutions: a tile of a matrix product, held in registers.
#pragma once

#include "kernels/cpu/simd.h"

namespace lockstep::kernels::cpu {

// c[m][j] = initial[j] + sum over s, k of a[s * a_segment + m * a_row + k * a_step] * b[s * b_segment + k * b_step + j]
// for s in [0, segments), k in [0, count), or c[m][j] += ... Everything is read and written where it lies.
template <class T>
struct Product {
  const T* a = nullptr;
  std::int64_t a_row = 0;
  std::int64_t a_step = 0;
  std::int64_t a_segment = 0;
  const T* b = nullptr;  // whole vectors are read
  std::int64_t b_step = 0;
  std::int64_t b_segment = 0;
  std::int64_t count = 0;
  std::int64_t segments = 1;
  const T* initial = nullptr;  // null: zeros
  T* c = nullptr;
  std::int64_t c_row = 0;
  std::int64_t columns = 0;  // that are written, at most kTileVectors vectors
  bool accumulate = false;
};

// Vectors of a row of a tile, at most.
inline constexpr int kTileVectors = kVectorBytes == 64 ? 4 : 2;

// Computes `rows` rows of the product, tile by tile. Compiled for Vector<float>, HalfVector<float> and Vector<double>.
template <class V>
void multiply(const Product<Element<V>>& product, std::int64_t rows);

}  // namespace lockstep::kernels::cpu
