#include "cli/json_file.h"

#include <fstream>

#include "framework/core/error.h"

namespace lockstep::cli {

std::string as_text(const nlohmann::ordered_json& json, int indent) {
  return json.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

void write_json_file(const std::string& option, const std::string& file, const nlohmann::ordered_json& json) {
  std::ofstream stream(file);
  stream << as_text(json, 2) << "\n" << std::flush;
  if (!stream) throw Error(fmt::format("{} {}: cannot be written", option, file));
}

nlohmann::ordered_json read_json_file(const std::string& option, const std::string& file) {
  std::ifstream stream(file);
  expect(stream.is_open(), "{} {}: cannot be read", option, file);
  auto json = nlohmann::ordered_json::parse(stream, nullptr, /*allow_exceptions=*/false);
  expect(json.is_object(), "{} {}: expected a JSON object, found something else", option, file);
  return json;
}

}  // namespace lockstep::cli
