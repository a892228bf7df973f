#include "cli/all_reduce_report.h"

#include <fmt/format.h>

#include "cli/emulation.h"
#include "framework/core/version.h"

namespace lockstep::cli {
namespace {

// As nccl-tests calls it.
const char* type_name(DType dtype) { return dtype == DType::bf16 ? "bfloat16" : "float"; }
const char* op_name(ReduceOp op) { return op == ReduceOp::sum ? "sum" : op == ReduceOp::max ? "max" : "min"; }

double algbw(std::int64_t bytes, const AllReduceTimes& times) { return 1e-3 * static_cast<double>(bytes) / times.us; }

std::string half_line(const SweepDescription& sweep, std::int64_t bytes, const AllReduceTimes& times) {
  return fmt::format(" {:>7} {:>7.2f} {:>7.2f} {:>6}",
                     times.us < 1e4 ? fmt::format("{:.2f}", times.us) : fmt::format("{:.0f}", times.us),
                     algbw(bytes, times), all_reduce_busbw(bytes, times.us, sweep.ranks),
                     times.wrong < 0 ? "N/A" : fmt::format("{}", times.wrong));
}

double average_busbw(const SweepDescription& sweep, const std::vector<AllReduceRow>& rows) {
  double sum = 0;
  for (const AllReduceRow& row : rows) {
    sum += all_reduce_busbw(row.bytes, row.out_of_place.us, sweep.ranks) +
           all_reduce_busbw(row.bytes, row.in_place.us, sweep.ranks);
  }
  return rows.empty() ? 0.0 : sum / (2.0 * static_cast<double>(rows.size()));
}

std::int64_t wrong_elements(const std::vector<AllReduceRow>& rows) {
  std::int64_t wrong = 0;
  for (const AllReduceRow& row : rows) {
    wrong += std::max<std::int64_t>(row.out_of_place.wrong, 0) + std::max<std::int64_t>(row.in_place.wrong, 0);
  }
  return wrong;
}

nlohmann::ordered_json times_json(const SweepDescription& sweep, std::int64_t bytes, const AllReduceTimes& times) {
  nlohmann::ordered_json json = {{"us", times.us},
                                 {"algbw", algbw(bytes, times)},
                                 {"busbw", all_reduce_busbw(bytes, times.us, sweep.ranks)},
                                 {"min_us", times.min_us},
                                 {"median_us", times.median_us},
                                 {"max_us", times.max_us},
                                 {"wrong", nullptr}};
  if (times.wrong >= 0) json["wrong"] = times.wrong;
  return json;
}

}  // namespace

AllReduceRow without_slow_motion(AllReduceRow row, double slow_motion) {
  for (AllReduceTimes* times : {&row.out_of_place, &row.in_place}) {
    for (double* us : {&times->us, &times->min_us, &times->median_us, &times->max_us}) *us /= slow_motion;
  }
  return row;
}

std::string sweep_header(const SweepDescription& sweep) {
  std::string text = fmt::format("# lockstep all-reduce: {}, link {}{}\n", sweep.device, sweep.link,
                                 sweep.path.empty() ? "" : fmt::format(" ({})", sweep.path));
  if (sweep.emulated) {
    text += fmt::format("# {}: the times below are the link's own, what was measured divided by that factor\n",
                        emulation_text(sweep.slow_motion));
  }
  text += fmt::format("# {} warm-up and {} timed iterations, {}\n", sweep.test.warmup, sweep.test.iterations,
                      sweep.test.check ? "checked" : "not checked");
  if (sweep.ranks == 1) text += "# one rank sends nothing: no link carries these, whatever --link says\n";
  text += "#\n";
  text += fmt::format("#{:>66}{:>32}{:>39}\n", "out-of-place", "in-place", "in-place, single iterations");
  text += fmt::format("# {:>10} {:>13} {:>9} {:>7} {:>7}", "size", "count", "type", "redop", "root");
  for (int i = 0; i < 2; ++i) text += fmt::format(" {:>7} {:>7} {:>7} {:>6}", "time", "algbw", "busbw", "#wrong");
  text += fmt::format(" {:>9} {:>9} {:>9} {:>6}\n", "min", "median", "max", "peak");
  text += fmt::format("# {:>10} {:>13} {:>9} {:>7} {:>7}", "(B)", "(elements)", "", "", "");
  for (int i = 0; i < 2; ++i) text += fmt::format(" {:>7} {:>7} {:>7} {:>6}", "(us)", "(GB/s)", "(GB/s)", "");
  return text + fmt::format(" {:>9} {:>9} {:>9} {:>6}\n", "(us)", "(us)", "(us)", "(%)");
}

std::string sweep_line(const SweepDescription& sweep, const AllReduceRow& row) {
  std::string text =
      fmt::format("{:>12} {:>13} {:>9} {:>7} {:>7}", row.bytes, row.bytes / dtype_bytes(sweep.test.dtype),
                  type_name(sweep.test.dtype), op_name(sweep.test.op), -1);
  text += half_line(sweep, row.bytes, row.out_of_place) + half_line(sweep, row.bytes, row.in_place);
  text += fmt::format(" {:>9.2f} {:>9.2f} {:>9.2f}", row.in_place.min_us, row.in_place.median_us, row.in_place.max_us);
  if (sweep.peak_gb_s <= 0) return text + fmt::format(" {:>6}\n", "-");
  const double busbw = all_reduce_busbw(row.bytes, row.in_place.us, sweep.ranks);
  return text + fmt::format(" {:>6.1f}\n", 100 * busbw / sweep.peak_gb_s);
}

std::string sweep_footer(const SweepDescription& sweep, const std::vector<AllReduceRow>& rows) {
  std::string text;
  if (sweep.peak_gb_s > 0) {
    text +=
        fmt::format("# peak: bus bandwidth as a share of {:g} GB/s, the link's in one direction\n", sweep.peak_gb_s);
  }
  const std::int64_t wrong = wrong_elements(rows);
  text += sweep.test.check ? fmt::format("# Out of bounds values : {} {}\n", wrong, wrong == 0 ? "OK" : "FAILED")
                           : "# Out of bounds values : not checked\n";
  return text + fmt::format("# Avg bus bandwidth    : {:g}\n", average_busbw(sweep, rows));
}

nlohmann::ordered_json sweep_json(const SweepDescription& sweep, const std::vector<AllReduceRow>& rows) {
  nlohmann::ordered_json json = {{"command", "all-reduce"},
                                 {"version", std::string(version())},
                                 {"device", sweep.device},
                                 {"ranks", sweep.ranks},
                                 {"link", sweep.link},
                                 {"path", sweep.path},
                                 {"peak_gb_s", nullptr},
                                 {"shared_link", nullptr},
                                 {"emulated", sweep.emulated},
                                 {"slow_motion", sweep.slow_motion},
                                 {"dtype", dtype_name(sweep.test.dtype)},
                                 {"op", op_name(sweep.test.op)},
                                 {"iterations", sweep.test.iterations},
                                 {"warmup", sweep.test.warmup},
                                 {"avg_busbw", average_busbw(sweep, rows)},
                                 {"wrong", wrong_elements(rows)}};
  if (sweep.peak_gb_s > 0) json["peak_gb_s"] = sweep.peak_gb_s;
  if (sweep.shared_link) json["shared_link"] = *sweep.shared_link;
  json["rows"] = nlohmann::ordered_json::array();
  for (const AllReduceRow& row : rows) {
    json["rows"].push_back({{"bytes", row.bytes},
                            {"count", row.bytes / dtype_bytes(sweep.test.dtype)},
                            {"out_of_place", times_json(sweep, row.bytes, row.out_of_place)},
                            {"in_place", times_json(sweep, row.bytes, row.in_place)}});
  }
  return json;
}

}  // namespace lockstep::cli
