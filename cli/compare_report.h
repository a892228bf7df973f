// What `lockstep compare` prints.
#pragma once

#include <string>
#include <vector>

#include "cli/compare_case.h"

namespace lockstep::cli {

// The table of a case that has run, with its conclusion.
std::string report(const CompareCase& compared);

// One line a case: where the link starts to matter, or how it grows.
std::string summary(const std::vector<CompareCase>& cases);

// "about 5 minutes"
std::string duration_text(double seconds);

}  // namespace lockstep::cli
