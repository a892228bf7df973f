#include "tests/cli/command.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>

#include "tests/support/text.h"

namespace lockstep {
namespace {

CommandResult run(const std::string& arguments, const std::string& environment, const std::string& prefix,
                  int seconds) {
  const TemporaryDirectory files;
  const std::string command = "env " + environment + " timeout -k 5 " + std::to_string(seconds) + " " + prefix + " " +
                              command_path() + " " + arguments + " >" + (files / "out") + " 2>" + (files / "err") +
                              " </dev/null";
  const int status = std::system(command.c_str());
  CommandResult result;
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  result.out = testing::text_of(files / "out");
  result.err = testing::text_of(files / "err");
  return result;
}

}  // namespace

std::string command_path() {
  const char* chosen = std::getenv("LOCKSTEP_COMMAND");
  return chosen != nullptr ? chosen : LOCKSTEP_COMMAND;
}

CommandResult run_command(const std::string& arguments, const std::string& environment, const std::string& prefix) {
  return run(arguments, "CUDA_VISIBLE_DEVICES= " + environment, prefix, 60);
}

CommandResult run_gpu_command(const std::string& arguments, const std::string& environment, int seconds) {
  return run(arguments, environment, "", seconds);
}

int free_port() {
  const int probe = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  bind(probe, reinterpret_cast<sockaddr*>(&address), length);
  getsockname(probe, reinterpret_cast<sockaddr*>(&address), &length);
  close(probe);
  return ntohs(address.sin_port);
}

std::vector<pid_t> processes_with(const std::vector<std::string>& parts) {
  std::vector<pid_t> found;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
    const std::string name = entry.path().filename();
    if (!std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isdigit(c) != 0; })) continue;
    const std::string line = testing::text_of(entry.path() / "cmdline");
    const bool has_all =
        std::all_of(parts.begin(), parts.end(), [&](const std::string& part) { return testing::contains(line, part); });
    if (has_all) found.push_back(std::stoi(name));
  }
  return found;
}

void expect_one_line(const std::string& text, const std::vector<std::string>& parts) {
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
  for (const std::string& part : parts) EXPECT_CONTAINS(text, part);
}

nlohmann::json read_json(const std::string& file) {
  std::ifstream stream(file);
  return nlohmann::json::parse(stream);
}

std::vector<nlohmann::json> read_metrics(const std::string& run_directory) {
  std::vector<nlohmann::json> lines;
  std::ifstream stream(run_directory + "/metrics.jsonl");
  for (std::string line; std::getline(stream, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

std::vector<double> losses_of(const std::string& run_directory) {
  std::vector<double> losses;
  for (const auto& line : read_metrics(run_directory)) losses.push_back(line.at("loss"));
  return losses;
}

}  // namespace lockstep
