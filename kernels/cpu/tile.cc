// Each step of k broadcasts one element of `a` per row and multiplies it by the vectors of one row of `b`. A
// multiply-add takes four cycles and two can start in each, so that it takes a dozen accumulators or more to keep the
// machine busy; with 24 it runs at its peak as long as `b` comes from the nearest caches.
#include "kernels/cpu/tile.h"

#include <array>

namespace lockstep::kernels::cpu {
namespace {

// With kTileVectors that leaves registers for one row of `b` and a broadcast.
constexpr int kTileRows = 6;

template <class V>
void put(Element<V>* c, V v, bool accumulate) {
  store(c, accumulate ? load<V>(c) + v : v);
}

template <class V>
void put_first(Element<V>* c, V v, std::int64_t count, bool accumulate) {
  store_first(c, accumulate ? load_first<V>(c, count) + v : v, count);
}

// The rows of `p` that begin at `a` and `c`.
template <class V, int kRows, int kVectors>
void tile(const Product<Element<V>>& p, const Element<V>* a, Element<V>* c) {
  using T = Element<V>;
  constexpr int lanes = kLanes<V>;
  V sum[kRows][kVectors];
#pragma GCC unroll 16
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) sum[m][v] = p.initial == nullptr ? V{} : load<V>(p.initial + v * lanes);
  }

  const T* b = p.b;
  for (std::int64_t s = 0; s < p.segments; ++s) {
    for (std::int64_t k = 0; k < p.count; ++k) {
      V row[kVectors];
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) row[v] = load<V>(b + v * lanes);
#pragma GCC unroll 16
      for (int m = 0; m < kRows; ++m) {
        const T scale = a[m * p.a_row];
#pragma GCC unroll 16
        for (int v = 0; v < kVectors; ++v) sum[m][v] += scale * row[v];
      }
      a += p.a_step;
      b += p.b_step;
    }
    a += p.a_segment - p.count * p.a_step;
    b += p.b_segment - p.count * p.b_step;
  }

  constexpr std::int64_t whole = (kVectors - 1) * lanes;
  const std::int64_t rest = p.columns - whole;  // columns in the last vector
#pragma GCC unroll 16
  for (int m = 0; m < kRows; ++m, c += p.c_row) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors - 1; ++v) put(c + v * lanes, sum[m][v], p.accumulate);
    if (rest == lanes) {
      put(c + whole, sum[m][kVectors - 1], p.accumulate);
    } else {
      put_first(c + whole, sum[m][kVectors - 1], rest, p.accumulate);
    }
  }
}

template <class V>
using TileFunction = void (*)(const Product<Element<V>>&, const Element<V>*, Element<V>*);

// tiles<V, n>[rows - 1] computes a tile of `rows` rows and n vectors.
template <class V, int kVectors>
constexpr auto tiles = []<int... kRow>(std::integer_sequence<int, kRow...>) {
  return std::array<TileFunction<V>, sizeof...(kRow)>{tile<V, kRow + 1, kVectors>...};
}
(std::make_integer_sequence<int, kTileRows>{});

// Splits the rows into tiles of nearly equal height.
template <class V, int kVectors>
void multiply_rows(const Product<Element<V>>& product, std::int64_t rows) {
  const std::int64_t count = (rows + kTileRows - 1) / kTileRows;
  const std::int64_t low = count == 1 ? rows : rows / std::max<std::int64_t>(count, 1);
  const std::int64_t higher = rows - low * count;  // tiles of one row more
  const Element<V>* a = product.a;
  Element<V>* c = product.c;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t height = low + (i < higher ? 1 : 0);
    tiles<V, kVectors>[static_cast<std::size_t>(height - 1)](product, a, c);
    a += height * product.a_row;
    c += height * product.c_row;
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
template void multiply<Vector<double>>(const Product<double>&, std::int64_t);
#ifdef __AVX__
template void multiply<HalfVector<float>>(const Product<float>&, std::int64_t);
#endif

}  // namespace lockstep::kernels::cpu
