// What is said of NVLink, held against what was measured.
#include <fmt/format.h>

#include "cli/report/sections.h"

namespace lockstep::cli {
namespace {

Tone tone_of(ClaimVerdict verdict) {
  return verdict == ClaimVerdict::reproduced       ? Tone::good
         : verdict == ClaimVerdict::not_reproduced ? Tone::bad
                                                   : Tone::neutral;
}

}  // namespace

void add_claims(Blocks& blocks, const CompareFile& file) {
  blocks.push_back(Heading{"What is said of NVLink"});
  blocks.push_back(Paragraph{"Claims that introductions repeat, what is right, and what this machine showed."});
  Cards cards;
  for (const ClaimAnswer& answer : answer_claims(evidence_of(file))) {
    Card card{.chinese = std::string(answer.claim->chinese),
              .english = std::string(answer.claim->english),
              .verdict = fmt::format("{}: {}", claim_verdict_name(answer.verdict), answer.reason),
              .tone = tone_of(answer.verdict)};
    card.lines.emplace_back("Right", answer.claim->right);
    if (!answer.measured.empty()) card.lines.emplace_back("Here", answer.measured);
    card.lines.emplace_back("Source", answer.claim->source);
    cards.cards.push_back(std::move(card));
  }
  blocks.push_back(std::move(cards));
}

}  // namespace lockstep::cli
