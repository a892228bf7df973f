// The report on a comparison of two links.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "cli/report/document.h"

namespace lockstep::cli {

// Throws std::invalid_argument, naming `source`, where `comparison` is not what lockstep compare --json writes.
Document make_report(const nlohmann::ordered_json& comparison, const std::string& source);

// Throws std::invalid_argument, naming `option`, unless the name ends in .html.
void check_report_name(const std::string& option, const std::string& html_file);
// The name beside it, with another extension such as .md.
std::string beside(const std::string& html_file, const char* extension);
// Writes `html_file`, and beside it the same with .md. Throws as check_report_name, and Error where a file cannot be
// written.
void write_report(const std::string& option, const std::string& html_file, const Document& document);

}  // namespace lockstep::cli
