// lockstep measure MODEL: one arm of a comparison
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "cli/arguments.h"
#include "cli/emulation.h"
#include "cli/link_option.h"
#include "cli/workload.h"

namespace lockstep::cli {

struct MeasureArguments {
  std::string model;
  DeviceArguments device;
  LinkArguments link;
  EmulationArguments emulation;
  WorkloadArguments workload;
  int steps = 20;
  int warmup = 5;
  bool alone = false;
  bool timeline = false;
  std::string plan;
  std::string json;
};

template <class Visitor>
void visit_fields(MeasureArguments& arguments, Visitor&& visit) {
  visit_fields(arguments.device, visit);
  visit_fields(arguments.link, visit);
  visit_fields(arguments.emulation, visit);
  visit_fields(arguments.workload, visit);
  visit("--steps", arguments.steps, "timed steps");
  visit("--warmup", arguments.warmup, "steps before");
  visit("--alone", arguments.alone,
        "only the steps without all-reduces; with --emulate LINK,LINK also the factor of slow motion that fits them");
  visit("--timeline", arguments.timeline, "when each bucket is ready, launched and reduced, too");
  visit("--plan", arguments.plan, "on GPUs: file with the choices of algorithms to use; written where it is missing");
  visit("--json", arguments.json, "write all figures to this file");
}

// See add_train_command.
std::function<int(char** argv)> add_measure_command(CLI::App& app);

}  // namespace lockstep::cli
