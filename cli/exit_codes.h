// What the command ends with; 128 + N where signal N ended it, and 0 where all is well.
#pragma once

namespace lockstep::cli {

inline constexpr int kFailed = 1;
inline constexpr int kWrongUsage = 2;    // or input, or a device that is not there
inline constexpr int kContradicted = 3;  // a link mode or its proof; or `topology --check` found a fault

}  // namespace lockstep::cli
