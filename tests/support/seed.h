// Fresh random inputs in every run, repeatable by the seed that the run prints.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <random>

namespace lockstep::testing {

// One seed a process: new in every run and printed; the environment variable LOCKSTEP_TEST_SEED overrides it.
inline std::uint64_t test_seed() {
  static const std::uint64_t seed = [] {
    const char* chosen = std::getenv("LOCKSTEP_TEST_SEED");
    const std::uint64_t value = chosen != nullptr ? std::strtoull(chosen, nullptr, 10) : std::random_device{}();
    std::cout << "LOCKSTEP_TEST_SEED=" << value << std::endl;
    return value;
  }();
  return seed;
}

}  // namespace lockstep::testing
