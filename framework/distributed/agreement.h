// How ranks agree on what is said and not computed: through the store where there is one, never through the engine that
// carries gradients. All functions are collective.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "framework/distributed/process_group.h"

namespace lockstep {

class Store;

// How long ranks wait for each other here: one may read a checkpoint alone, try all algorithms of a large model, or
// prepare its data. A rank that is gone is noticed at once.
inline constexpr std::chrono::minutes kAgreementTime{5};

// Every rank's text, in rank order; `what` names it in errors. Ranks that are threads have no store and give it to each
// other by all_gather.
std::vector<std::string> gather_texts(ProcessGroup& group, const std::string& what, const std::string& text);

// What `work` returns on rank 0, which alone runs it within kAgreementTime, on every rank. What it throws is thrown on
// every rank: an exception of the same exit code (framework/core/exit_codes.h) with the same text.
std::string from_rank_0(ProcessGroup& group, const std::string& what, const std::function<std::string()>& work);

// Throws std::invalid_argument on every rank unless all ranks give the same text. The ranks whose text differs from
// rank 0's name the first line that does. `what` says in the message what is compared.
void expect_agreement(ProcessGroup& group, const std::string& what, const std::string& text);
// The same before there is a group: every rank comes within a minute.
void expect_agreement(Store& store, const std::string& what, const std::string& text);

}  // namespace lockstep
