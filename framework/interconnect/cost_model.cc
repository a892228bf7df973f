#include "framework/interconnect/cost_model.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>

#include "framework/core/error.h"
#include "framework/core/statistics.h"

namespace lockstep {
namespace {

constexpr std::size_t kMostRegimes = 3;
constexpr std::size_t kFewestPoints = 3;  // of a regime: two fit any line
constexpr std::size_t kMostPoints = 64;   // the time of the fit grows with their fifth power
// One more regime must take this share of the error away, and an error this small is left as it is.
constexpr double kWorthwhile = 0.3;
constexpr double kNegligible = 0.02;
// What a measured bus bandwidth of NVLink may differ by at another number of ranks.
constexpr double kNvlinkSpread = 0.2;

struct Line {
  double alpha = 0.0;
  double beta = 0.0;
  double error = std::numeric_limits<double>::infinity();  // sum over the points of |1 - fitted / measured|
};

Line with_error(Line line, std::span<const MeasuredTime> points) {
  line.error = 0.0;
  for (const MeasuredTime& point : points) {
    line.error += std::abs(1 - (line.alpha + line.beta * static_cast<double>(point.bytes)) / point.us);
  }
  return line;
}

// The line of least absolute relative error with neither alpha nor beta below zero. Such a line goes through two points
// (or through one, with alpha or beta zero), so that all candidates can be tried; unlike least squares it does not bend
// towards an outlier.
Line fit_line(std::span<const MeasuredTime> points) {
  Line best;
  const auto consider = [&](double alpha, double beta) {
    if (alpha < 0 || beta < 0) return;
    const Line line = with_error({alpha, beta}, points);
    if (line.error < best.error) best = line;
  };
  for (std::size_t i = 0; i < points.size(); ++i) {
    const auto x = static_cast<double>(points[i].bytes);
    consider(0.0, points[i].us / x);
    consider(points[i].us, 0.0);
    for (std::size_t j = i + 1; j < points.size(); ++j) {
      const double beta = (points[j].us - points[i].us) / (static_cast<double>(points[j].bytes) - x);
      consider(points[i].us - beta * x, beta);
    }
  }
  return best;
}

// The sizes in ascending order, each with the median of its times.
std::vector<MeasuredTime> merged(std::span<const MeasuredTime> sweep) {
  std::map<std::int64_t, std::vector<double>> times;
  for (const MeasuredTime& point : sweep) {
    expect(point.bytes > 0 && point.us > 0 && std::isfinite(point.us),
           "cost model: expected positive sizes and times, got {} us for {} bytes", point.us, point.bytes);
    times[point.bytes].push_back(point.us);
  }
  std::vector<MeasuredTime> points;
  for (const auto& [bytes, all] : times) points.push_back({bytes, median(all)});
  return points;
}

// Groups of neighbours where there are too many points: the median of their sizes with the median of their times.
std::vector<MeasuredTime> thinned(std::span<const MeasuredTime> points) {
  const std::size_t group = (points.size() + kMostPoints - 1) / kMostPoints;
  std::vector<MeasuredTime> fewer;
  for (std::size_t begin = 0; begin < points.size(); begin += group) {
    std::vector<double> bytes, us;
    for (const MeasuredTime& point : points.subspan(begin, std::min(group, points.size() - begin))) {
      bytes.push_back(static_cast<double>(point.bytes));
      us.push_back(point.us);
    }
    fewer.push_back({std::llround(median(bytes)), median(us)});
  }
  return fewer;
}

// The best way to cut `points` into 1, 2, ... neighbouring regimes, by dynamic programming over where the last begins.
std::vector<Regime> cut_into_regimes(std::span<const MeasuredTime> points) {
  struct Cut {
    double error = std::numeric_limits<double>::infinity();
    std::vector<Regime> regimes;
  };
  const std::size_t count = points.size();
  std::vector<Cut> before(count + 1);  // the first i points in one regime less
  before[0].error = 0.0;
  Cut chosen;
  for (std::size_t regimes = 1; regimes <= kMostRegimes; ++regimes) {
    std::vector<Cut> best(count + 1);
    for (std::size_t end = 1; end <= count; ++end) {
      for (std::size_t begin = 0; begin < end; ++begin) {
        if (std::isinf(before[begin].error) || end - begin < std::min(kFewestPoints, count)) continue;
        const Line line = fit_line(points.subspan(begin, end - begin));
        if (before[begin].error + line.error >= best[end].error) continue;
        best[end] = {before[begin].error + line.error, before[begin].regimes};
        best[end].regimes.push_back({points[begin].bytes, points[end - 1].bytes, line.alpha, line.beta});
      }
    }
    const bool better = best[count].error < (1 - kWorthwhile) * chosen.error;
    if (regimes > 1 && (!better || chosen.error < kNegligible * static_cast<double>(count))) break;
    chosen = best[count];
    before = std::move(best);
  }
  return chosen.regimes;
}

// How much of alpha is left at another number of starts, in terms of alpha at 2 ranks (2 starts).
double startup_factor(double share, double starts) { return share + (1 - share) * starts / 2; }

}  // namespace

Traffic all_reduce_traffic(int ranks) {
  expect(ranks >= 1, "cost model: expected at least 1 rank, got {}", ranks);
  return {2.0 * (ranks - 1), 2.0 * (ranks - 1) / ranks};
}

double CostModel::us(std::int64_t bytes, const Traffic& traffic) const {
  const Traffic measured = all_reduce_traffic(ranks);
  const double starts = traffic.starts == 0 ? 0.0
                                            : startup_factor(startup_share, traffic.starts) /
                                                  startup_factor(startup_share, measured.starts);
  const auto at = [&](const Regime& regime, std::int64_t size) {
    return starts * regime.alpha_us +
           traffic.bytes / measured.bytes * regime.beta_us_per_byte * static_cast<double>(size);
  };
  for (std::size_t i = 0; i + 1 < regimes.size(); ++i) {
    const Regime& here = regimes[i];
    const Regime& next = regimes[i + 1];
    if (bytes <= here.last_bytes) return at(here, bytes);
    if (bytes < next.first_bytes) {
      const double share =
          static_cast<double>(bytes - here.last_bytes) / static_cast<double>(next.first_bytes - here.last_bytes);
      return std::lerp(at(here, here.last_bytes), at(next, next.first_bytes), share);
    }
  }
  return at(regimes.back(), bytes);
}

double CostModel::peak_busbw() const {
  return all_reduce_traffic(ranks).bytes / (1e3 * regimes.back().beta_us_per_byte);
}

CostModel::Band CostModel::band(std::int64_t bytes, int of_ranks) const {
  const std::int64_t nearest = std::clamp(bytes, regimes.front().first_bytes, regimes.back().last_bytes);
  const double us = all_reduce_us(nearest, of_ranks);
  const double growth = static_cast<double>(bytes) / static_cast<double>(nearest);
  Band band{us * std::min(1.0, growth), us * std::max(1.0, growth)};
  if (of_ranks == ranks) return band;
  const double ratio = static_cast<double>(of_ranks) / ranks;
  band.low *= shared ? std::min(1.0, ratio) : 1 - kNvlinkSpread;
  band.high *= shared ? std::max(1.0, ratio) : 1 + kNvlinkSpread;
  return band;
}

CostModel fit_cost_model(std::string_view link, int ranks, bool shared, std::span<const MeasuredTime> sweep) {
  expect(ranks >= 2, "cost model: expected a sweep of at least 2 ranks, got {}", ranks);
  const std::vector<MeasuredTime> points = merged(sweep);
  expect(points.size() >= 2, "cost model: expected at least 2 sizes, got {}", points.size());
  CostModel model{.link = std::string(link),
                  .ranks = ranks,
                  .startup_share = shared ? kPcieStartupShare : kNvlinkStartupShare,
                  .shared = shared,
                  .regimes = cut_into_regimes(thinned(points))};
  model.regimes.front().first_bytes = points.front().bytes;
  model.regimes.back().last_bytes = points.back().bytes;
  return model;
}

}  // namespace lockstep
