// What this build is made of: `lockstep --version`, and the advice in errors about a part that is missing.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace lockstep {

// An optional part of a build.
struct BuildPart {
  std::string_view name;
  std::string_view version;  // empty: not in this build
  std::string_view needs;    // what to do to get it

  bool present() const { return !version.empty(); }
};

// The project's version, such as "0.1.0".
std::string_view version();

std::span<const BuildPart> build_parts();

// The part called `name` (CUDA, NCCL, cuDNN, Gloo). Throws std::invalid_argument for another name.
const BuildPart& build_part(std::string_view name);

// One line for the project and one for each part.
std::string version_text();

}  // namespace lockstep
