#include "kernels/pooling.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>

#include "kernels/cpu/column_sums.h"
#include "kernels/cpu/simd.h"

namespace lockstep::kernels {
namespace {

using cpu::kLanes;
using cpu::load_first;
using cpu::store_first;
using cpu::Vector;
using std::int64_t;

struct Range {
  int64_t begin, end;
};

struct Geometry {
  Geometry(const Shape& x, const Shape& y, const Pool2dParams& p) : Geometry(x, y) { params = p; }
  // Adaptive pooling.
  Geometry(const Shape& x, const Shape& y)
      : images(x[0]), height(x[1]), width(x[2]), channels(x[3]), out_height(y[1]), out_width(y[2]) {}

  // The part of [0, size) that window i of `windows` covers.
  Range window(int64_t i, int64_t size, int64_t windows) const {
    if (!params) return {i * size / windows, ((i + 1) * size + windows - 1) / windows};
    const int64_t begin = i * params->stride - params->padding;
    return {std::max<int64_t>(begin, 0), std::min(begin + params->kernel, size)};
  }
  int64_t image_elements() const { return height * width * channels; }
  // No element of x lies in two windows.
  bool disjoint() const {
    return params ? params->stride >= params->kernel : height % out_height == 0 && width % out_width == 0;
  }
  // Each lies in one.
  bool partition() const {
    return params ? params->stride == params->kernel && params->padding == 0 && out_height * params->kernel == height &&
                        out_width * params->kernel == width
                  : disjoint();
  }

  int64_t images, height, width, channels, out_height, out_width;
  std::optional<Pool2dParams> params;  // none: adaptive
};

// The elements of x that one vector of channels sees through a window.
struct Window {
  // Calls body(offset from the beginning of x, number of the element within the window) in row order.
  template <class Body>
  void for_each(Body&& body) const {
    int64_t element = 0;
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) body(first + i * row_step + j * column_step, element++);
    }
  }

  int64_t first, rows, columns, row_step, column_step;
};

// Calls body(window, offset in y, live lanes) for every window of images [begin, end) and every vector of channels.
template <class V, class Body>
void for_windows(const Geometry& g, int64_t begin, int64_t end, Body&& body) {
  for (int64_t n = begin; n < end; ++n) {
    for (int64_t i = 0; i < g.out_height; ++i) {
      const auto [top, bottom] = g.window(i, g.height, g.out_height);
      for (int64_t j = 0; j < g.out_width; ++j) {
        const auto [left, right] = g.window(j, g.width, g.out_width);
        const int64_t in = ((n * g.height + top) * g.width + left) * g.channels;
        const int64_t out = ((n * g.out_height + i) * g.out_width + j) * g.channels;
        for (int64_t c = 0; c < g.channels; c += kLanes<V>) {
          body(Window{in + c, bottom - top, right - left, g.width * g.channels, g.channels}, out + c,
               std::min<int64_t>(g.channels - c, kLanes<V>));
        }
      }
    }
  }
}

// Calls body<V>(begin, end) in parallel for ranges of images, V being the vector type that fits the channels better.
template <class T, class Body>
void for_images(const ExecContext& exec, const Geometry& g, Body&& body) {
  const int64_t grain = cpu::kElementGrain / std::max<int64_t>(g.image_elements(), 1);
  cpu::parallel_for(exec, g.images, grain, [&](int64_t begin, int64_t end) {
    cpu::with_vector<T>(g.channels, [&]<class V>(V) { body.template operator()<V>(begin, end); });
  });
}

// dx (+)= sums over the windows that an element lies in; prepare(window arguments of for_windows) gives the function of
// the element's number in that window which is summed.
template <class V, class T, class Prepare>
void scatter(const Geometry& g, int64_t begin, int64_t end, const GradView& target, Prepare&& prepare) {
  T* const dx = target.view.as<T>();
  if (!target.accumulate && !g.partition()) {
    std::fill(dx + begin * g.image_elements(), dx + end * g.image_elements(), T{0});
  }
  const bool add = target.accumulate || !g.disjoint();
  for_windows<V>(g, begin, end, [=](const Window& window, int64_t out, int64_t live) {
    const auto value = prepare(window, out, live);
    window.for_each([=](int64_t in, int64_t element) {
      const V v = value(element);
      store_first(dx + in, add ? load_first<V>(dx + in, live) + v : v, live);
    });
  });
}

// What an element of a window counts in its mean.
template <class T>
T weight(const Geometry& g, const Window& window) {
  return T{1} / static_cast<T>(g.params ? g.params->kernel * g.params->kernel : window.rows * window.columns);
}

template <class T>
void mean_forward(const ExecContext& exec, const Geometry& g, const T* x, T* y) {
  for_images<T>(exec, g, [&]<class V>(int64_t begin, int64_t end) {
    for_windows<V>(g, begin, end, [=, &g](const Window& window, int64_t at, int64_t live) {
      V sum{};
      window.for_each([=, &sum](int64_t i, int64_t) { sum += load_first<V>(x + i, live); });
      store_first(y + at, weight<T>(g, window) * sum, live);
    });
  });
}

template <class T>
void mean_backward(const ExecContext& exec, const Geometry& g, const T* dy, const GradView& dx) {
  for_images<T>(exec, g, [&]<class V>(int64_t begin, int64_t end) {
    scatter<V, T>(g, begin, end, dx, [=, &g](const Window& window, int64_t at, int64_t live) {
      return [v = weight<T>(g, window) * load_first<V>(dy + at, live)](int64_t) { return v; };
    });
  });
}

// A NaN counts as the largest, so that it is not lost.
template <class V>
auto larger(V a, V b) {
  return (a > b) | (a != a);
}

template <class V>
using Integers = decltype(V{} > V{});
template <class V>
using Bytes = Vector<std::uint8_t, kLanes<V>>;

// The largest elements of a window, and their numbers within it.
template <class V>
struct Winners {
  V value = V{} - std::numeric_limits<cpu::Element<V>>::infinity();
  Integers<V> place{};

  Winners(const Window& window, const cpu::Element<V>* x, int64_t live) {
    window.for_each([this, x, live](int64_t i, int64_t element) {
      const V v = load_first<V>(x + i, live);
      const auto take = larger(v, value);
      value = take ? v : value;
      place = take ? Integers<V>{} + static_cast<cpu::Element<Integers<V>>>(element) : place;
    });
  }
};

}  // namespace

void cpu::max_pool2d_forward(const ExecContext& exec, ConstView x, const Pool2dParams& params, View y) {
  const Geometry g(x.shape, y.shape, params);
  with_float_type(x.dtype, [&]<class T>(T) {
    for_images<T>(exec, g, [&, in = x.as<T>(), out = y.as<T>()]<class V>(int64_t begin, int64_t end) {
      for_windows<V>(g, begin, end, [=](const Window& window, int64_t at, int64_t live) {
        V largest = V{} - std::numeric_limits<T>::infinity();
        window.for_each([=, &largest](int64_t i, int64_t) {
          const V v = load_first<V>(in + i, live);
          largest = larger(v, largest) ? v : largest;
        });
        store_first(out + at, largest, live);
      });
    });
  });
}

void cpu::max_pool2d_backward(const ExecContext& exec, ConstView dy, ConstView x, const Pool2dParams& params,
                              GradView dx) {
  const Geometry g(x.shape, dy.shape, params);
  with_float_type(x.dtype, [&]<class T>(T) {
    for_images<T>(exec, g, [&, in = x.as<T>(), gradient = dy.as<T>()]<class V>(int64_t begin, int64_t end) {
      scatter<V, T>(g, begin, end, dx, [=](const Window& window, int64_t at, int64_t live) {
        const Winners<V> winners(window, in, live);
        V d = load_first<V>(gradient + at, live);
        if (dx.unrectified != nullptr) d = winners.value <= V{} ? V{} : d;
        return [place = winners.place, d](int64_t element) {
          return place == static_cast<cpu::Element<Integers<V>>>(element) ? d : V{};
        };
      });
    });
  });
}

void cpu::relu_max_pool2d_forward(const ExecContext& exec, ConstView x, ConstView bias, int64_t window, View y,
                                  View winners) {
  const Geometry g(x.shape, y.shape, {.kernel = window, .stride = window});
  with_float_type(x.dtype, [&]<class T>(T) {
    const T* const added = bias.data == nullptr ? nullptr : bias.as<T>();
    std::uint8_t* const places = winners.data == nullptr ? nullptr : winners.as<std::uint8_t>();
    for_images<T>(exec, g, [&, in = x.as<T>(), out = y.as<T>()]<class V>(int64_t begin, int64_t end) {
      for_windows<V>(g, begin, end, [=](const Window& elements, int64_t at, int64_t live) {
        const Winners<V> found(elements, in, live);
        V v = found.value;
        if (added != nullptr) v += load_first<V>(added + at % g.channels, live);
        v = v < V{} ? V{} : v;
        store_first(out + at, v, live);
        if (places == nullptr) return;
        const Integers<V> place = v <= V{} ? Integers<V>{} + kNoWinner : found.place;
        const auto bytes = __builtin_convertvector(place, Bytes<V>);
        std::memcpy(places + at, &bytes, static_cast<std::size_t>(live));
      });
    });
  });
}

void cpu::relu_max_pool2d_backward(const ExecContext& exec, ConstView dy, ConstView winners, int64_t window, View dx,
                                   GradView dbias) {
  const Geometry g(dx.shape, dy.shape, {.kernel = window, .stride = window});
  with_float_type(dy.dtype, [&]<class T>(T) {
    const std::uint8_t* const places = winners.as<std::uint8_t>();
    for_images<T>(exec, g, [&, gradient = dy.as<T>()]<class V>(int64_t begin, int64_t end) {
      scatter<V, T>(g, begin, end, {dx, false}, [=](const Window&, int64_t at, int64_t live) {
        Bytes<V> bytes{};
        std::memcpy(&bytes, places + at, static_cast<std::size_t>(live));
        return [place = __builtin_convertvector(bytes, Integers<V>), d = load_first<V>(gradient + at, live)](
                   int64_t element) { return place == static_cast<cpu::Element<Integers<V>>>(element) ? d : V{}; };
      });
    });
    if (dbias) column_sums<T>(exec, dx.as<T>(), g.images * g.height * g.width, g.channels, dbias);
  });
}

void cpu::avg_pool2d_forward(const ExecContext& exec, ConstView x, const Pool2dParams& params, View y) {
  const Geometry g(x.shape, y.shape, params);
  with_float_type(x.dtype, [&]<class T>(T) { mean_forward(exec, g, x.as<T>(), y.as<T>()); });
}

void cpu::avg_pool2d_backward(const ExecContext& exec, ConstView dy, const Pool2dParams& params, GradView dx) {
  const Geometry g(dx.view.shape, dy.shape, params);
  with_float_type(dy.dtype, [&]<class T>(T) { mean_backward(exec, g, dy.as<T>(), dx); });
}

void cpu::adaptive_avg_pool2d_forward(const ExecContext& exec, ConstView x, View y) {
  const Geometry g(x.shape, y.shape);
  with_float_type(x.dtype, [&]<class T>(T) { mean_forward(exec, g, x.as<T>(), y.as<T>()); });
}

void cpu::adaptive_avg_pool2d_backward(const ExecContext& exec, ConstView dy, GradView dx) {
  const Geometry g(dx.view.shape, dy.shape);
  with_float_type(dy.dtype, [&]<class T>(T) { mean_backward(exec, g, dy.as<T>(), dx); });
}

}  // namespace lockstep::kernels
