// Each step of k broadcasts one element of `a` per row and multiplies it by the vectors of one row of `b`. A multiply-add
// takes four cycles and two can start in each, so that it takes a dozen accumulators or more to keep the machine busy;
// with 24 it runs at its peak as long as `b` comes from the nearest caches.
#include "kernels/cpu/tile.h"

#include <array>

namespace lockstep::kernels::cpu {
namespace {

// Registers are left for one row of `b` and a broadcast: 24 accumulators of 32 registers, 12 of 16.
constexpr int tile_rows(int vectors) { return std::min(6 * kTileVectors / vectors, 12); }

template <class V>
void put(Element<V>* c, V v, bool accumulate) {
  store(c, accumulate ? load<V>(c) + v : v);
}

template <class V>
void put_first(Element<V>* c, V v, std::int64_t count, bool accumulate) {
  if (!accumulate) return store_first(c, v, count);
  for (std::int64_t lane = 0; lane < count; ++lane) c[lane] += v[lane];
}

template <class V, int kRows, int kVectors>
void tile(const Product<Element<V>>& p) {
  using T = Element<V>;
  constexpr int lanes = kLanes<V>;
  V sum[kRows][kVectors];
#pragma GCC unroll 16
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) sum[m][v] = p.initial == nullptr ? V{} : load<V>(p.initial + v * lanes);
  }

  const T* a_segment = p.a;
  const T* b_segment = p.b;
  for (std::int64_t s = 0; s < p.segments; ++s, a_segment += p.a_segment, b_segment += p.b_segment) {
    const T* a = a_segment;
    const T* b = b_segment;
    for (std::int64_t k = 0; k < p.count; ++k, a += p.a_step, b += p.b_step) {
      V row[kVectors];
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) row[v] = load<V>(b + v * lanes);
#pragma GCC unroll 16
      for (int m = 0; m < kRows; ++m) {
        const T scale = a[m * p.a_row];
#pragma GCC unroll 16
        for (int v = 0; v < kVectors; ++v) sum[m][v] += scale * row[v];
      }
    }
  }

  constexpr std::int64_t whole = (kVectors - 1) * lanes;
  const std::int64_t rest = p.columns - whole;  // columns in the last vector
  V last[kRows];
#pragma GCC unroll 16
  for (int m = 0; m < kRows; ++m) {
    T* const out = p.c + m * p.c_row;
#pragma GCC unroll 16
    for (int v = 0; v < kVectors - 1; ++v) put(out + v * lanes, sum[m][v], p.accumulate);
    if (rest == lanes) {
      put(out + whole, sum[m][kVectors - 1], p.accumulate);
    } else {
      last[m] = sum[m][kVectors - 1];
    }
  }
  if (rest == lanes) return;
#pragma GCC unroll 1
  for (int m = 0; m < kRows; ++m) put_first(p.c + m * p.c_row + whole, last[m], rest, p.accumulate);
}

template <class V>
using TileFunction = void (*)(const Product<Element<V>>&);

// tiles<V, n>[rows - 1] computes a tile of `rows` rows and n vectors.
template <class V, int kVectors>
constexpr auto tiles = []<int... kRow>(std::integer_sequence<int, kRow...>) {
  return std::array<TileFunction<V>, sizeof...(kRow)>{tile<V, kRow + 1, kVectors>...};
}(std::make_integer_sequence<int, tile_rows(kVectors)>{});

// Splits the rows into tiles of nearly equal height.
template <class V, int kVectors>
void multiply_rows(const Product<Element<V>>& product, std::int64_t rows) {
  constexpr std::int64_t max_rows = tile_rows(kVectors);
  const std::int64_t count = (rows + max_rows - 1) / max_rows;
  Product<Element<V>> part = product;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t first = rows * i / count;
    const std::int64_t height = rows * (i + 1) / count - first;
    part.a = product.a + first * product.a_row;
    part.c = product.c + first * product.c_row;
    tiles<V, kVectors>[static_cast<std::size_t>(height - 1)](part);
  }
}

}  // namespace

template <class V>
void multiply(const Product<Element<V>>& product, std::int64_t rows) {
  switch ((product.columns + kLanes<V> - 1) / kLanes<V>) {
    case 1:
      return multiply_rows<V, 1>(product, rows);
    case 2:
      return multiply_rows<V, 2>(product, rows);
    case 3:
      return multiply_rows<V, std::min(3, kTileVectors)>(product, rows);
    case 4:
      return multiply_rows<V, kTileVectors>(product, rows);
  }
}

template void multiply<Vector<float>>(const Product<float>&, std::int64_t);
template void multiply<HalfVector<float>>(const Product<float>&, std::int64_t);
template void multiply<Vector<double>>(const Product<double>&, std::int64_t);

}  // namespace lockstep::kernels::cpu
