// How a field of a struct becomes a command-line option and an entry of config.json: each arguments struct has one
// function visit_fields that names its fields, and everything else follows from it.
#pragma once

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <system_error>
#include <type_traits>
#include <vector>

#include "cli/json_value.h"

namespace lockstep::cli {

// Where a command runs.
struct DeviceArguments {
  std::string device = "auto";
  std::optional<int> ranks;
  std::optional<int> threads;
  std::string precision = "f32";
  bool deterministic = false;
};

template <class Visitor>
void visit_fields(DeviceArguments& arguments, Visitor&& visit) {
  visit("--device", arguments.device, "auto, cpu or cuda");
  visit("--ranks", arguments.ranks, "ranks; default: the launcher's, else one for each GPU, else 1");
  visit("--precision", arguments.precision,
        "f32; on GPUs also tf32 (products round their factors to 10 bits) or bf16 (parameters are kept in f32)");
  visit("--deterministic", arguments.deterministic, "on GPUs: the same bits in every run, whatever it costs");
  visit("--threads", arguments.threads,
        "CPU threads of a rank; default: OMP_NUM_THREADS, else cores / ranks of the host");
}

// Refuses what CLI11 would take for a zero, a default or the largest number: an empty value, one out of range, and what
// is no number from end to end.
template <class T>
std::string whole_value(const std::string& text) {
  if (text.empty()) return "expected a value, got nothing";
  if constexpr (std::is_arithmetic_v<T>) {
    T value{};
    const auto [stop, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (failure != std::errc{} || stop != text.data() + text.size()) {
      return "expected a " + std::string(std::is_integral_v<T> ? "whole " : "") + "number in range, got " + text;
    }
  }
  return {};
}

template <class T>
struct ValueOf {
  using type = T;
};
template <class T>
struct ValueOf<std::optional<T>> {
  using type = T;
};

template <class Arguments>
void add_options(CLI::App& app, Arguments& arguments) {
  visit_fields(arguments, [&](const char* name, auto& field, const char* help) {
    if constexpr (std::is_same_v<decltype(field), bool&>) {
      app.add_flag(name, field, help);
    } else {
      using Value = typename ValueOf<std::decay_t<decltype(field)>>::type;
      app.add_option(name, field, help)->capture_default_str()->check(whole_value<Value>);
    }
  });
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

// A line for the command and one for each option, so that ranks that were told different things can name it; without
// those that may differ: what fits the host, and files that rank 0 alone reads or writes.
template <class Arguments>
std::string option_lines(const std::string& command, Arguments arguments) {
  std::string lines = command + "\n";
  visit_fields(arguments, [&](const std::string& option, auto& field, const char*) {
    if (option == "--threads" || option == "--json" || option == "--plan") return;
    std::string value = "not given";
    if constexpr (requires { field.has_value(); }) {
      if (field) value = fmt::format("{}", *field);
    } else {
      value = fmt::format("{}", field);
    }
    lines += fmt::format("{} {}\n", option, value);
  });
  return lines;
}

// As words of a command line that sets them: options that were not given, and have no default, are left out.
template <class Arguments>
std::vector<std::string> to_words(Arguments arguments) {
  std::vector<std::string> words;
  visit_fields(arguments, [&](const char* option, auto& field, const char*) {
    const auto add = [&](const auto& value) {
      words.emplace_back(option);
      words.push_back(fmt::format("{}", value));
    };
    if constexpr (std::is_same_v<decltype(field), bool&>) {
      if (field) words.emplace_back(option);
    } else if constexpr (requires { field.has_value(); }) {
      if (field) add(*field);
    } else if constexpr (requires { field.empty(); }) {
      if (!field.empty()) add(field);
    } else {
      add(field);
    }
  });
  return words;
}

// Takes the fields whose option is not on the command line from `json`, where it has them. Throws
// std::invalid_argument for what is none.
template <class Arguments>
void fill_from_json(const CLI::App& app, Arguments& arguments, const nlohmann::ordered_json& json) {
  visit_fields(arguments, [&](const char* option, auto& field, const char*) {
    const auto entry = json.find(option + 2);
    if (app.get_option(option)->count() == 0 && entry != json.end() && !entry->is_null()) {
      field = read_value<typename ValueOf<std::decay_t<decltype(field)>>::type>(*entry, option + 2);
    }
  });
}

}  // namespace lockstep::cli
