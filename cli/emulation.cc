#include "cli/emulation.h"

#include <fmt/format.h>

#include "cli/list_option.h"
#include "framework/core/error.h"
#include "framework/distributed/environment.h"

namespace lockstep::cli {

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

void place_on_cpu_ranks(DeviceArguments& arguments) {
  expect(arguments.device != "cuda", "--emulate: expected CPU ranks, got --device cuda; --link chooses a real link");
  arguments.device = "cpu";
  if (!arguments.ranks && detect_environment().launcher == Launcher::none) arguments.ranks = 2;
}

std::string emulation_text(double slow_motion) { return fmt::format("emulated, slow motion {:g} x", slow_motion); }

}  // namespace lockstep::cli
