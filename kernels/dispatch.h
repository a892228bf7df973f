// The whole dispatcher: one `if` on the device. A kernel header declares cpu:: and cuda:: functions of one function
// type; a build without CUDA never names the second, so it needs no stub.
#pragma once

#include "kernels/exec_context.h"

namespace lockstep::kernels {

#ifdef LOCKSTEP_HAS_CUDA
inline constexpr bool kHasCuda = true;
#else
inline constexpr bool kHasCuda = false;
#endif

}  // namespace lockstep::kernels

// A macro, since the name `cuda::kernel` must stand inside the discarded branch and nowhere else.
#define LOCKSTEP_DISPATCH(kernel, exec, ...)                    \
  do {                                                          \
    if constexpr (::lockstep::kernels::kHasCuda) {              \
      if ((exec).device == ::lockstep::DeviceType::cuda) {      \
        ::lockstep::kernels::cuda::kernel((exec), __VA_ARGS__); \
        break;                                                  \
      }                                                         \
    }                                                           \
    ::lockstep::kernels::cpu::kernel((exec), __VA_ARGS__);      \
  } while (false)
