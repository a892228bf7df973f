#include "cli/claims_text.h"

#include <fmt/format.h>

namespace lockstep::cli {

std::string claims_page() {
  std::string page =
      "# What is said of NVLink\n\n"
      "Introductions to NVLink repeat the same claims. Here is each as such texts put it, what is right, and what a\n"
      "machine must show for it to count as reproduced. `lockstep claims` says what the machine in front of you "
      "shows,\n"
      "and a report of `lockstep compare` has the same table with what was measured. This page is written by\n"
      "`lockstep claims --page`.\n\n"
      "GB/s are 1e9 bytes a second. Rates of links are in one direction where nothing else is said.\n\n"
      "| Claim | What is right | To be reproduced |\n"
      "| --- | --- | --- |\n";
  for (const Claim& claim : claims()) {
    page += fmt::format("| {}<br>{} | {} *({})* | {} |\n", claim.chinese, claim.english, claim.right, claim.source,
                        claim.test);
  }
  return page;
}

std::string claims_text(std::span<const ClaimAnswer> answers) {
  std::string text;
  for (const ClaimAnswer& answer : answers) {
    text += fmt::format("{}\n{}\n", answer.claim->chinese, answer.claim->english);
    text += fmt::format("  right     {}\n  source    {}\n", answer.claim->right, answer.claim->source);
    if (!answer.measured.empty()) text += fmt::format("  here      {}\n", answer.measured);
    text += fmt::format("  verdict   {}: {}\n\n", claim_verdict_name(answer.verdict), answer.reason);
  }
  return text;
}

nlohmann::ordered_json claims_json(std::span<const ClaimAnswer> answers) {
  auto json = nlohmann::ordered_json::array();
  for (const ClaimAnswer& answer : answers) {
    json.push_back({{"name", answer.claim->name},
                    {"chinese", answer.claim->chinese},
                    {"english", answer.claim->english},
                    {"right", answer.claim->right},
                    {"source", answer.claim->source},
                    {"test", answer.claim->test},
                    {"measured", answer.measured},
                    {"verdict", claim_verdict_name(answer.verdict)},
                    {"reason", answer.reason}});
  }
  return json;
}

}  // namespace lockstep::cli
