// How a field of a struct becomes a command-line option and an entry of config.json: each arguments struct has one
// function visit_fields that names its fields, and everything else follows from it.
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <type_traits>

namespace lockstep::cli {

// Where a command runs.
struct DeviceArguments {
  std::string device = "auto";
  std::optional<int> ranks;
  std::optional<int> threads;
};

template <class Visitor>
void visit_fields(DeviceArguments& arguments, Visitor&& visit) {
  visit("--device", arguments.device, "auto, cpu or cuda");
  visit("--ranks", arguments.ranks, "ranks; default: the launcher's, else one for each GPU, else 1");
  visit("--threads", arguments.threads,
        "CPU threads of a rank; default: OMP_NUM_THREADS, else cores / ranks of the host");
}

template <class Arguments>
void add_options(CLI::App& app, Arguments& arguments) {
  visit_fields(arguments, [&](const char* name, auto& field, const char* help) {
    if constexpr (std::is_same_v<decltype(field), bool&>) {
      app.add_flag(name, field, help);
    } else {
      app.add_option(name, field, help)->capture_default_str();
    }
  });
}

template <class T>
void read_json(const nlohmann::ordered_json& json, T& field) {
  field = json.get<T>();
}
template <class T>
void read_json(const nlohmann::ordered_json& json, std::optional<T>& field) {
  field = json.get<T>();
}

// {"ranks": 2, "lr": 0.05 ...}; null where an option was not given and has no default.
template <class Arguments>
nlohmann::ordered_json to_json(Arguments arguments) {
  nlohmann::ordered_json json;
  visit_fields(arguments, [&](const char* option, auto& field, const char*) {
    auto& entry = json[option + 2];
    if constexpr (requires { field.has_value(); }) {
      if (field) entry = *field;
    } else {
      entry = field;
    }
  });
  return json;
}

// Takes the fields whose option is not on the command line from `json`, where it has them.
template <class Arguments>
void fill_from_json(const CLI::App& app, Arguments& arguments, const nlohmann::ordered_json& json) {
  visit_fields(arguments, [&](const char* option, auto& field, const char*) {
    const auto entry = json.find(option + 2);
    if (app.get_option(option)->count() == 0 && entry != json.end() && !entry->is_null()) read_json(*entry, field);
  });
}

}  // namespace lockstep::cli
