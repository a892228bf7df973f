#include "cli/with_link_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cli/arguments.h"
#include "cli/json_file.h"
#include "cli/link_option.h"
#include "cli/link_report.h"
#include "cli/nccl_log_files.h"
#include "cli/output_files.h"
#include "cli/supervised_process.h"
#include "framework/core/error.h"
#include "framework/core/exit_codes.h"
#include "framework/interconnect/link_policy.h"
#include "framework/interconnect/visible_gpus.h"

namespace lockstep::cli {
namespace {

struct WithLinkArguments {
  LinkArguments link;
  std::vector<std::string> command;
  std::string json;
};

// The counters of the GPUs that the program can see.
class ProgramCounters {
 public:
  ProgramCounters() : nvml_(Nvml::open()) {
    if (!nvml_) return;
    const LinkCountersOptions options{.is_own = [this](unsigned pid) { return is_own(pid); },
                                      .own_under_other_numbers = 0};
    gpus_ = visible_gpus(**nvml_);
    for (const int gpu : gpus_) {
      counters_.push_back(make_link_counters(nvml_, (*nvml_)->uuid(gpu).value_or(""), options));
      counters_.back()->start();
    }
  }

  // From here to ended() the program's processes may be on the GPUs.
  void started() { running_ = true; }
  std::vector<LinkTraffic> ended(bool nccl_avoids_nvlink) {
    // The driver may need a moment to see that they are gone.
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(2);
    while (any_own_process() && std::chrono::steady_clock::now() < limit) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    running_ = false;
    std::vector<LinkTraffic> traffic;
    for (std::size_t i = 0; i < counters_.size(); ++i) {
      traffic.push_back(counters_[i]->stop());
      traffic.back().gpu = fmt::format("GPU {}", gpus_[i]);
      traffic.back().nccl_avoids_nvlink = nccl_avoids_nvlink;
    }
    return traffic;
  }

  const std::string& why_none() const { return nvml_.why_not; }

 private:
  bool any_own_process() const {
    return std::any_of(gpus_.begin(), gpus_.end(), [&](int gpu) {
      const std::vector<unsigned> pids = (*nvml_)->compute_processes(gpu).value_or({});
      return std::any_of(pids.begin(), pids.end(), [&](unsigned pid) { return is_own(pid); });
    });
  }

  // In a container the driver may tell numbers of the host, under which nothing is found here.
  bool is_own(unsigned pid) const {
    return is_own_process(pid) || (running_ && !std::filesystem::exists(fmt::format("/proc/{}", pid)));
  }

  NvmlAnswer<std::shared_ptr<const Nvml>> nvml_;
  std::atomic<bool> running_ = false;
  std::vector<int> gpus_;
  std::vector<std::unique_ptr<LinkCounters>> counters_;
};

int run(const WithLinkArguments& arguments) {
  check_outputs({{"--json", arguments.json}});
  const LinkPolicy policy = apply_link_mode(parse_link_mode(arguments.link.link));
  const NcclLogFiles logs(NcclLogFiles::Of::programs);
  ProgramCounters counters;
  const auto begin = std::chrono::steady_clock::now();
  SupervisedProcess process(arguments.command);
  counters.started();
  const int code = process.wait();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const NcclLog log = logs.read();
  LinkProof proof = judge_program(policy.mode, counters.ended(log.avoids_nvlink()));
  if (proof.gpus.empty() && !counters.why_none().empty()) proof.reason = counters.why_none();
  if (const std::string doubt = contradiction(policy, log); !doubt.empty() && proof.verdict == Verdict::proven) {
    proof.verdict = Verdict::unproven;
    proof.reason += "; but " + doubt;
  }

  // What the program prints to its output stays as it is.
  for (const std::string& setting : kept_settings(policy)) {
    fmt::print(stderr, "lockstep with-link: {} was kept\n", setting);
  }
  for (const LinkTraffic& gpu : proof.gpus) fmt::print(stderr, "lockstep with-link: {}\n", describe(gpu));
  if (!log.empty()) fmt::print(stderr, "lockstep with-link: NCCL {}: {}\n", log.version, log.to_string());
  fmt::print(stderr, "lockstep with-link: {:.2f} s, exit code {}; {}\n", seconds, code, describe(policy, proof));
  const bool insufficient =
      proof.verdict == Verdict::contradicted || (proof.verdict == Verdict::unproven && arguments.link.require_proof);
  if (!arguments.json.empty()) {
    nlohmann::ordered_json json{{"command", arguments.command},
                                {"exit_code", code},
                                {"seconds", seconds},
                                {"link", to_json(policy)},
                                {"proof", to_json(proof)}};
    if (!log.empty()) json["nccl"] = {{"version", log.version}, {"connections", log.to_string()}};
    try {
      write_json_file("--json", arguments.json, json);
    } catch (const Error& error) {
      if (code == 0 && !insufficient) throw;
      fmt::print(stderr, "lockstep with-link: {}\n", error.what());  // the program's failure and the verdict come first
    }
  }
  if (code != 0) return code;
  return insufficient ? kContradicted : 0;
}

}  // namespace

std::function<int(char** argv)> add_with_link_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("with-link", "Any program that uses NCCL under a link mode, with the proof");
  auto arguments = std::make_shared<WithLinkArguments>();
  command->add_option("MODE", arguments->link.link, "auto, nvlink, pcie (NVLink forced off) or net")->required();
  command->add_option("COMMAND", arguments->command, "after --: the program and its arguments")->required();
  command->add_flag("--require-proof", arguments->link.require_proof,
                    "end with exit code 3 where the link cannot be proven");
  command->add_option("--json", arguments->json, "write variables, counters and verdict to this file")
      ->check(whole_value<std::string>);
  return [arguments](char** /*argv*/) { return run(*arguments); };
}

}  // namespace lockstep::cli
