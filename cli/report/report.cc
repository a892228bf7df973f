#include "cli/report/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "cli/output_files.h"
#include "cli/report/sections.h"
#include "cli/report/wording.h"
#include "framework/core/error.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

}  // namespace

Document make_report(const nlohmann::ordered_json& comparison, const std::string& source) {
  const CompareFile file = compare_file_of(comparison, source);
  Cases cases;
  for (const CaseFigures& figures : file.cases) {
    if (figures.speedup && !figures.arms.empty()) cases.push_back(&figures);
  }
  const CaseFigures& first = *cases.front();
  Document document{
      .title = "Lockstep: " + describe_training(first), .headline = headline(first), .evidence = evidence_text(first)};
  if (cases.size() > 1) {
    const auto [least, most] = std::minmax_element(
        cases.begin(), cases.end(), [](const auto* a, const auto* b) { return a->speedup->value < b->speedup->value; });
    document.evidence += fmt::format("; of {} trainings {} to {}", cases.size(), times_text((*least)->speedup->value),
                                     times_text((*most)->speedup->value));
  }
  add_result(document.blocks, file, cases);
  add_steps(document.blocks, file, cases);
  add_timelines(document.blocks, cases);
  add_growth(document.blocks, cases);
  add_bandwidth(document.blocks, cases);
  add_other_links(document.blocks, first);
  add_proof(document.blocks, cases);
  add_machine(document.blocks, file, cases);
  add_claims(document.blocks, file);
  add_repeat(document.blocks, file, cases);
  return document;
}

void check_report_name(const std::string& option, const std::string& html_file) {
  expect(fs::path(html_file).extension() == ".html", "{}: expected a name that ends in .html, got {}", option,
         html_file);
}

std::string beside(const std::string& html_file, const char* extension) {
  return fs::path(html_file).replace_extension(extension);
}

void write_report(const std::string& option, const std::string& html_file, const Document& document) {
  check_report_name(option, html_file);
  write_output(option, html_file, to_html(document));
  write_output(option, beside(html_file, ".md"), to_markdown(document));
}

}  // namespace lockstep::cli
