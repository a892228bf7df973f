#include "framework/interconnect/link_policy.h"

#include <array>
#include <cstdlib>

#include "framework/core/error.h"
#include "framework/core/nearest_name.h"
#include "framework/distributed/gpu_assignment.h"

namespace lockstep {
namespace {

constexpr std::array kNames{"auto", "nvlink", "pcie", "net"};

struct Need {
  const char* name;
  const char* value;
};

// docs/interconnect.md has what each does, and the version of NCCL it came with; older ones ignore it.
std::vector<Need> needs_of(LinkMode mode, NvlinkPresence nvlink) {
  switch (mode) {
    case LinkMode::automatic:
      return {};
    case LinkMode::nvlink:
      return {{"NCCL_P2P_DISABLE", "0"}};
    case LinkMode::pcie:
      // Without NVLink, peer-to-peer is PCIe: NCCL takes it where the topology has it.
      if (nvlink == NvlinkPresence::absent) return {{"NCCL_SHM_DISABLE", "0"}, {"NCCL_NET_DISABLE_INTRA", "1"}};
      return {{"NCCL_P2P_DISABLE", "1"}, {"NCCL_SHM_DISABLE", "0"}, {"NCCL_NET_DISABLE_INTRA", "1"},
              {"NCCL_NVLS_ENABLE", "0"}, {"NCCL_WIN_ENABLE", "0"},  {"NCCL_MNNVL_ENABLE", "0"}};
    case LinkMode::net:
      return {{"NCCL_P2P_DISABLE", "1"}, {"NCCL_SHM_DISABLE", "1"}, {"NCCL_NET_DISABLE_INTRA", "0"},
              {"NCCL_NVLS_ENABLE", "0"}, {"NCCL_WIN_ENABLE", "0"},  {"NCCL_MNNVL_ENABLE", "0"}};
  }
  return {};
}

std::string describe(LinkMode mode, NvlinkPresence nvlink) {
  switch (mode) {
    case LinkMode::automatic:
      return "NCCL's choice";
    case LinkMode::nvlink:
      return "peer-to-peer, over NVLink between GPUs that it joins";
    case LinkMode::pcie:
      return nvlink == NvlinkPresence::absent
                 ? "over PCIe: peer-to-peer where the topology has it, else staged through host memory"
                 : kStagedOverPcie;
    case LinkMode::net:
      return "over the network, also within this host";
  }
  return {};
}

// As NCCL reads a number: the digits it begins with, in base 8, 10 or 16, else 0.
long long number_of(const std::string& text) { return std::strtoll(text.c_str(), nullptr, 0); }

bool meets(const NcclSetting& setting, const Need& need) {
  const long long value = number_of(setting.value);
  const bool is_disable = setting.name.find("DISABLE") != std::string::npos;  // 1 disables, any other number does not
  return is_disable ? (value == 1) == (number_of(need.value) == 1) : value == number_of(need.value);
}

[[noreturn]] void contradict(LinkMode mode, const NcclSetting& setting, const std::string& expected) {
  throw LinkContradiction(fmt::format("link mode {}: expected {}, got {}={} from {}; unset it or choose another mode",
                                      link_mode_name(mode), expected, setting.name, setting.value, setting.source));
}

// Settings that work against a mode through variables that the mode does not set.
void expect_no_opponent(LinkMode mode, bool needs_p2p_off, const NcclSettings& settings) {
  const bool within_host = mode == LinkMode::nvlink || mode == LinkMode::pcie;
  if (const auto host = settings.find("NCCL_HOSTID"); host && within_host) {
    contradict(mode, *host, "NCCL to find out by itself which ranks are on one host");
  }
  const auto level = settings.find("NCCL_P2P_LEVEL");
  const bool level_is_off = level && (level->value == "LOC" || level->value.starts_with('0'));
  if (mode == LinkMode::nvlink && level_is_off) contradict(mode, *level, "peer-to-peer on");
  if (!needs_p2p_off) return;
  const auto disable = settings.find("NCCL_P2P_DISABLE");
  const bool disabled_anyway = disable && number_of(disable->value) == 1;  // goes before the level
  if (level && !level_is_off && !disabled_anyway) {
    contradict(mode, *level, "peer-to-peer off, which no level but LOC means: the others all keep NVLink");
  }
  if (const auto algorithm = settings.find("NCCL_ALGO");
      algorithm && algorithm->value.find("NVLS") != std::string::npos && !algorithm->value.starts_with('^')) {
    contradict(mode, *algorithm, "no algorithm of the NVLink switches");
  }
}

// Tells the processes that this one starts which of the variables in their environment are not the user's.
constexpr const char* kSetVariables = "LOCKSTEP_LINK_VARIABLES";

// "NCCL_P2P_DISABLE=1,": what apply() has set, here or in the process that started this one.
std::string set_before() {
  const char* text = std::getenv(kSetVariables);
  return text != nullptr ? text : "";
}

std::string entry_of(const NcclSetting& variable) { return variable.name + "=" + variable.value + ","; }

}  // namespace

const char* link_mode_name(LinkMode mode) { return kNames[static_cast<std::size_t>(mode)]; }

LinkMode parse_link_mode(std::string_view name) {
  expect_known("link mode", name, {kNames.begin(), kNames.end()});
  std::size_t i = 0;
  while (name != kNames[i]) ++i;
  return static_cast<LinkMode>(i);
}

LinkPolicy link_policy(LinkMode mode, NvlinkPresence nvlink, const NcclSettings& settings) {
  LinkPolicy policy{.mode = mode, .description = describe(mode, nvlink)};
  bool names_nvls = false;
  bool needs_p2p_off = false;
  for (const Need& need : needs_of(mode, nvlink)) {
    names_nvls = names_nvls || std::string_view(need.name) == "NCCL_NVLS_ENABLE";
    needs_p2p_off = needs_p2p_off || (std::string_view(need.name) == "NCCL_P2P_DISABLE" && need.value[0] == '1');
    const auto setting = settings.find(need.name);
    if (setting && !meets(*setting, need)) contradict(mode, *setting, fmt::format("{}={}", need.name, need.value));
    policy.variables.push_back(setting.value_or(NcclSetting{need.name, need.value, kSetByLockstep}));
  }
  expect_no_opponent(mode, needs_p2p_off, settings);
  if (!names_nvls) policy.variables.push_back(settings.nvls());
  return policy;
}

LinkPolicy link_policy(LinkMode mode) {
  if (mode == LinkMode::nvlink || mode == LinkMode::pcie) {
    expect(!gpus_are_shared(),
           "link mode {}: expected a GPU for each rank, got LOCKSTEP_SHARE_GPUS=1, with which the network joins them; "
           "unset it or use net",
           link_mode_name(mode));
  }
  // Only pcie depends on it, and opening the driver takes time.
  const NvlinkPresence nvlink = mode == LinkMode::pcie ? nvlink_presence() : NvlinkPresence::unknown;
  LinkPolicy policy = link_policy(mode, nvlink, NcclSettings::of_process());
  for (NcclSetting& variable : policy.variables) {
    if (set_before().find(entry_of(variable)) != std::string::npos) variable.source = kSetByLockstep;
  }
  return policy;
}

void apply(const LinkPolicy& policy) {
  std::string set;
  for (const NcclSetting& variable : policy.variables) {
    ::setenv(variable.name.c_str(), variable.value.c_str(), 1);
    if (variable.source == kSetByLockstep) set += entry_of(variable);
  }
  ::setenv(kSetVariables, set.c_str(), 1);
}

LinkPolicy apply_link_mode(LinkMode mode) {
  LinkPolicy policy = link_policy(mode);
  apply(policy);
  return policy;
}

}  // namespace lockstep
