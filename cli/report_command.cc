#include "cli/report_command.h"

#include <fmt/format.h>

#include <memory>
#include <string>

#include "cli/arguments.h"
#include "cli/json_file.h"
#include "cli/output_files.h"
#include "cli/report/report.h"

namespace lockstep::cli {
namespace {

struct ReportArguments {
  std::string file;
  std::string out = "report.html";
};

}  // namespace

std::function<int(char** argv)> add_report_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("report", "A page on a comparison, from what compare --json wrote");
  auto arguments = std::make_shared<ReportArguments>();
  command->add_option("FILE", arguments->file, "written by lockstep compare --json")->required();
  command->add_option("--out", arguments->out, "the page; beside it comes the same in Markdown, with .md")
      ->capture_default_str()
      ->check(whole_value<std::string>);

  return [arguments](char** /*argv*/) {
    check_report_name("--out", arguments->out);
    check_outputs({{"--out", arguments->out}, {"--out", beside(arguments->out, ".md")}}, {arguments->file});
    const Document document = make_report(read_json_file("report", arguments->file), "report " + arguments->file);
    write_report("--out", arguments->out, document);
    fmt::print("{} ({})\n", document.headline, document.evidence);
    return 0;
  };
}

}  // namespace lockstep::cli
