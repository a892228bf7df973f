// Text that others wrote, made fit for a terminal and for a line.
#pragma once

#include <string>

namespace lockstep::cli {

// Control characters, which could move a cursor or start a line, become spaces.
std::string printable(std::string text);

}  // namespace lockstep::cli
