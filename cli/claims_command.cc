#include "cli/claims_command.h"

#include <fmt/format.h>

#include <memory>
#include <string>

#include "cli/arguments.h"
#include "cli/claims_text.h"
#include "cli/json_file.h"
#include "cli/output_files.h"
#include "cli/report/compare_file.h"
#include "cli/report/wording.h"
#include "framework/interconnect/claims.h"

namespace lockstep::cli {
namespace {

struct ClaimsArguments {
  std::string from;
  bool page = false;
  std::string json;
};

}  // namespace

std::function<int(char** argv)> add_claims_command(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("claims", "What introductions to NVLink repeat, what is right, and what this machine shows");
  auto arguments = std::make_shared<ClaimsArguments>();
  command->add_option("--from", arguments->from, "answer by what lockstep compare --json wrote to this file")
      ->check(whole_value<std::string>);
  command->add_flag("--page", arguments->page, "write the page docs/claims.md, which says nothing of this machine")
      ->excludes("--from");
  command->add_option("--json", arguments->json, "write everything to this file")
      ->check(whole_value<std::string>)
      ->excludes("--page");

  return [arguments](char** /*argv*/) {
    check_outputs({{"--json", arguments->json}}, {arguments->from});
    if (arguments->page) {
      fmt::print("{}", claims_page());
      return 0;
    }
    ClaimEvidence evidence;
    std::vector<std::string> doubts;
    if (arguments->from.empty()) {
      evidence.topology = read_topology();
    } else {
      const CompareFile file = compare_file_of(read_json_file("--from", arguments->from), "--from " + arguments->from);
      evidence = evidence_of(file);
      doubts = doubts_of(file);
    }
    const std::vector<ClaimAnswer> answers = answer_claims(evidence);
    for (const std::string& doubt : doubts) fmt::print("{}\n\n", doubt);
    fmt::print("{}", claims_text(answers));
    if (!arguments->json.empty())
      write_json_file("--json", arguments->json,
                      {{"emulated", evidence.emulated},
                       {"slow_motion", evidence.slow_motion},
                       {"doubts", doubts},
                       {"claims", claims_json(answers)}});
    return 0;
  };
}

}  // namespace lockstep::cli
