#include "framework/distributed/nccl_hint.h"

#include <gtest/gtest.h>

#include <string>

namespace lockstep {
namespace {

TEST(NcclHint, NamesTheRemedy) {
  const auto advises = [](const char* error, const char* remedy) {
    EXPECT_NE(nccl_hint(error).find(remedy), std::string::npos) << error << " -> " << nccl_hint(error);
  };
  // Texts as NCCL puts them.
  advises("unhandled cuda error; NCCL says: transport/nvls.cc:254 Cuda failure 1 'invalid argument'",
          "NCCL_NVLS_ENABLE=0");
  advises("unhandled cuda error; NCCL says: Failed to bind NVLink SHARP (NVLS) Multicast memory", "NCCL_NVLS_ENABLE=0");
  advises("unhandled cuda error; NCCL says: Cuda failure 2 'out of memory'", "smaller batch");
  advises("invalid usage; NCCL says: Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1b000",
          "LOCAL_RANK");
  advises(
      "unhandled system error; NCCL says: Error while creating shared memory segment /dev/shm/nccl-Xy (size 9637888)",
      "--shm-size");
  advises("unhandled system error; NCCL says: connect to 10.0.0.3<41357> returned Connection refused",
          "NCCL_SOCKET_IFNAME");
  advises("remote process exited or there was a network error", "another rank");
  advises("unhandled cuda error (run with NCCL_DEBUG=INFO for details)", "CUDA_LAUNCH_BLOCKING");
  advises("unhandled system error (run with NCCL_DEBUG=INFO for details)", "NCCL_DEBUG=INFO");
  EXPECT_EQ(nccl_hint("something new"), "");
}

}  // namespace
}  // namespace lockstep
