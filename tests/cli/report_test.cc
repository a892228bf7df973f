// The report on a comparison, from files as lockstep compare writes them.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <random>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "tests/cli/command.h"
#include "tests/support/seed.h"
#include "tests/support/text.h"

namespace lockstep {
namespace {

using nlohmann::json;
using testing::contains;
using testing::text_of;

const char* const kStaged = "staged through host memory over PCIe (NCCL SHM), not PCIe peer-to-peer";

// As lockstep compare writes them: "emulated" on CPU ranks, "made_up_h200" from published figures of two H200s.
json comparison_of(const std::string& name) { return read_json("tests/cli/comparisons/" + name + ".json"); }

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
  return text;
}

// As a reader sees it.
std::string plain_html(std::string text) {
  text = std::regex_replace(text, std::regex("<[^>]*>"), "");
  for (const auto& [code, letter] :
       {std::pair{"&lt;", "<"}, {"&gt;", ">"}, {"&quot;", "\""}, {"&#39;", "'"}, {"&amp;", "&"}}) {
    text = replaced(text, code, letter);
  }
  return text;
}
std::string plain_markdown(const std::string& text) { return std::regex_replace(text, std::regex(R"(\\(.))"), "$1"); }

struct Report {
  CommandResult result;
  std::string html, markdown;
};

Report report(const json& comparison) {
  const TemporaryDirectory folder;
  std::ofstream(folder / "comparison.json") << comparison.dump(-1, ' ', false, json::error_handler_t::replace);
  Report made;
  made.result = run_command("report " + folder / "comparison.json" + " --out " + folder / "page.html");
  made.html = text_of(folder / "page.html");
  made.markdown = text_of(folder / "page.md");
  return made;
}

std::vector<std::string> all(const std::string& text, const std::string& pattern) {
  std::vector<std::string> found;
  const std::regex expression(pattern);
  for (std::sregex_iterator match(text.begin(), text.end(), expression), end; match != end; ++match) {
    found.push_back((*match)[1]);
  }
  return found;
}

TEST(Report, TheFirstLineIsTheResult) {
  const Report made = report(comparison_of("made_up_h200"));
  EXPECT_EQ(made.result.code, 0) << made.result.err;
  const std::string line =
      "24 h staged over PCIe become 10 h with NVLink for VGG-16 at 32 images a GPU "
      "(2.39x, 95 % interval 2.36-2.42, proven; of 3 trainings 1.01x to 2.39x)";
  EXPECT_EQ(made.result.out, line + "\n");
  EXPECT_EQ(plain_html(all(made.html, "<h1>(.*)</h1>").at(0)), line);
  EXPECT_EQ(plain_markdown(made.markdown.substr(0, made.markdown.find('\n'))), "# " + line);
  EXPECT_TRUE(contains(made.markdown, kStaged));
}

TEST(Report, TheFiguresAreThoseOfTheComparison) {
  const Report made = report(comparison_of("made_up_h200"));
  const std::string text = plain_markdown(made.markdown);
  EXPECT_TRUE(contains(text, "| NVLink | 10.05 | 9.98-10.12 | 6368 | 0.43 | 76 % | 9.64 | proven |")) << text;
  EXPECT_TRUE(contains(text, "| PCIe, staged | 24.04 | 23.86-24.21 | 2662 | 14.42 | 29 % | 24.06 | proven |"));
  EXPECT_TRUE(contains(text, "| PCIe peer-to-peer, modelled |  |  |  | 4.62 |  | 14.24 | modelled |"));
  EXPECT_TRUE(contains(text, "| all-reduces left out | 9.62 |"));
  EXPECT_TRUE(contains(text, "| 2 | 392 MiB | 4.41 | 5.68 | 4.41 | 21.39 |")) << "a bucket on both links";
  EXPECT_TRUE(contains(text, "| 128 samples a rank | 1.13x | 1.12-1.14 | 1.07x | 1.14x |"));
  EXPECT_TRUE(contains(text, "| 512 MiB | 1651 | 325.2 | 19544 | 27.47 |"));
  EXPECT_TRUE(contains(text, "Copies, host to GPU: 55.4 GB/s"));
  EXPECT_TRUE(
      contains(text, "| NVLink, 0, VGG-16 at 32 images a GPU | 1.07 GB | 1.07 GB | 0.00 GB | 0.00 GB | 1.07 GB |"));
  EXPECT_TRUE(contains(text, "NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=0"));
  EXPECT_TRUE(contains(text,
                       "lockstep compare vgg16 --links nvlink,pcie --ranks 2 --precision bf16 --repeats 2 --steps "
                       "40 --warmup 5 --batch-per-rank 32 "));
  EXPECT_TRUE(contains(text, "not reproduced: not in general: VGG-16 at 32 images a GPU 2.39x, but VGG-16 at 128"));
}

TEST(Report, MarkdownSaysWhatThePageSays) {
  for (const char* name : {"made_up_h200", "emulated"}) {
    const Report made = report(comparison_of(name));
    const std::string text = plain_markdown(made.markdown);
    std::size_t cells = 0;
    for (const char* pattern : {"<td[^>]*>([^<]*)</td>", "<th[^>]*>([^<]*)</th>", "<dd>([^<]*)</dd>",
                                "<p[^>]*>([^<]*)</p>", "aria-label=\"([^\"]*)\""}) {
      for (const std::string& cell : all(made.html.substr(made.html.find("<h1>")), pattern)) {
        EXPECT_TRUE(contains(text, plain_html(cell))) << cell;
        ++cells;
      }
    }
    EXPECT_GT(cells, 200u);
  }
}

TEST(Report, ThePageNeedsNothingElse) {
  const std::string html = report(comparison_of("made_up_h200")).html;
  for (const char* part : {"http", "<script", "src=", "url(", "@import", "@font-face", "javascript"}) {
    EXPECT_FALSE(contains(replaced(html, "http-equiv", ""), part)) << part;
  }
  EXPECT_TRUE(contains(html, "default-src 'none'"));
  EXPECT_TRUE(contains(html, "prefers-color-scheme: dark"));
  EXPECT_EQ(all(html, "(<svg )").size(), all(html, "(<svg [^>]*role=\"img\" aria-label=\"[^\"]{20,}\")").size());
  EXPECT_EQ(all(html, "(<table>)").size(), all(html, "(<thead><tr><th scope=\"col\")").size());
}

TEST(Report, EmulatedIsSaidAndReproducesNothing) {
  const Report made = report(comparison_of("emulated"));
  EXPECT_EQ(made.result.code, 0) << made.result.err;
  EXPECT_TRUE(contains(made.result.out, "24 h staged over emulated PCIe 5 become ")) << made.result.out;
  EXPECT_TRUE(contains(made.result.out, " h with emulated NVLink 4 for MLP at 64 images a rank (")) << made.result.out;
  EXPECT_TRUE(contains(made.result.out, ", emulated in slow motion, factor 1400)")) << made.result.out;
  for (const std::string& text : {made.html, made.markdown}) {
    EXPECT_TRUE(contains(text, "in slow motion by a factor of 1400"));
    EXPECT_FALSE(contains(text, "proven"));
    EXPECT_FALSE(contains(text, "reproduced: "));
  }
  EXPECT_EQ(all(made.html, "<p class=\"verdict\">(emulated: )").size(), 14u);
  EXPECT_TRUE(contains(made.html, "PCIe peer-to-peer, modelled"));
}

TEST(Report, NothingBreaksOutOfThePage) {
  json comparison = comparison_of("made_up_h200");
  const std::string nasty =
      "</td><script>alert(\"x\")</script> & 'one' | `two` [three](four) \x01 *five*\nsix \r- seven \\";
  json& topology = comparison["machine"]["topology"];
  topology["gpus"][0]["name"] = nasty;
  topology["gpus"][1]["bus_id"] = nasty;
  topology["findings"][0] = {{"kind", "warning"}, {"what", nasty}, {"remedy", nasty}};
  comparison["machine"]["processor"] = nasty;
  comparison["machine"]["versions"][nasty] = nasty;
  for (json& figures : comparison["cases"]) {
    figures["model"] = nasty;
    figures["conclusion"] = nasty;
    figures["device_name"] = nasty;
    figures["options"][nasty] = nasty;
    for (json& arm : figures["arms"]) {
      for (const char* key : {"link", "path", "proof", "proof_reason"}) arm[key] = nasty;
      arm["runs"][0]["link"]["variables"][nasty] = nasty;
      arm["runs"][0]["probe"]["gpus"][0]["nvlink_sent_bytes"] = {{"not", nasty}};
    }
    figures["modelled"][0]["source"] = nasty;
  }
  const Report made = report(comparison);
  ASSERT_EQ(made.result.code, 0) << made.result.err;
  EXPECT_FALSE(contains(made.html, "<script"));
  EXPECT_FALSE(contains(made.html, "\x01"));
  comparison["cases"][0]["conclusion"] = "~~~ a fence";
  EXPECT_TRUE(contains(report(comparison).markdown, "\\~\\~\\~ a fence"));
  EXPECT_FALSE(contains(made.markdown, "\r"));
  EXPECT_GT(
      all(made.html, "(&lt;/td&gt;&lt;script&gt;alert\\(&quot;x&quot;\\)&lt;/script&gt; &amp; &#39;one&#39;)").size(),
      15u);
  // Not one cell more in any row of a table.
  std::istringstream lines(std::regex_replace(made.markdown, std::regex(R"(\\.)"), ""));
  std::size_t cells = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] != '|') {
      cells = 0;
      EXPECT_FALSE(line[0] != ' ' && contains(line, "<")) << line;
      continue;
    }
    const auto bars = static_cast<std::size_t>(std::count(line.begin(), line.end(), '|'));
    if (cells == 0) cells = bars;
    EXPECT_EQ(bars, cells) << line;
  }
}

TEST(Report, WhatIsNotThereWasNotMeasured) {
  const json bare = {{"arms", {{{"link", "nvlink"}}, {{"link", "pcie"}}}}, {"speedup", {{"value", 1.25}}}};
  const Report made = report(bare);
  EXPECT_EQ(made.result.code, 0) << made.result.err;
  EXPECT_EQ(made.result.out,
            "24 h over PCIe stay about 19.2 h with NVLink for a training at 0 samples a rank (1.25x, 95 % interval not "
            "measured, link not proven)\n");
  EXPECT_TRUE(contains(made.markdown, "| NVLink | not measured | not measured | not measured |"));
}

TEST(Report, DoubtsComeFirst) {
  json comparison = comparison_of("made_up_h200")["cases"][0];
  comparison["speedup"] = {{"value", 1.01}, {"low", 0.98}, {"high", 1.04}};
  comparison["arms"][0]["proof"] = "unproven";
  comparison["arms"][0]["proof_reason"] = "another process was on GPU 1";
  const Report made = report(comparison);
  EXPECT_TRUE(contains(made.result.out, "24 h staged over PCIe stay about 23.8 h with NVLink")) << made.result.out;
  EXPECT_TRUE(contains(made.result.out, ", unproven)")) << made.result.out;
  EXPECT_LT(made.markdown.find("NVLink is unproven: another process was on GPU 1"), made.markdown.find("## "));
  EXPECT_FALSE(contains(made.html, "reproduced: for"));
  comparison["arms"][1]["link"] = "nvlink";
  EXPECT_TRUE(contains(report(comparison).result.out, "24 h with NVLink stay about 23.8 h with NVLink again for"));
}

TEST(Report, AnArmIsNoBetterProvenThanItsRuns) {
  const json sound = comparison_of("made_up_h200")["cases"][0];
  const auto headline = [&](auto&& change) {
    json comparison = sound;
    change(comparison["arms"][0]);
    return report(comparison).result.out;
  };
  EXPECT_TRUE(contains(headline([](json&) {}), ", proven)"));
  EXPECT_FALSE(contains(headline([](json& arm) { arm["runs"][1]["probe"]["verdict"] = "unproven"; }), ", proven)"));
  EXPECT_FALSE(
      contains(headline([](json& arm) { arm["runs"][1]["training"]["verdict"] = "contradicted"; }), ", proven)"));
  EXPECT_FALSE(contains(headline([](json& arm) { arm["runs"] = json::array(); }), ", proven)"));
}

TEST(Report, AnArmIsNoBetterProvenThanWhatItsGpusCounted) {
  const json sound = comparison_of("made_up_h200")["cases"][0];
  const auto with = [&](auto&& change) {
    json comparison = sound;
    change(comparison);
    return comparison;
  };
  const auto in_each_run = [](json& arm, auto&& change) {
    for (json& run : arm["runs"]) {
      for (const char* part : {"probe", "training"}) change(run[part]);
    }
  };
  const struct {
    json comparison;
    const char* part;
  } refuted[] = {
      {with([](json& it) { it["repeats"] = 500; }),
       "NVLink is unproven: the file calls it proven, but holds what "
       "refutes it: it has 2 of 500 runs"},
      {with([](json& it) { it["arms"][0]["runs"].erase(1); }), "it has 1 of 2 runs"},
      {with([&](json& it) { in_each_run(it["arms"][0], [](json& proof) { proof["mode"] = "pcie"; }); }),
       "run 1, probe: it was measured in link mode pcie"},
      {with([](json& it) { it["arms"][0]["link"] = "fast"; }), "it was measured in link mode nvlink"},
      {with([](json& it) { it["arms"][1]["runs"][1]["training"]["mode"] = "net"; }),
       "PCIe, staged is unproven: the file calls it proven, but holds what refutes it: run 2, training: it was "
       "measured in link mode net"},
      {with([&](json& it) { in_each_run(it["arms"][0], [](json& proof) { proof["over_nvlink"] = false; }); }),
       "run 1, probe: it says that the bytes did not take NVLink, but rank 0: NVLink carried 1.07 GB out"},
      {with([](json& it) { it["arms"][1]["runs"][1]["probe"]["over_nvlink"] = true; }),
       "run 2, probe: it says that the bytes took NVLink, but rank 0: NVLink carried 0.00 GB out"},
      {with([](json& it) { it["arms"][0]["runs"][1]["training"]["gpus"].erase(1); }),
       "run 2, training: it has the bytes of 1 GPUs for 2 ranks"},
      {with([](json& it) { it["ranks"] = 8; }), "run 1, probe: it has the bytes of 2 GPUs for 8 ranks"},
      {with([](json& it) { it["arms"][0]["runs"][0]["probe"]["gpus"][1]["nvlink_sent_bytes"] = 0; }),
       "run 1, probe: rank 1: NVLink carried 0.00 GB out and 1.07 GB in of 1.07 GB"},
      {with([](json& it) { it["arms"][0]["runs"][0]["probe"]["gpus"][1]["nvlink_sent_bytes"] = nullptr; }),
       "run 1, probe: rank 1: NVLink counters: not counted"},
      {with([](json& it) { it["arms"][1]["runs"][0]["probe"]["gpus"][0]["nvlink_sent_bytes"] = 1e9; }),
       "run 1, probe: rank 0: NVLink carried 1.00 GB out"},
      {with([](json& it) { it["arms"][1]["runs"][0]["probe"]["expected_bytes"] = 0; }),
       "run 1, probe: it does not say how many bytes"},
      {with(
           [](json& it) { it["arms"][1]["runs"][1]["training"]["gpus"][0]["nvlink_received_bytes"] = 40'000'000'000; }),
       "run 2, training: over all GPUs, NVLink carried 0.00 GB out and 40.00 GB in"},
      {with([](json& it) { it["arms"][0]["runs"][1]["training"]["gpus"][0]["disturbance"] = "process 7 is on it"; }),
       "run 2, training: rank 0: process 7 is on it"},
  };
  for (const auto& [comparison, part] : refuted) {
    const Report made = report(comparison);
    EXPECT_TRUE(contains(made.result.out, ", unproven)")) << part << made.result.out << made.result.err;
    const std::string text = plain_markdown(made.markdown);
    EXPECT_LT(text.find(part), text.find("## ")) << part << "\n" << text.substr(0, 2000);
    EXPECT_FALSE(contains(made.html, "reproduced: for")) << part;
  }
  // What compare writes where PCIe cannot be read, and where NCCL_PROTO sends flags.
  const json readable = with([&](json& it) {
    in_each_run(it["arms"][0], [](json& proof) {
      for (json& gpu : proof["gpus"]) {
        gpu["pcie_sent_bytes"] = gpu["pcie_received_bytes"] = nullptr;
        for (const char* way : {"nvlink_sent_bytes", "nvlink_received_bytes"}) gpu[way] = 2 * gpu[way].get<double>();
      }
    });
    in_each_run(it["arms"][1], [](json& proof) {
      for (json& gpu : proof["gpus"]) gpu["pcie_sent_bytes"] = gpu["pcie_received_bytes"] = {{"not", "permitted"}};
    });
  });
  EXPECT_TRUE(contains(report(readable).result.out, ", proven)")) << report(readable).markdown.substr(0, 1000);
}

TEST(Report, WhatWasDisturbedIsSaidFirst) {
  json comparison = comparison_of("emulated");
  json& one = comparison.contains("cases") ? comparison["cases"][0] : comparison;
  for (json& arm : one["arms"]) {
    for (json& run : arm["runs"]) run["late"] = 0;
  }
  EXPECT_FALSE(contains(report(comparison).markdown, "disturbed"));
  one["arms"][1]["runs"][0]["late"] = 1'000'000;
  const std::string text = plain_markdown(report(comparison).markdown);
  EXPECT_LT(text.find("was disturbed: 1000000 collectives"), text.find("## ")) << text.substr(0, 2000);
}

TEST(Report, OneSignOfEmulationIsEnough) {
  json comparison = comparison_of("emulated");
  json& one = comparison.contains("cases") ? comparison["cases"][0] : comparison;
  comparison.erase("emulated");
  one.erase("emulated");
  EXPECT_TRUE(contains(report(comparison).markdown, "mulated"));
  EXPECT_TRUE(contains(report(comparison).markdown, "None: no emulated link carries anything"));
}

TEST(Report, DoubtsAreThoseOfEveryCase) {
  json comparison = comparison_of("made_up_h200");
  json& last = comparison["cases"].back()["arms"][1];
  last["proof"] = "contradicted";
  last["proof_reason"] = "NVLink carried it all";
  const std::string text = plain_markdown(report(comparison).markdown);
  EXPECT_LT(text.find("VGG-16 at 512 images a GPU: PCIe, staged is contradicted: NVLink carried it all"),
            text.find("## "));
  EXPECT_GT(text.find("NVLink carried it all", text.find("## Proof")), text.find("## Proof"));
  EXPECT_TRUE(contains(text, "| PCIe, staged, 1, VGG-16 at 128 images a GPU | 0.00 GB"));
}

TEST(Report, ItIsRepeatedWithAllThatDecidesTheFigures) {
  json comparison = comparison_of("emulated");
  comparison["deterministic"] = true;
  comparison["threads"] = 3;
  const std::string text = report(comparison).markdown;
  EXPECT_TRUE(contains(text, " --deterministic --threads 3 ")) << text;
}

TEST(Report, WhatIsRepeatedIsOneCommandToAShell) {
  json comparison = comparison_of("emulated");
  const std::vector<std::string> nasty{"on; touch X #", "$(touch X)", "it's `a` \"b\"", "", "*", "a\ntouch X", "~"};
  json options;
  for (const std::string& text : nasty) options["x" + std::to_string(options.size())] = text;
  options["y; touch X"] = true;
  comparison["options"] = options;
  comparison["model"] = "mlp && touch X";
  comparison["precision"] = "f32|cat";
  const Report made = report(comparison);
  const TemporaryDirectory folder;
  // Each word that it gets on a line of its own; any other command would be the shell's to find.
  std::ofstream(folder / "it.sh") << "PATH=/nowhere\nlockstep() { printf '<%s>\\n' \"$@\"; }\n"
                                  << all(made.markdown, "\n    (lockstep compare .*)\n").at(0) << "\n";
  EXPECT_TRUE(contains(plain_html(made.html), all(made.markdown, "\n    (lockstep compare .*)\n").at(0)));
  ASSERT_EQ(std::system(("sh " + folder / "it.sh" + " > " + folder / "words 2>&1").c_str()), 0);
  const std::string words = text_of(folder / "words");
  EXPECT_TRUE(contains(words, "<compare>\n<mlp && touch X>\n<--emulate>\n<nvlink4,pcie5>\n")) << words;
  EXPECT_TRUE(contains(words, "<--precision>\n<f32|cat>\n")) << words;
  std::string expected = "<--warmup>\n<2>\n";
  for (std::size_t i = 0; i < nasty.size(); ++i) {
    expected += "<--x" + std::to_string(i) + ">\n<" + replaced(nasty[i], "\n", " ") + ">\n";
  }
  EXPECT_TRUE(contains(words, expected + "<--y; touch X>\n")) << words;
}

TEST(Report, FilesThatAreNoComparisonAreRefusedInALine) {
  const TemporaryDirectory folder;
  const auto refused = [&](const std::string& text, const std::vector<std::string>& parts) {
    std::ofstream(folder / "it.json") << text;
    const CommandResult result = run_command("report " + folder / "it.json" + " --out " + folder / "page.html");
    EXPECT_EQ(result.code, 2) << text;
    expect_one_line(result.err, parts);
  };
  refused("", {"it.json", "expected a JSON object"});
  refused("{\"arms\": [", {"it.json", "expected a JSON object", "the end of the file"});
  refused("{\"arms\": [}]}", {"it.json", "expected a JSON object", "something else"});
  refused("{\"arms\": [1]}5", {"it.json", "expected a JSON object", "something else"});
  refused("{\"arms\": 1e999}", {"it.json", "expected a JSON object", "something else"});
  refused("[1, 2]", {"it.json", "expected a JSON object"});
  refused("{\"arms\": 5}", {"it.json", "found no comparison of two links in it"});
  refused("{\"cases\": [{\"arms\": []}, 7]}", {"it.json", "found no comparison of two links in it"});
  refused("{\"arms\": [{}, {}], \"speedup\": {\"value\": 0}}", {"it.json", "found no comparison"});
  const CommandResult name = run_command("report tests/cli/comparisons/emulated.json --out " + folder / "page.pdf");
  EXPECT_EQ(name.code, 2);
  expect_one_line(name.err, {"--out", "expected a name that ends in .html", "page.pdf"});
  const CommandResult place =
      run_command("report tests/cli/comparisons/emulated.json --out " + folder / "no/page.html");
  EXPECT_EQ(place.code, 2);
  expect_one_line(place.err, {"--out", "no such directory"});
  expect_one_line(run_command("compare mlp --emulate nvlink4,pcie5 --report " + folder / "no/page.html").err,
                  {"--report", "no such directory"});
}

// Every value of a JSON, as a list of places in it.
void collect(json& value, std::vector<json*>& places) {
  places.push_back(&value);
  if (value.is_structured()) {
    for (json& part : value) collect(part, places);
  }
}

TEST(Report, NoDamageToAFileCrashesIt) {
  std::mt19937_64 random(testing::test_seed());
  const std::vector<json> others{
      nullptr, true, -1, 0, 1e300, -5.5, "text", "", json::array(), json::object(), json::array({1, "a"})};
  for (int i = 0; i < 60; ++i) {
    json comparison = comparison_of(i % 2 == 0 ? "made_up_h200" : "emulated");
    for (int damage = 0; damage < 1 + i % 5; ++damage) {
      std::vector<json*> places;
      collect(comparison, places);
      *places[random() % places.size()] = others[random() % others.size()];
    }
    const Report made = report(comparison);
    EXPECT_TRUE(made.result.code == 0 || made.result.code == 2) << made.result.code << made.result.err;
    EXPECT_FALSE(contains(made.html, "nan")) << made.result.out;
  }
}

TEST(Report, NumbersThatCannotBeAreRefusedByName) {
  const struct {
    const char* place;
    const char* value;
    const char* part;
  } cases[] = {
      {"/arms/0/bandwidth/3/bytes", "9223372036854775807", "bytes: expected a whole number from 0 to"},
      {"/arms/0/bandwidth/3/bytes", "2.5", "bytes: expected a whole number"},
      {"/ranks", "4294967298", "ranks: expected a whole number"},
      {"/batch_per_rank", "18446744073709551615", "batch_per_rank: expected a whole number"},
      {"/speedup/low", "5", "value: expected it between low and high"},
      {"/speedup/value", "0.5", "value: expected it between low and high"},
      {"/arms/0/step_ms/median", "-3.0", "median: expected a number from 0"},
      {"/arms/0/step_ms/median", "1e99", "median: expected a number from 0 to 1e+18"},
      {"/arms/0/exposed_ms", "-1e99", "exposed_ms: expected a number from -1e+18 to 1e+18"},
      {"/arms/0/hidden_share", "1e300", "hidden_share: expected a number from 0 to 1"},
      {"/arms/0/timeline/buckets/0/bytes", "-1", "bytes: expected a whole number"},
      {"/emulated", "\"yes\"", "emulated: expected true or false"},
      {"/model", "[1]", "model: expected a text"},
  };
  const json sound = json::parse(text_of("tests/cli/comparisons/emulated.json"));
  ASSERT_EQ(report(sound).result.code, 0);
  for (const auto& wrong : cases) {
    json comparison = sound;
    ASSERT_TRUE(comparison.contains(json::json_pointer(wrong.place))) << wrong.place;
    comparison[json::json_pointer(wrong.place)] = json::parse(wrong.value);
    const CommandResult result = report(comparison).result;
    EXPECT_EQ(result.code, 2) << wrong.place << ": " << result.out;
    expect_one_line(result.err, {"comparison.json", wrong.part});
  }
}

TEST(Report, NamesMoveNoCursor) {
  json comparison = json::parse(text_of("tests/cli/comparisons/emulated.json"));
  comparison["model"] = "red \x1b[31m \xc2\x9b[2J";
  const CommandResult result = report(comparison).result;
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_TRUE(contains(result.out, "for red  [31m   [2J at")) << result.out;
}

TEST(Report, CompareWritesAllThree) {
  const TemporaryDirectory folder;
  const CommandResult result = run_command(
      "compare mlp --emulate nvlink4,pcie3 --batch-per-rank 16 --repeats 2 --steps 2 --warmup 1 --slow-motion 100 "
      "--report " +
      folder / "page.html");
  ASSERT_EQ(result.code, 0) << result.err;
  const CommandResult again = run_command("report " + folder / "page.json" + " --out " + folder / "again.html");
  EXPECT_TRUE(contains(again.out, "emulated in slow motion, factor 100)")) << again.out << again.err;
  EXPECT_EQ(text_of(folder / "again.html"), text_of(folder / "page.html"));
  const std::string markdown = text_of(folder / "page.md");
  EXPECT_EQ(text_of(folder / "again.md"), markdown);
  EXPECT_TRUE(contains(markdown, "| NVLink 4, emulated | ")) << markdown;
  EXPECT_FALSE(contains(markdown, "| not measured"))
      << "the reader looks for other names than compare writes: " << markdown;
}

// The verdicts by the claims' names, and what else the command printed.
std::map<std::string, json> claims_of(const json& comparison) {
  const TemporaryDirectory folder;
  std::ofstream(folder / "comparison.json") << comparison;
  const CommandResult result =
      run_command("claims --from " + folder / "comparison.json" + " --json " + folder / "claims.json");
  EXPECT_EQ(result.code, 0) << result.err;
  std::map<std::string, json> claims;
  const json written = json::parse(text_of(folder / "claims.json"));
  for (const json& claim : written["claims"]) claims[claim["name"]] = claim;
  return claims;
}

TEST(Claims, OnlyNvlinkAgainstStagingAnswersThem) {
  json comparison = comparison_of("made_up_h200");
  comparison["cases"] = json::array({comparison["cases"][0]});
  EXPECT_EQ(claims_of(comparison)["training-2-5"]["verdict"], "reproduced");
  json& arms = comparison["cases"][0]["arms"];
  json turned = comparison;
  std::swap(turned["cases"][0]["arms"][0], turned["cases"][0]["arms"][1]);
  turned["cases"][0]["speedup"] = {{"value", 1 / 2.39}, {"low", 1 / 2.42}, {"high", 1 / 2.36}};
  EXPECT_EQ(claims_of(turned)["training-2-5"]["verdict"], "reproduced") << "whichever is named first";

  arms[1]["link"] = "net";
  arms[1]["path"] = "over the network, also within this host";
  auto answers = claims_of(comparison);
  EXPECT_EQ(answers["training-2-5"]["verdict"], "not measurable here");
  EXPECT_EQ(answers["training-2-5"]["reason"], "no training was compared over NVLink and staged");
  EXPECT_EQ(answers["larger-models"]["verdict"], "not measurable here");
  // NVLink against itself, by another name.
  arms[1] = arms[0];
  arms[1]["link"] = "auto";
  for (json& run : arms[1]["runs"]) run["probe"]["mode"] = run["training"]["mode"] = "auto";
  comparison["cases"][0]["speedup"] = {{"value", 1.0}, {"low", 0.99}, {"high", 1.01}};
  answers = claims_of(comparison);
  EXPECT_EQ(answers["training-2-5"]["verdict"], "not measurable here");
  EXPECT_EQ(answers["driver-alone"]["verdict"], "reproduced") << "in mode auto nothing is set";
  EXPECT_EQ(answers["frameworks-configured"]["verdict"], "not reproduced");
}

TEST(Claims, SweepsCountByTheirOwnProof) {
  json comparison = comparison_of("made_up_h200");
  for (json& figures : comparison["cases"]) figures["arms"][0]["sweep"]["probe"]["verdict"] = "unproven";
  EXPECT_EQ(claims_of(comparison)["latency-tenth"]["verdict"], "not measurable here");
  comparison = comparison_of("made_up_h200");
  for (json& figures : comparison["cases"]) {
    figures["arms"][0]["sweep"]["probe"]["gpus"][1]["nvlink_received_bytes"] = 0;
  }
  EXPECT_EQ(claims_of(comparison)["latency-tenth"]["verdict"], "not measurable here");
}

TEST(Claims, DoubtsAboutAComparisonComeFirst) {
  json comparison = comparison_of("made_up_h200")["cases"][0];
  comparison["arms"][0]["runs"][0]["probe"]["over_nvlink"] = false;
  const TemporaryDirectory folder;
  std::ofstream(folder / "comparison.json") << comparison;
  const CommandResult result = run_command("claims --from " + folder / "comparison.json");
  EXPECT_EQ(result.out.rfind("NVLink is unproven: the file calls it proven, but holds what refutes it: run 1, ", 0), 0u)
      << result.out;
  EXPECT_EQ(claims_of(comparison)["training-2-5"]["reason"],
            "which link carried the bytes was not proven for VGG-16 at 32 images a GPU");
}

TEST(Claims, AComparisonAnswersThem) {
  auto claims = claims_of(comparison_of("made_up_h200"));
  EXPECT_EQ(claims["latency-tenth"]["verdict"], "not reproduced");
  EXPECT_EQ(claims["latency-tenth"]["measured"], "an all-reduce of 1024 bytes takes 14 us over NVLink, 21.5 us staged");
  EXPECT_EQ(claims["training-2-5"]["verdict"], "not reproduced");
  EXPECT_EQ(claims["driver-alone"]["verdict"], "not measurable here") << "the nvlink arm sets NCCL_P2P_DISABLE";
  EXPECT_EQ(claims["joins-cpus"]["verdict"], "not measurable here");
  EXPECT_EQ(claims["larger-models"]["verdict"], "not reproduced");
  EXPECT_EQ(claims["graphics"]["verdict"], "not measurable here");

  const CommandResult emulated = run_command("claims --from tests/cli/comparisons/emulated.json");
  EXPECT_EQ(emulated.code, 0) << emulated.err;
  EXPECT_FALSE(contains(emulated.out, "reproduced: "));
  EXPECT_TRUE(contains(emulated.out, "in slow motion by a factor of 1400")) << emulated.out;
  const CommandResult broken = run_command("claims --from docs/claims.md");
  EXPECT_EQ(broken.code, 2);
  expect_one_line(broken.err, {"--from docs/claims.md", "expected a JSON object"});
}

}  // namespace
}  // namespace lockstep
