#include "cli/json_file.h"

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string_view>
#include <system_error>

#include "cli/output_files.h"
#include "framework/core/error.h"

namespace lockstep::cli {
namespace {

constexpr int kDeepest = 100;  // levels of JSON: copies and searches of it call themselves for each

}  // namespace

std::string as_text(const nlohmann::ordered_json& json, int indent) {
  return json.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

void write_json_file(const std::string& option, const std::string& file, const nlohmann::ordered_json& json) {
  write_output(option, file, as_text(json, 2) + "\n");
}

nlohmann::ordered_json read_json_file(const std::string& option, const std::string& file) {
  std::error_code ignored;  // what cannot be looked at cannot be opened either
  expect(!std::filesystem::exists(file, ignored) || std::filesystem::is_regular_file(file, ignored),
         "{} {}: expected a file, found something else", option, file);
  std::ifstream stream(file);
  expect(stream.is_open(), "{} {}: cannot be read", option, file);
  bool too_deep = false;
  const auto keep = [&](int depth, nlohmann::ordered_json::parse_event_t, const nlohmann::ordered_json&) {
    too_deep = too_deep || depth > kDeepest;
    return !too_deep;
  };
  nlohmann::ordered_json json;
  try {
    json = nlohmann::ordered_json::parse(stream, keep);
  } catch (const nlohmann::json::exception& error) {
    const bool ended = std::string_view(error.what()).find("unexpected end of input") != std::string_view::npos;
    throw std::invalid_argument(fmt::format("{} {}: expected a JSON object, found {}", option, file,
                                            ended ? "the end of the file" : "something else"));
  }
  expect(!too_deep, "{} {}: expected JSON of at most {} levels, found more", option, file, kDeepest);
  expect(json.is_object(), "{} {}: expected a JSON object, found something else", option, file);
  return json;
}

}  // namespace lockstep::cli
