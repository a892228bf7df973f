// --link and --require-proof, and the switch before ranks start.
#pragma once

#include <string>

#include "framework/interconnect/link_policy.h"

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

}  // namespace lockstep::cli
