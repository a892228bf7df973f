// A named stretch of the host's time in a profile (NVTX): what the GPU does meanwhile is seen below it.
#pragma once

#include "kernels/dispatch.h"

namespace lockstep {

// From here to the end of the scope. Nothing in a build without CUDA, and next to nothing where nobody profiles.
class ProfileRange {
 public:
  explicit ProfileRange(const char* name) {
    if constexpr (kernels::kHasCuda) begin(name);
  }
  ~ProfileRange() {
    if constexpr (kernels::kHasCuda) end();
  }
  ProfileRange(const ProfileRange&) = delete;
  ProfileRange& operator=(const ProfileRange&) = delete;

 private:
  static void begin(const char* name);
  static void end();
};

}  // namespace lockstep
