#include "cli/emulation.h"

#include <fmt/format.h>

#include "cli/list_option.h"
#include "framework/core/error.h"
#include "framework/distributed/environment.h"

namespace lockstep::cli {

namespace {

constexpr double kSlowestMotion = 1e6;  // 25 MiB over NVLink 4 take a minute and a half

}  // namespace

std::string published_link_list() {
  std::string list;
  for (const PublishedLink& link : published_links()) list += (list.empty() ? "" : ", ") + std::string(link.name);
  return list;
}

std::vector<PublishedLink> emulated_links(const std::string& list) {
  std::vector<PublishedLink> links;
  for (const std::string& name : split_list(list)) links.push_back(published_link(name));
  expect(!links.empty(), "--emulate: expected one of {}, got nothing", published_link_list());
  return links;
}

void check_slow_motion(std::optional<double> factor) {
  expect(!factor || (*factor > 0 && *factor <= kSlowestMotion),
         "--slow-motion: expected a factor above 0 and of at most {:g}, got {:g}", kSlowestMotion, factor.value_or(0));
}

void check(const EmulationArguments& arguments) {
  check_slow_motion(arguments.slow_motion);
  expect(!arguments.slow_motion || !arguments.emulate.empty(),
         "--slow-motion: expected --emulate, whose times it is a factor on");
}

void place_on_cpu_ranks(DeviceArguments& arguments) {
  expect(arguments.device != "cuda", "--emulate: expected CPU ranks, got --device cuda; --link chooses a real link");
  arguments.device = "cpu";
  if (!arguments.ranks && detect_environment().launcher == Launcher::none) arguments.ranks = 2;
}

std::string emulation_text(double slow_motion) { return fmt::format("emulated, slow motion {:g} x", slow_motion); }

}  // namespace lockstep::cli
