// The files that --json names.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace lockstep::cli {

// JSON as text; what is not UTF-8 in it (a path, a variable) is replaced, not refused.
std::string as_text(const nlohmann::ordered_json& json, int indent = -1);

// Throws Error, naming `option`, where the file cannot be written.
void write_json_file(const std::string& option, const std::string& file, const nlohmann::ordered_json& json);
// Throws std::invalid_argument, naming `option`, where it is no file, cannot be read or holds no JSON object.
nlohmann::ordered_json read_json_file(const std::string& option, const std::string& file);

}  // namespace lockstep::cli
