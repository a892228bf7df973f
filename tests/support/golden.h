// Numbers that PyTorch computed: small files in tests/golden, beside the scripts that made them.
#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

namespace lockstep::testing {

// `name` as in "losses.json". Tests run in the root of the repository.
inline nlohmann::json read_golden(const std::string& name) {
  const std::string path = "tests/golden/" + name;
  std::ifstream file(path);
  if (!file) throw std::runtime_error(path + ": cannot be read; run the test in the root of the repository");
  return nlohmann::json::parse(file);
}

}  // namespace lockstep::testing
