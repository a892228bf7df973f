// How many times a test program called operator new.
#pragma once

#include <cstdint>

namespace lockstep::testing {

// Of all threads and all forms, since the program's start. In a file of its own, out of sight of the compiler that
// would inline one half of a new and delete.
std::int64_t allocation_count();

}  // namespace lockstep::testing
