// The machine, and how to repeat the comparison on it.
#include <fmt/format.h>

#include "cli/printable.h"
#include "cli/report/sections.h"
#include "cli/report/wording.h"
#include "cli/topology_json.h"

namespace lockstep::cli {
namespace {

// One word to a POSIX shell, whatever is in it: who copies the command runs nothing else.
std::string shell_word(const std::string& text) {
  constexpr const char* kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789%+,-./:=@_";
  const std::string line = printable(text);
  if (!line.empty() && line.find_first_not_of(kPlain) == std::string::npos) return line;
  std::string quoted = "'";
  for (const char c : line) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

// With every option that decides the figures.
std::string command_of(const CaseFigures& figures) {
  std::string command = fmt::format("lockstep compare {} {} {} --ranks {}", shell_word(figures.model),
                                    figures.emulated ? "--emulate" : "--links",
                                    shell_word(figures.arms[0].link + "," + figures.arms[1].link), figures.ranks);
  if (figures.emulated) command += fmt::format(" --slow-motion {}", figures.slow_motion);
  if (!figures.precision.empty()) command += " --precision " + shell_word(figures.precision);
  if (figures.deterministic) command += " --deterministic";
  if (!figures.on_gpus && figures.threads > 0) command += fmt::format(" --threads {}", figures.threads);
  if (figures.repeats > 0) command += fmt::format(" --repeats {}", figures.repeats);
  if (figures.steps > 0) command += fmt::format(" --steps {} --warmup {}", figures.steps, figures.warmup);
  if (figures.options.is_object()) {
    for (const auto& [name, value] : figures.options.items()) {
      if (!value.is_string() && !value.is_number() && value != true) continue;
      command += " " + shell_word("--" + name);
      if (value.is_string()) command += " " + shell_word(value.get<std::string>());
      if (value.is_number()) command += " " + value.dump();
    }
  }
  return command;
}

std::string pcie_text(const PcieLink& link) {
  return link.generation > 0 ? fmt::format("{} x{}", link.generation, link.width) : kNotMeasured;
}

}  // namespace

void add_machine(Blocks& blocks, const CompareFile& file, const Cases& cases) {
  blocks.push_back(Heading{"Machine"});
  const Topology& topology = file.topology;
  Facts facts;
  const auto add = [&](std::string name, std::string value) {
    if (!value.empty()) facts.rows.push_back({std::move(name), std::move(value)});
  };
  const CaseFigures& figures = *cases.front();
  add("Ranks", fmt::format("{} {}", figures.ranks, figures.on_gpus ? "GPUs" : "CPU ranks"));
  add("Device", figures.device_name);
  add("Processor", file.processor.empty() || !file.cores ? file.processor
                                                         : fmt::format("{}, {} cores", file.processor, *file.cores));
  add("Driver", topology.driver);
  std::string versions = file.version.empty() ? "" : "Lockstep " + file.version;
  for (const auto& [name, version] : file.versions) {
    if (!version.empty()) versions += fmt::format(", {} {}", name, version);
  }
  add("Versions", versions);
  add("Virtual machine", topology.virtual_machine);
  add("Container", topology.container);
  for (const GpuPair& pair : topology.pairs) add("Pair", describe_pair(pair));
  blocks.push_back(std::move(facts));
  if (!topology.gpus.empty()) {
    Table gpus{.columns = {{"GPU"}, {"Name"}, {"Bus id"}, {"NVLinks", true}, {"PCIe now, at most", true}}};
    for (std::size_t i = 0; i < topology.gpus.size(); ++i) {
      const GpuNode& gpu = topology.gpus[i];
      gpus.rows.push_back({std::to_string(i), gpu.name, gpu.bus_id,
                           fmt::format("{} of {} active", gpu.active_nvlinks, gpu.nvlinks),
                           fmt::format("{}, {}", pcie_text(gpu.pcie_now), pcie_text(gpu.pcie_most))});
    }
    blocks.push_back(std::move(gpus));
  }
  for (const TopologyFinding& finding : topology.findings) {
    if (finding.kind == TopologyFinding::Kind::note) continue;
    blocks.push_back(Notice{fmt::format("{}: {}{}{}", kind_name(finding.kind), finding.what,
                                        finding.remedy.empty() ? "" : ". What to do: ", finding.remedy)});
  }
}

void add_repeat(Blocks& blocks, const CompareFile& file, const Cases& cases) {
  blocks.push_back(Heading{"How to repeat it"});
  blocks.push_back(
      Paragraph{file.version.empty()
                    ? "With Lockstep, on the same machine with nothing else running:"
                    : fmt::format("With Lockstep {}, on the same machine with nothing else running:", file.version)});
  std::string commands;
  for (const CaseFigures* figures : cases) commands += command_of(*figures) + "\n";
  blocks.push_back(Code{commands});
  blocks.push_back(
      Paragraph{"Each run is a fresh process with fresh ranks; the arms take turns. Seeds, samples and choices of "
                "algorithms are the "
                "same in all of them. Warm-up steps are outside every figure."});
}

}  // namespace lockstep::cli
