// --emulate: CPU ranks joined by a link that is not there.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/arguments.h"
#include "framework/interconnect/published_links.h"

namespace lockstep::cli {

// "nvlink3, nvlink4 ..."
std::string published_link_list();

struct EmulationArguments {
  std::string emulate;
  std::optional<double> slow_motion;
};

template <class Visitor>
void visit_fields(EmulationArguments& arguments, Visitor&& visit) {
  static const std::string help =
      "on CPU ranks, in slow motion: the link that carries the gradients, one of " + published_link_list();
  visit("--emulate", arguments.emulate, help.c_str());
  visit("--slow-motion", arguments.slow_motion,
        "factor on all emulated times; default: what leaves the ranks 3 times the time that they need (measure: 1)");
}

// Throw std::invalid_argument for a factor that is out of range, and for one on nothing.
void check_slow_motion(std::optional<double> factor);
void check(const EmulationArguments& arguments);

// The links of a list "nvlink4,pcie3". Throws std::invalid_argument for unknown ones.
std::vector<PublishedLink> emulated_links(const std::string& list);

// Emulated links are for CPU ranks, 2 where nothing else is asked for. Throws std::invalid_argument where a GPU is.
void place_on_cpu_ranks(DeviceArguments& arguments);

// "emulated, slow motion 480 x": in every output.
std::string emulation_text(double slow_motion);

}  // namespace lockstep::cli
