// The report in a real browser.
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <regex>
#include <string>

#include "tests/cli/command.h"

namespace lockstep {
namespace {

using nlohmann::json;

struct Look {
  json found;           // what look_at_page.html says
  std::string console;  // messages of the page
};

// At 400 and 1400 pixels.
Look look_at(const std::string& page, bool dark, const TemporaryDirectory& folder) {
  const std::string script = std::filesystem::absolute("tests/cli/look_at_page.html").string();
  const std::string command =
      "timeout 60 chromium --headless=new --no-sandbox --disable-gpu --disable-background-networking --no-first-run "
      "--user-data-dir=" +
      folder / "profile" +
      " --allow-file-access-from-files --enable-logging=stderr "
      "--window-size=1500,1000 --virtual-time-budget=10000 " +
      std::string(dark ? "--blink-settings=preferredColorScheme=0 " : "") + "--dump-dom 'file://" + script +
      "?page=file://" + page + "&widths=400,1400' 2>" + folder / "log" + " </dev/null";
  std::string text;
  if (FILE* stream = ::popen(command.c_str(), "r"); stream != nullptr) {
    char buffer[4096];
    for (std::size_t read = 0; (read = std::fread(buffer, 1, sizeof buffer, stream)) > 0;) text.append(buffer, read);
    ::pclose(stream);
  }
  Look look;
  std::smatch match;
  if (std::regex_search(text, match, std::regex("<pre id=\"found\">([^<]*)</pre>"))) {
    std::string found = match[1];
    for (const auto& [code, letter] : {std::pair{"&lt;", "<"}, {"&gt;", ">"}, {"&amp;", "&"}}) {
      found = std::regex_replace(found, std::regex(code), letter);
    }
    look.found = json::parse(found);
  }
  std::ifstream log(folder / "log");
  for (std::string line; std::getline(log, line);) {
    if (line.find(":CONSOLE") != std::string::npos) look.console += line + "\n";
    if (look.found.is_null()) look.console += line + "\n";
  }
  return look;
}

class Browser : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::system("command -v chromium >/dev/null 2>&1") != 0) {
      GTEST_SKIP() << "no chromium here: apt-get install chromium";
    }
  }
  TemporaryDirectory folder_;
};

TEST_F(Browser, ReportsAreWholeAtBothWidthsAndInBothColourSchemes) {
  for (const char* name : {"made_up_h200", "emulated"}) {
    const std::string page = folder_ / name + std::string(".html");
    const CommandResult result =
        run_command(std::string("report tests/cli/comparisons/") + name + ".json --out " + page);
    ASSERT_EQ(result.code, 0) << result.err;
    for (const bool dark : {false, true}) {
      const Look look = look_at(page, dark, folder_);
      ASSERT_FALSE(look.found.is_null()) << look.console;
      EXPECT_EQ(look.found["problems"], json::array()) << name << look.found["problems"].dump(1);
      EXPECT_EQ(look.console, "");
      EXPECT_EQ(look.found["background"], dark ? "dark" : "light");
      EXPECT_GT(look.found["texts"], 200);
      EXPECT_GE(look.found["drawings"], 6);
    }
  }
}

TEST_F(Browser, LongNamesAreNotCutOff) {
  json comparison = read_json("tests/cli/comparisons/made_up_h200.json");
  const std::string name =
      "An-accelerator-whose-name-was-written-without-one-single-space-and-<b>-with-markup-" + std::string(80, 'W');
  for (json& gpu : comparison["machine"]["topology"]["gpus"]) gpu["name"] = name;
  comparison["machine"]["processor"] = name;
  for (json& figures : comparison["cases"]) {
    figures["device_name"] = name;
    figures["conclusion"] = name;
    for (json& arm : figures["arms"]) arm["proof_reason"] = name;
  }
  std::ofstream(folder_ / "long.json") << comparison;
  ASSERT_EQ(run_command("report " + folder_ / "long.json" + " --out " + folder_ / "long.html").code, 0);
  const Look look = look_at(folder_ / "long.html", false, folder_);
  ASSERT_FALSE(look.found.is_null()) << look.console;
  EXPECT_EQ(look.found["problems"], json::array()) << look.found["problems"].dump(1);
}

TEST_F(Browser, TheLookSeesWhatItLooksFor) {
  std::ofstream(folder_ / "bad.html")
      << "<!DOCTYPE html><title>Bad</title><body style='background: white'><script>console.error('oh')</script>"
         "<img src='http://127.0.0.1:9/x.png'><p style='width: 2000px'>wide</p><p style='color: #bbb'>pale</p>"
         "<p style='width: 90px; overflow: hidden; white-space: nowrap'>more than there is room for</p>"
         "<svg viewBox='0 0 100 20'><text x='90' y='10'>outside</text><text x='90' y='11'>above</text></svg>";
  const Look look = look_at(folder_ / "bad.html", false, folder_);
  ASSERT_FALSE(look.found.is_null()) << look.console;
  const std::string problems = look.found["problems"].dump(1);
  for (const char* part : {"400 px: requests http://127.0.0.1:9/x.png", "1400 px: requests", "400 px: is 2",
                           "1400 px: is 2", "reaches out of the page: P", "is hard to read: P", "is cut off: P",
                           "without an alternative text", "cuts off text", "covers text"}) {
    EXPECT_NE(problems.find(part), std::string::npos) << part << problems;
  }
  EXPECT_NE(look.console.find("oh"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
