// How a report says figures and names.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/report/compare_file.h"

namespace lockstep::cli {

inline constexpr const char* kNotMeasured = "not measured";

// "VGG-16 at 32 images a GPU"
std::string describe_training(const CaseFigures& figures);

// "NVLink", "PCIe, staged", "NVLink 4, emulated"
std::string link_name(const ArmFigures& arm, bool emulated);
// To follow "24 h": "staged over PCIe", "with NVLink", "with emulated NVLink 4"
std::string link_phrase(const ArmFigures& arm, bool emulated);

// Four digits: "24.04", for a column of milliseconds.
std::string ms_figure(const std::optional<double>& ms);
// "24.04 ms"
std::string ms_text(double ms);
std::string times_text(double ratio);                      // "2.39x"
std::string range_text(const Figured& ratio);              // "2.31-2.47"
std::string interval_text(const Figured& ratio);           // "95 % interval 2.31-2.47"
std::string size_text(std::int64_t bytes);                 // "25 MiB"
std::string rate_text(const std::optional<double>& gb_s);  // "55.4 GB/s"

// Of both arms: "proven", "unproven", "contradicted", "emulated in slow motion, factor 480"
std::string proof_text(const CaseFigures& figures);
std::string factor_text(double slow_motion);  // "480"
// "NVLink is unproven: another process was on GPU 1", for each arm that has a verdict but proven, or was disturbed.
std::vector<std::string> doubts_of(const CompareFile& file);

// "24 h staged over PCIe become 10 h with NVLink for VGG-16 at 32 images a GPU". Expects a case with a speed-up.
std::string headline(const CaseFigures& figures);
// "2.39x, 95 % interval 2.31-2.47, proven"
std::string evidence_text(const CaseFigures& figures);

// "Compute-bound: ...", from "compute-bound: ...".
std::string sentence(std::string text);

}  // namespace lockstep::cli
