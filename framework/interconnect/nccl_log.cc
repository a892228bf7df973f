#include "framework/interconnect/nccl_log.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <string_view>

namespace lockstep {
namespace {

// What follows `mark` in `line`; empty where it is not there.
std::string_view after(std::string_view line, std::string_view mark) {
  const std::size_t at = line.find(mark);
  return at == std::string_view::npos ? std::string_view{} : line.substr(at + mark.size());
}

// The number that ends where `mark` begins, as in "16 nvls channels"; 0 where there is none.
int number_before(std::string_view line, std::string_view mark) {
  const std::size_t end = line.find(mark);
  if (end == std::string_view::npos) return 0;
  std::size_t begin = end;
  while (begin > 0 && std::isdigit(static_cast<unsigned char>(line[begin - 1])) != 0) --begin;
  int number = 0;
  const auto [stop, failure] = std::from_chars(line.data() + begin, line.data() + end, number);
  return failure == std::errc{} ? number : 0;
}

bool sets(const LinkPolicy& policy, std::string_view name, std::string_view value) {
  return std::any_of(policy.variables.begin(), policy.variables.end(),
                     [&](const NcclSetting& variable) { return variable.name == name && variable.value == value; });
}

}  // namespace

void NcclLog::read(std::istream& log) {
  for (std::string text; std::getline(log, text);) {
    const std::string_view line = text;
    if (const std::string_view version_text = after(line, "NCCL version "); !version_text.empty()) {
      version = version_text.substr(0, version_text.find_first_of(" \r"));
    }
    const std::string_view info = after(line, "NCCL INFO ");
    nvls_channels = std::max(nvls_channels, number_before(info, " nvls channels"));
    if (!info.starts_with("Channel ")) continue;
    const std::string_view transport = after(info, " via ");
    p2p += transport.starts_with("P2P/") ? 1 : 0;
    shm += transport.starts_with("SHM/") ? 1 : 0;
    if (const std::string_view device = after(transport, "NET/"); transport.starts_with("NET/")) {
      ++net;
      net_name = device.substr(0, device.find('/'));
    }
  }
}

std::string NcclLog::to_string() const {
  return fmt::format("P2P {}, SHM {}, NET {}{} connections; {} NVLS channels", p2p, shm, net,
                     net_name.empty() ? "" : fmt::format(" ({})", net_name), nvls_channels);
}

std::string contradiction(const LinkPolicy& policy, const NcclLog& log) {
  const bool p2p_off = sets(policy, "NCCL_P2P_DISABLE", "1");
  std::string what;
  if (p2p_off && log.p2p > 0) what = "peer-to-peer connections";
  if (p2p_off && log.nvls_channels > 0) what = "NVLS channels";
  if (policy.mode == LinkMode::pcie && log.net > 0) what = "connections over the network";
  if (policy.mode == LinkMode::net && log.shm > 0) what = "connections through host memory";
  return what.empty() ? "" : fmt::format("NCCL's log has {} ({})", what, log.to_string());
}

}  // namespace lockstep
