// What every backend promises, over NCCL, and what only holds on GPUs. Ranks are processes.
#include "framework/distributed/nccl_group.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "framework/core/allocator.h"
#include "framework/core/context.h"
#include "framework/core/cuda_graph.h"
#include "framework/core/error.h"
#include "framework/distributed/store.h"
#include "tests/distributed/conformance.h"
#include "tests/support/gpus.h"
#include "tests/support/text.h"
#include "tests/support/thrown_by.h"
#include "tests/support/worlds.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// For ranks that are to run into it. The first collective of a kind connects the ranks, which takes a second or two.
constexpr std::chrono::milliseconds kShortTimeout{5'000};

// The statuses of ranks that run `body` with a group.
std::vector<int> run_nccl_world(int size, const RankBody& body, const GroupOptions& options = {}) {
  return run_process_world(size, [&](const Environment& environment) {
    Context context(testing::gpu_options(environment.local_rank));
    const ContextScope scope(context);
    const auto store = std::make_shared<Store>(store_options(environment));
    body(*make_process_group("nccl", environment, store, options));
  });
}

void expect_well(const std::vector<int>& statuses) { EXPECT_EQ(statuses, std::vector<int>(statuses.size(), 0)); }

// Both ranks have come so far: one that has its result may be ahead of the other, which still needs it to get its own.
void meet(ProcessGroup& group) { group.store()->barrier("meet"); }

void expect_text(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) EXPECT_CONTAINS(text, part);
}

// Until the group has failed, 20 s at most; the text of the failure.
std::string failure_of(ProcessGroup& group) {
  return testing::thrown_by<Error>([&] {
    for (const auto end = Clock::now() + 20s; Clock::now() < end; std::this_thread::sleep_for(5ms)) group.check();
  });
}

TEST(Gpu, NcclKeepsThePromisesOfAGroup) {
  SKIP_WITHOUT_GPUS(1);
  for (int size = 1; size <= testing::ranks_on_gpus() && size <= 4; ++size) {
    expect_well(run_nccl_world(size, [](ProcessGroup& group) {
      EXPECT_EQ(group.backend(), "nccl");
      check_all_reduce<float>(group);
      check_all_reduce<double>(group);
      check_all_reduce<std::int32_t>(group);
      check_all_reduce<std::uint8_t>(group);
      check_all_reduce<bfloat16>(group);
      check_all_reduce<float, ReduceOp::max>(group);
      check_all_reduce<double, ReduceOp::min>(group);
      check_all_reduce<bfloat16, ReduceOp::max>(group);
      check_large_all_reduce(group);
      check_all_reduce_out_of_place(group);
      check_broadcast(group);
      check_all_gather(group);
      check_reduce_scatter(group);
      check_many_outstanding(group);
      check_ring_all_reduce(group);
      complete(group.barrier());
      if (group.size() > 1) check_send_order(group);
      if (group.size() == 2) {
        check_exchange(group);
        check_wrong_arguments(group);
      }
    }));
  }
}

TEST(Gpu, NcclIsWhatAGpuContextGets) {
  SKIP_WITHOUT_GPUS(1);
  expect_well(run_process_world(1, [](const Environment& environment) {
    Context context{DeviceType::cuda};
    const ContextScope scope(context);
    // One rank needs no NCCL, but its group carries the GPU's memory all the same.
    const auto group = make_process_group("auto", environment, nullptr);
    EXPECT_EQ(group->backend(), "local");
    check_all_reduce<float>(*group);
    check_all_gather(*group);
    check_reduce_scatter(*group);
    EXPECT_THROW(make_process_group("gloo", environment, nullptr), std::invalid_argument);
  }));
}

TEST(Gpu, NcclRefusesHostMemory) {
  SKIP_WITHOUT_GPUS(1);
  expect_well(run_nccl_world(1, [](ProcessGroup& group) {
    std::vector<float> host(10);
    EXPECT_THROW(group.all_reduce(view_of(host)), std::invalid_argument);
    EXPECT_THROW(group.all_gather(Tensor::zeros({10}, DType::f32), view_of(host)), std::invalid_argument);
    Context cpu;
    const ContextScope scope(cpu);
    EXPECT_THROW(group.barrier(), std::invalid_argument) << "no stream to come after";
  }));
}

TEST(Gpu, NcclLeavesMulticastOffAndCountsItsMemory) {
  SKIP_WITHOUT_GPUS(2);
  ::unsetenv("NCCL_NVLS_ENABLE");
  expect_well(run_nccl_world(2, [](ProcessGroup&) {
    EXPECT_STREQ(std::getenv("NCCL_NVLS_ENABLE"), "0");
    const auto stats = device_allocator(DeviceType::cuda).stats();
    EXPECT_GT(stats.bytes_by_purpose[static_cast<std::size_t>(MemoryPurpose::communication)], 0u);
  }));
}

TEST(Gpu, NcclRefusesTwoRanksOnOneGpu) {
  SKIP_WITHOUT_GPUS(1);
  if (gpus_are_shared()) GTEST_SKIP() << "LOCKSTEP_SHARE_GPUS is set";
  expect_well(run_process_world(2, [](const Environment& environment) {
    Context context{DeviceType::cuda};
    const ContextScope scope(context);
    const auto store = std::make_shared<Store>(store_options(environment));
    std::string text;
    try {
      make_process_group("nccl", environment, store);
    } catch (const std::invalid_argument& error) {
      text = error.what();
    }
    if (text.find("ranks 0 and 1 are both on GPU-") == std::string::npos) throw Error("not refused: " + text);
  }));
}

TEST(Gpu, NcclWaitDoesNotBlockTheHost) {
  SKIP_WITHOUT_GPUS(2);
  expect_well(run_nccl_world(2, [](ProcessGroup& group) {
    const Tensor tensor = tensor_of(std::vector<float>{1});
    complete(group.all_reduce(tensor));  // connects the ranks
    if (group.rank() == 1) std::this_thread::sleep_for(1500ms);
    const auto start = Clock::now();
    const Work work = group.all_reduce(tensor);
    work.wait();
    EXPECT_LT(Clock::now() - start, 500ms);
    if (group.rank() == 0) {
      EXPECT_FALSE(work.done());
      EXPECT_EQ(work.finished_at(), std::nullopt);
    }
    EXPECT_EQ(tensor.to_host<float>()[0], 4);
    EXPECT_TRUE(work.done());
    group.check();
  }));
}

TEST(Gpu, NcclDeadlineNamesTheCollectiveAndWhereTheOthersAre) {
  SKIP_WITHOUT_GPUS(2);
  expect_well(run_nccl_world(
      2,
      [](ProcessGroup& group) {
        const Tensor tensor = tensor_of(std::vector<float>(5000));
        complete(group.all_reduce(tensor));
        if (group.rank() == 1) {
          // Busy with something else.
          const std::string text = testing::thrown_by<Error>([&] {
            for (const auto end = Clock::now() + 20s; Clock::now() < end; std::this_thread::sleep_for(5ms))
              group.check();
          });
          expect_text(text, {"rank 0", "loss"});
          return;
        }
        const auto start = Clock::now();
        const std::string text =
            testing::thrown_by<Error>([&] { complete(group.all_reduce(tensor, ReduceOp::sum, "loss")); });
        EXPECT_LT(Clock::now() - start, 20s);
        expect_text(text, {"rank 0", "all_reduce f32 (5000) [loss]", "not finished", "rank 1 was in no collective"});
        EXPECT_THROW(group.barrier().wait(), Error) << "a group does not recover";
        EXPECT_THROW(group.check(), Error);
      },
      {.timeout = kShortTimeout}));
}

TEST(Gpu, NcclSurvivorOfAKilledProcessEndsAtOnceAndNamesIt) {
  SKIP_WITHOUT_GPUS(2);
  const auto start = Clock::now();
  const std::vector<int> statuses = run_nccl_world(2, [](ProcessGroup& group) {
    const Tensor tensor = tensor_of(std::vector<float>(1 << 20));
    complete(group.all_reduce(tensor));
    meet(group);
    if (group.rank() == 1) ::raise(SIGKILL);
    expect_text(testing::thrown_by<Error>([&] { complete(group.all_reduce(tensor)); }), {"rank 1 is gone"});
  });
  EXPECT_EQ(statuses, (std::vector<int>{0, SIGKILL}));
  EXPECT_LT(Clock::now() - start, 25s) << "well before the deadline of 30 s";
}

TEST(Gpu, NcclRankThatThrowsReleasesTheOthers) {
  SKIP_WITHOUT_GPUS(2);
  const auto start = Clock::now();
  const std::vector<int> statuses = run_nccl_world(2, [](ProcessGroup& group) {
    const Tensor tensor = tensor_of(std::vector<float>(5000));
    complete(group.all_reduce(tensor));
    meet(group);
    if (group.rank() == 1) throw Error("no more data");
    expect_text(testing::thrown_by<Error>([&] { complete(group.all_reduce(tensor)); }), {"rank 1"});
  });
  EXPECT_EQ(statuses, (std::vector<int>{0, 1 << 8}));
  EXPECT_LT(Clock::now() - start, 25s);
}

TEST(Gpu, NcclAbortEndsWhatWaits) {
  SKIP_WITHOUT_GPUS(2);
  const auto start = Clock::now();
  expect_well(run_nccl_world(2, [](ProcessGroup& group) {
    const Tensor tensor = tensor_of(std::vector<float>(5000));
    complete(group.all_reduce(tensor));
    if (group.rank() == 1) {
      expect_text(failure_of(group), {"the loss is not a number"});
      return;
    }
    const Work work = group.all_reduce(tensor);
    std::thread other([&] {
      std::this_thread::sleep_for(200ms);
      group.abort("the loss is not a number");
    });
    expect_text(testing::thrown_by<Error>([&] { complete(work); }), {"the loss is not a number"});
    EXPECT_TRUE(work.done());
    other.join();
  }));
  EXPECT_LT(Clock::now() - start, 25s);
}

TEST(Gpu, NcclCallThatBlocksTheHostIsEnded) {
  SKIP_WITHOUT_GPUS(2);
  const auto start = Clock::now();
  expect_well(run_nccl_world(2,
                             [](ProcessGroup& group) {
                               const Tensor tensor = tensor_of(std::vector<float>(5000));
                               complete(group.all_reduce(tensor));
                               if (group.rank() == 1) {
                                 expect_text(failure_of(group), {"send_recv"});
                                 return;
                               }
                               // The first of its kind: NCCL waits inside the call until the other rank connects.
                               expect_text(testing::thrown_by<Error>([&] { complete(group.recv(tensor, 1)); }),
                                           {"send_recv f32 (5000) from rank 1", "not finished"});
                             },
                             {.timeout = kShortTimeout}));
  EXPECT_LT(Clock::now() - start, 40s);
}

TEST(Gpu, NcclDestroyedWithWorkInFlightEndsAtItsDeadline) {
  SKIP_WITHOUT_GPUS(2);
  const auto start = Clock::now();
  expect_well(run_nccl_world(2,
                             [](ProcessGroup& group) {
                               const Tensor tensor = tensor_of(std::vector<float>(5000));
                               complete(group.all_reduce(tensor));
                               if (group.rank() == 0) static_cast<void>(group.all_reduce(tensor));
                             },
                             {.timeout = kShortTimeout}));
  EXPECT_LT(Clock::now() - start, 40s);
}

TEST(Gpu, NcclRunsInsideAGraph) {
  SKIP_WITHOUT_GPUS(2);
  expect_well(run_nccl_world(2, [](ProcessGroup& group) {
    const Tensor tensor = tensor_of(std::vector<double>(1000, 1.0));
    const Tensor loss = tensor_of(std::vector<float>{1.0F});
    const auto step = [&] {
      const Work first = group.all_reduce(loss, ReduceOp::sum, "loss");
      group.all_reduce(tensor, ReduceOp::sum, "bucket 0").wait();
      first.wait();
    };
    step();  // the ranks are connected outside the capture
    EXPECT_EQ(tensor.to_host<double>()[999], 2);
    CudaGraph graph;
    graph.capture(step);
    EXPECT_EQ(tensor.to_host<double>()[0], 2) << "a capture runs nothing";
    for (int i = 0; i < 3; ++i) {
      graph.launch();
      group.watch([] { return "captured step"; });
    }
    step();  // eager work between replays
    graph.launch();
    EXPECT_EQ(tensor.to_host<double>(), std::vector<double>(1000, 64.0));
    EXPECT_EQ(loss.to_host<float>()[0], 64);
    group.check();
  }));
}

TEST(Gpu, NcclOutlivesACaptureThatFails) {
  SKIP_WITHOUT_GPUS(1);
  for (int size = 1; size <= testing::ranks_on_gpus() && size <= 2; ++size) {
    expect_well(run_nccl_world(size,
                               [](ProcessGroup& group) {
                                 const Tensor tensor = tensor_of(std::vector<float>{1});
                                 const auto step = [&] { group.all_reduce(tensor).wait(); };
                                 step();
                                 CudaGraph graph;
                                 // Refused by CUDA before NCCL is asked, and by NCCL itself.
                                 const auto spoil = [](void* stream) { EXPECT_THROW(synchronize(stream), Error); };
                                 EXPECT_THROW(graph.capture([&] {
                                   spoil(context().exec().stream);
                                   step();
                                 }),
                                              Error);
                                 set_stream_hook([&](void* stream) {
                                   if (stream != context().exec().stream) spoil(stream);
                                 });
                                 EXPECT_THROW(graph.capture(step), Error);
                                 set_stream_hook({});
                                 // Nor is it taken for one that hangs.
                                 std::this_thread::sleep_for(kShortTimeout + 1s);
                                 group.check();
                                 step();
                                 graph.capture(step);
                                 graph.launch();
                                 EXPECT_EQ(tensor.to_host<float>()[0], std::pow(group.size(), 3))
                                     << "the two steps and the replay";
                                 group.check();
                               },
                               {.timeout = kShortTimeout}));
  }
}

TEST(Gpu, NcclCapturedStepThatHangsIsFound) {
  SKIP_WITHOUT_GPUS(2);
  const auto start = Clock::now();
  expect_well(run_nccl_world(2,
                             [](ProcessGroup& group) {
                               const Tensor tensor = tensor_of(std::vector<float>(5000));
                               const auto step = [&] { group.all_reduce(tensor).wait(); };
                               step();
                               CudaGraph graph;
                               graph.capture(step);
                               const std::string text = testing::thrown_by<Error>([&] {
                                 if (group.rank() == 0) {
                                   graph.launch();
                                   group.watch([] { return "captured step 2"; });
                                 }
                                 for (const auto end = Clock::now() + 20s; Clock::now() < end;
                                      std::this_thread::sleep_for(5ms))
                                   group.check();
                               });
                               expect_text(text, {"captured step 2"});
                             },
                             {.timeout = kShortTimeout}));
  EXPECT_LT(Clock::now() - start, 40s);
}

}  // namespace
}  // namespace lockstep
