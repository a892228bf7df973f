// Machines with GPUs for tests: the script of tests/support/fake_nvml.cc, which says what a script may hold.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/temporary_directory.h"

namespace lockstep::testing {

// An H200 on an idle machine; `peer` is what its `links` NVLinks end at. Its counters stand still at different values.
inline nlohmann::json fake_h200(int index, int links = 18, const std::string& peer = "switch") {
  nlohmann::json gpu = {{"name", "NVIDIA H200"},
                        {"uuid", "GPU-00000000-0000-0000-0000-00000000000" + std::to_string(index)},
                        {"bus_id", "00000000:" + std::to_string(index + 1) + "9:00.0"},
                        {"compute_capability", 90},
                        {"pcie", {5, 16, 5, 16}},
                        {"processes", nlohmann::json::array()}};
  for (int link = 0; link < links; ++link) gpu["links"].push_back({{"active", true}, {"peer", peer}});
  if (peer == "switch" && links > 0) gpu["fabric_state"] = 3;
  for (const char* field : {"138", "139", "197", "198"}) gpu["counters"][field] = {{"values", {1000 + index}}};
  return gpu;
}

inline nlohmann::json fake_machine(std::vector<nlohmann::json> gpus) {
  return {{"driver", "580.95.05"}, {"cuda", 13000}, {"gpus", std::move(gpus)}};
}

// Writes a script and makes this process, and those that it starts, find the fake library and the script.
class FakeNvml {
 public:
  explicit FakeNvml(const nlohmann::json& script) {
    const std::string file = directory_ / "script.json";
    std::ofstream(file) << script;
    ::setenv("FAKE_NVML", file.c_str(), 1);
    ::setenv("LOCKSTEP_NVML", library().c_str(), 1);
  }
  ~FakeNvml() {
    ::unsetenv("FAKE_NVML");
    ::unsetenv("LOCKSTEP_NVML");
  }
  FakeNvml(const FakeNvml&) = delete;
  FakeNvml& operator=(const FakeNvml&) = delete;

  // Beside the test programs.
  static std::string library() {
    return (std::filesystem::read_symlink("/proc/self/exe").parent_path() / "libfake_nvml.so").string();
  }

 private:
  TemporaryDirectory directory_;
};

}  // namespace lockstep::testing
