// What to do about an error that NCCL reports.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

// One sentence for the first cause that `error` (NCCL's text and last warning) points to; empty where none is known.
std::string nccl_hint(std::string_view error);

}  // namespace lockstep
