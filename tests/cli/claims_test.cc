// The claims about NVLink as a user sees them.
#include <gtest/gtest.h>

#include <string>

#include "tests/cli/command.h"
#include "tests/support/fake_nvml.h"
#include "tests/support/text.h"

namespace lockstep {
namespace {

using nlohmann::json;

TEST(Claims, ThePageInDocsIsWhatTheCommandWrites) {
  const CommandResult result = run_command("claims --page");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(testing::text_of("docs/claims.md"), result.out)
      << "write it again: build/bin/lockstep claims --page > docs/claims.md";
}

TEST(Claims, ThePageTakesNothingElse) {
  for (const char* other : {"--from docs/claims.md", "--json claims.json"}) {
    const CommandResult result = run_command(std::string("claims --page ") + other);
    EXPECT_EQ(result.code, 2) << other;
    EXPECT_EQ(result.out, "");
    expect_one_line(result.err, {"--page", "excludes", std::string(other).substr(0, 6)});
  }
}

TEST(Claims, TheMachineAnswersForItself) {
  const testing::FakeNvml machine(testing::fake_machine({testing::fake_h200(0), testing::fake_h200(1)}));
  const TemporaryDirectory folder;
  const CommandResult result = run_gpu_command("claims --json " + folder / "claims.json");
  EXPECT_EQ(result.code, 0) << result.err;
  const json claims = json::parse(testing::text_of(folder / "claims.json"))["claims"];
  ASSERT_EQ(claims.size(), 14u);
  for (const json& claim : claims) {
    EXPECT_NE(result.out.find(claim["chinese"]), std::string::npos);
    EXPECT_NE(result.out.find(claim["verdict"].get<std::string>() + ": " + claim["reason"].get<std::string>()),
              std::string::npos);
  }
  EXPECT_EQ(claims[2]["name"], "lanes-64");
  EXPECT_EQ(claims[2]["verdict"], "not reproduced");
  EXPECT_EQ(claims[4]["name"], "training-2-5");
  EXPECT_EQ(claims[4]["verdict"], "not measurable here");
}

}  // namespace
}  // namespace lockstep
