// What a program ends with; 128 + N where signal N ended it, and 0 where all is well.
#pragma once

#include <exception>
#include <stdexcept>

#include "framework/core/error.h"

namespace lockstep {

inline constexpr int kFailed = 1;
inline constexpr int kWrongUsage = 2;    // or input, or a device that is not there
inline constexpr int kContradicted = 3;  // a link mode or its proof; or `topology --check` found a fault

inline int exit_code_of(const std::exception& error) {
  if (dynamic_cast<const std::invalid_argument*>(&error) != nullptr) return kWrongUsage;
  return dynamic_cast<const LinkContradiction*>(&error) != nullptr ? kContradicted : kFailed;
}

}  // namespace lockstep
