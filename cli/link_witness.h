// The proof of a link: before the first step, and from the training itself.
#pragma once

#include <memory>

#include "cli/link_option.h"
#include "framework/distributed/world.h"
#include "framework/interconnect/link_counters.h"
#include "framework/interconnect/link_proof.h"

namespace lockstep::cli {

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

}  // namespace lockstep::cli
