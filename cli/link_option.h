// --link and --require-proof: the switch before ranks start, and the proof before the first step.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "framework/distributed/world.h"
#include "framework/interconnect/link_counters.h"
#include "framework/interconnect/link_policy.h"
#include "framework/interconnect/link_proof.h"

namespace lockstep::cli {

struct LinkArguments {
  std::string link = "auto";
  bool require_proof = false;
};

template <class Visitor>
void visit_fields(LinkArguments& arguments, Visitor&& visit) {
  visit("--link", arguments.link, "auto, nvlink, pcie (NVLink forced off) or net");
  visit("--require-proof", arguments.require_proof, "end with exit code 3 where the link cannot be proven");
}

// Sets NCCL's variables in this process, and so for the ranks that it starts; in a rank NCCL's log is kept from here
// on. Call it first: before there are ranks, threads or a communicator.
LinkPolicy switch_link(const LinkArguments& arguments);
// Whether the mode and its verdict are worth a line: not where CPU ranks run in mode auto.
bool says_link(const LinkArguments& arguments);
// The settings of the user that the mode keeps, one a line; for the process that starts the ranks, or rank 0.
void print_kept_settings(const LinkPolicy& policy);

// Counters of this rank's GPU, and the verdicts from them.
class LinkWitness {
 public:
  // Collective: probes the link. On CPUs and on several hosts the verdict is unproven. Throws LinkContradiction on
  // every rank where the mode is contradicted, or not proven although that is required.
  LinkWitness(const LinkArguments& arguments, World& world);

  const LinkProof& probe() const { return probe_; }
  // Around a training. Collective; wire_bytes: see judge_training. It judges only: what was trained is reported first.
  void begin();
  LinkProof end(double wire_bytes);
  // Collective, after that report: throws as the constructor does.
  void expect_proof(const LinkProof& proof) const;

 private:
  ProcessGroup& group_;
  bool required_;
  std::unique_ptr<LinkCounters> counters_;  // null where there is nothing to count
  LinkProof probe_;
};

// "link pcie (staged through ...), NVLS off: proven: rank 0: NVLink carried ..."
std::string describe(const LinkPolicy& policy, const LinkProof& proof);

// "GPU 0: NVLink 1.07 GB out, 1.07 GB in; PCIe not permitted"
std::string describe(const LinkTraffic& traffic);

nlohmann::ordered_json to_json(const LinkPolicy& policy);
nlohmann::ordered_json to_json(const LinkProof& proof);

}  // namespace lockstep::cli
