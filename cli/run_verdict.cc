#include "cli/run_verdict.h"

#include <algorithm>
#include <string>

#include "cli/json_value.h"

namespace lockstep::cli {
namespace {

int severity(const Json& proof) {
  const auto verdict = value_of<std::string>(proof, "verdict");
  return verdict == "contradicted" ? 2 : verdict == "proven" ? 0 : 1;
}

const Json& proof_of(const Json& run) {
  const Json& probe = entry_of(run, "probe");
  return severity(probe) == 0 ? entry_of(run, "training") : probe;
}

}  // namespace

const Json& worst_proof(const std::vector<Json>& runs) {
  return proof_of(*std::max_element(runs.begin(), runs.end(), [](const Json& a, const Json& b) {
    return severity(proof_of(a)) < severity(proof_of(b));
  }));
}

}  // namespace lockstep::cli
