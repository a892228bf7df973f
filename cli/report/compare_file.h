// What a report needs of a file that lockstep compare wrote. Reading is tolerant: what is missing is not measured.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "framework/distributed/bucket_timing.h"
#include "framework/interconnect/claims.h"
#include "framework/interconnect/topology.h"

namespace lockstep::cli {

struct Figured {
  double value = 0.0;
  std::optional<double> low, high;  // of its 95 % interval
};

struct SizeTime {
  std::int64_t bytes = 0;
  double us = 0.0;
  double busbw = 0.0;  // GB/s
};

// Bytes of one GPU, or why there are none.
struct CountedBytes {
  std::string nvlink_sent, nvlink_received, pcie_sent, pcie_received;
};

struct ArmFigures {
  std::string link;
  std::string path;
  std::optional<Figured> step_ms;
  std::optional<double> samples_per_s, exposed_ms, communication_ms, hidden_share, predicted_ms;
  std::string proof;  // "proven", "contradicted", "unproven", "emulated"; "not measured"
  std::string proof_reason;
  std::int64_t disturbing = 0;  // see disturbing_collectives
  bool over_nvlink = false;     // where proven
  std::vector<CountedBytes> probe;
  double probe_expected_bytes = 0.0;
  std::optional<StepTimeline> timeline;
  std::vector<SizeTime> sweep;  // measured, in place
  bool sweep_proven = false;    // by its own probe
  std::vector<SizeTime> model;  // by the constants that the prediction used
  std::optional<double> host_to_device_gb_s, device_to_host_gb_s;
  std::vector<std::pair<std::string, std::string>> variables;
};

struct ModelledStep {
  std::string link, path, source;
  double step_ms = 0.0;
  std::optional<double> exposed_ms;
};

struct CaseFigures {
  std::string model;
  int ranks = 0;
  std::int64_t batch_per_rank = 0;
  bool on_gpus = false;
  std::string device_name;
  std::string precision;
  bool deterministic = false;
  int threads = 0;  // CPU threads of a rank
  nlohmann::ordered_json options;
  bool emulated = false;
  double slow_motion = 1.0;
  int repeats = 0, steps = 0, warmup = 0;
  std::optional<double> alone_ms;
  std::vector<ArmFigures> arms;  // two, or none where one rank has nothing to send
  std::optional<Figured> speedup;
  std::optional<double> predicted, bound;
  std::string conclusion;
  std::vector<ModelledStep> modelled;
};

struct CompareFile {
  std::string version;
  std::string processor;
  std::optional<int> cores;
  std::vector<std::pair<std::string, std::string>> versions;  // of CUDA, NCCL ...
  Topology topology;
  std::vector<CaseFigures> cases;

  bool emulated() const;
};

// Throws std::invalid_argument, naming `file`, where there is no comparison in it.
CompareFile compare_file_of(const nlohmann::ordered_json& json, const std::string& file);

// What it has to say to the claims about NVLink.
ClaimEvidence evidence_of(const CompareFile& file);

}  // namespace lockstep::cli
