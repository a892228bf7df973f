#include "framework/distributed/agreement.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "framework/core/error.h"
#include "framework/distributed/local_group.h"
#include "framework/distributed/world.h"
#include "tests/support/worlds.h"

namespace lockstep {
namespace {

// Ranks that are threads, which have no store, and ranks that have one.
class AgreementTest : public ::testing::TestWithParam<bool> {
 protected:
  static void run_world(int size, const RankBody& body) {
#ifdef LOCKSTEP_HAS_GLOO
    if (GetParam()) return run_gloo_world(size, body);
#else
    if (GetParam()) GTEST_SKIP() << "needs Gloo";
#endif
    run_local_world(size, body);
  }
};

TEST_P(AgreementTest, EachGetsAllTexts) {
  run_world(3, [](ProcessGroup& group) {
    for (const std::string suffix : {"", "\nb"}) {
      const std::string mine(static_cast<std::size_t>(group.rank()), 'x');
      EXPECT_EQ(gather_texts(group, "texts", mine + suffix),
                (std::vector<std::string>{suffix, "x" + suffix, "xx" + suffix}));
    }
  });
}

TEST_P(AgreementTest, WhatRankZeroReturnsOrThrowsIsEachs) {
  run_world(3, [](ProcessGroup& group) {
    int calls = 0;
    const auto returns = [&] {
      ++calls;
      return "from rank " + std::to_string(group.rank());
    };
    EXPECT_EQ(from_rank_0(group, "word", returns), "from rank 0");
    EXPECT_EQ(calls, group.rank() == 0 ? 1 : 0);
    const auto thrown = [&](const auto& error) -> std::string {
      try {
        from_rank_0(group, "word", [&]() -> std::string { throw error; });
      } catch (const std::decay_t<decltype(error)>& caught) {
        return caught.what();
      } catch (const std::exception& caught) {
        return std::string("of another type: ") + caught.what();
      }
      return "nothing";
    };
    EXPECT_EQ(thrown(std::invalid_argument("does not fit")), "does not fit");
    EXPECT_EQ(thrown(LinkContradiction("another link")), "another link");
    EXPECT_EQ(thrown(Error("a full disk")), "a full disk");
  });
}

TEST_P(AgreementTest, DisagreementIsNamedByAll) {
  run_world(3, [](ProcessGroup& group) {
    EXPECT_NO_THROW(expect_agreement(group, "options", "steps 3\nbatch 64"));
    try {
      expect_agreement(group, "options", group.rank() == 2 ? "steps 3\nbatch 32" : "steps 3\nbatch 64");
      ADD_FAILURE() << "rank " << group.rank() << " noticed nothing";
    } catch (const std::invalid_argument& error) {
      const std::string text = error.what();
      const char* const expected = group.rank() == 2 ? "rank 0 has batch 64, this rank has batch 32" : "rank 2 differs";
      EXPECT_NE(text.find(expected), std::string::npos) << text;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Groups, AgreementTest, ::testing::Bool(),
                         [](const auto& with_store) { return with_store.param ? "Store" : "Threads"; });

// Every failure is heard of with its reason, that of a rank which has no group yet too.
TEST(World, TellsTheOthersWhyARankHasNoGroup) {
#ifdef LOCKSTEP_HAS_GLOO
  const std::vector<int> statuses = run_process_world(2, [](const Environment& environment) {
    if (environment.rank == 1) ::setenv("GLOO_SOCKET_IFNAME", "no_such_device", 1);
    try {
      World world(environment);
    } catch (const std::exception& error) {
      if (environment.rank == 0 && std::string(error.what()).find("no_such_device") == std::string::npos) throw;
      return;
    }
    throw Error("a group was made");
  });
  EXPECT_EQ(statuses, (std::vector<int>{0, 0}));
#else
  GTEST_SKIP() << "needs Gloo";
#endif
}

}  // namespace
}  // namespace lockstep
