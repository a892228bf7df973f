#include "framework/interconnect/silent_group.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/worlds.h"

namespace lockstep {
namespace {

View view(std::vector<float>& values) {
  return {values.data(), DType::f32, {static_cast<std::int64_t>(values.size())}};
}

TEST(SilentGroup, LeavesAllReducesOutAndNothingElse) {
  run_local_world(2, [](ProcessGroup& inner) {
    SilentGroup group(inner);
    std::vector<float> values(10, 1);
    group.all_reduce(view(values)).wait();
    EXPECT_EQ(values[9], 2) << "left out too early";

    group.leave_out();
    const Work work = group.all_reduce(view(values));
    EXPECT_TRUE(work.done());
    work.wait();
    EXPECT_EQ(values[9], 2);
    group.barrier().wait();
    std::vector<float> given(10, static_cast<float>(group.rank()));
    group.broadcast(view(given), 1).wait();
    EXPECT_EQ(given[9], 1);
  });
}

}  // namespace
}  // namespace lockstep
