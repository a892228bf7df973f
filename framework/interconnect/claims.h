// What introductions to NVLink repeat, what is true of it, and what a machine's own measurements say.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "framework/core/statistics.h"
#include "framework/interconnect/topology.h"

namespace lockstep {

struct Claim {
  std::string_view name;     // "bandwidth-256"
  std::string_view chinese;  // as such texts put it
  std::string_view english;
  std::string_view right;
  std::string_view source;
  std::string_view test;  // what a machine must show for the claim to count as reproduced, or why it cannot
};

std::span<const Claim> claims();

enum class ClaimVerdict : std::uint8_t { reproduced, not_reproduced, not_measurable, emulated };

// "reproduced", "not reproduced", "not measurable here", "emulated"
const char* claim_verdict_name(ClaimVerdict verdict);

// The ends of a sweep of all-reduces over one link.
struct SweepEnds {
  std::int64_t small_bytes = 0;
  double small_us = 0.0;
  std::int64_t large_bytes = 0;
  double large_busbw = 0.0;  // GB/s
};

// A training over NVLink and staged through host memory.
struct ComparedTraining {
  std::string what;  // "VGG-16 at 32 images a GPU"
  Estimate speedup;
  bool proven = false;  // of both arms, which link carried the bytes
  // That each GPU holds; 0: not known.
  std::int64_t nvlink_gradient_bytes = 0, staged_gradient_bytes = 0;
};

// What was measured on a machine; whatever is left out counts as not measured.
struct ClaimEvidence {
  bool emulated = false;  // then nothing is reproduced
  double slow_motion = 1.0;
  Topology topology;
  bool nvlink_by_itself = false;  // NCCL's bytes were seen on NVLink where nothing asked for it: in mode auto
  std::optional<SweepEnds> nvlink, staged;
  std::vector<ComparedTraining> trainings;
};

struct ClaimAnswer {
  const Claim* claim = nullptr;
  std::string measured;  // empty: nothing that concerns it
  ClaimVerdict verdict = ClaimVerdict::not_measurable;
  std::string reason;
};

// One for each of claims(), in their order.
std::vector<ClaimAnswer> answer_claims(const ClaimEvidence& evidence);

}  // namespace lockstep
