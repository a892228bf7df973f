// What memory is used for: the rows of the table that is printed when it runs out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace lockstep {

enum class MemoryPurpose : std::uint8_t { parameters, gradients, optimizer, activations, workspace, communication };

inline constexpr std::size_t kMemoryPurposes = 6;

constexpr const char* memory_purpose_name(MemoryPurpose purpose) {
  switch (purpose) {
    case MemoryPurpose::parameters:
      return "parameters";
    case MemoryPurpose::gradients:
      return "gradients";
    case MemoryPurpose::optimizer:
      return "optimizer state";
    case MemoryPurpose::activations:
      return "activations";
    case MemoryPurpose::workspace:
      return "workspace";
    case MemoryPurpose::communication:
      return "communication";
  }
  return "?";
}

// What the calling thread allocates until the scope ends; activations outside of any.
class MemoryScope {
 public:
  explicit MemoryScope(MemoryPurpose purpose) : previous_(std::exchange(current_, purpose)) {}
  ~MemoryScope() { current_ = previous_; }
  MemoryScope(const MemoryScope&) = delete;
  MemoryScope& operator=(const MemoryScope&) = delete;

  static MemoryPurpose current() { return current_; }

 private:
  inline static thread_local MemoryPurpose current_ = MemoryPurpose::activations;

  MemoryPurpose previous_;
};

}  // namespace lockstep
