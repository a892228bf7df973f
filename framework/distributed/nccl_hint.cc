#include "framework/distributed/nccl_hint.h"

#include <algorithm>
#include <cctype>

namespace lockstep {
namespace {

struct Hint {
  std::string_view sign;  // lower case
  const char* advice;
};

// From the particular to the general: the first that fits is given.
constexpr Hint kHints[] = {
    {"nvls", "NVLink multicast could not be set up: set NCCL_NVLS_ENABLE=0"},
    {"multicast", "NVLink multicast could not be set up: set NCCL_NVLS_ENABLE=0"},
    {"out of memory",
     "the GPU is full: use a smaller batch, or leave NCCL less to take (NCCL_BUFFSIZE, NCCL_MAX_NCHANNELS)"},
    {"duplicate gpu", "two ranks are on one GPU: check CUDA_VISIBLE_DEVICES and LOCAL_RANK"},
    {"/dev/shm", "shared memory is short: give the container more (--shm-size=1g) or set NCCL_SHM_DISABLE=1"},
    {"shared memory", "shared memory is short: give the container more (--shm-size=1g) or set NCCL_SHM_DISABLE=1"},
    {"no socket interface", "no network interface was found: name one in NCCL_SOCKET_IFNAME"},
    {"connection refused", "the ranks do not reach each other: name the interface that does in NCCL_SOCKET_IFNAME"},
    {"timed out", "the ranks do not reach each other: name the interface that does in NCCL_SOCKET_IFNAME"},
    {"version mismatch", "the ranks run different versions of NCCL: check LD_LIBRARY_PATH on every host"},
    {"peer access", "the GPUs cannot reach each other's memory: set NCCL_P2P_DISABLE=1 (and see `lockstep topology`)"},
    {"remote", "another rank has failed: its own message says why"},
    {"cuda", "a kernel before it may have failed: run again with CUDA_LAUNCH_BLOCKING=1 to find it"},
    {"system error", "run again with NCCL_DEBUG=INFO to see which system call failed"},
};

}  // namespace

std::string nccl_hint(std::string_view error) {
  std::string text(error);
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  for (const Hint& hint : kHints) {
    if (text.find(hint.sign) != std::string::npos) return hint.advice;
  }
  return {};
}

}  // namespace lockstep
