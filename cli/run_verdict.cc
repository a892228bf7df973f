#include "cli/run_verdict.h"

#include <algorithm>
#include <string>

#include "cli/json_value.h"

namespace lockstep::cli {
namespace {

const Json& proof_of(const Json& run) {
  const Json& probe = entry_of(run, "probe");
  return verdict_of(probe) == Verdict::proven ? entry_of(run, "training") : probe;
}

}  // namespace

Verdict verdict_of(const Json& proof) {
  return parse_verdict(value_of<std::string>(proof, "verdict")).value_or(Verdict::unproven);
}

const Json& worst_proof(const std::vector<Json>& runs) {
  return proof_of(*std::max_element(runs.begin(), runs.end(), [](const Json& a, const Json& b) {
    return verdict_of(proof_of(a)) < verdict_of(proof_of(b));
  }));
}

}  // namespace lockstep::cli
