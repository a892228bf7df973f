#include "framework/core/version.h"

#include <fmt/format.h>

#include <array>

#include "framework/core/error.h"

namespace lockstep {
namespace {

constexpr std::array<BuildPart, 4> kParts = {{
    {"CUDA", LOCKSTEP_CUDA_VERSION, "build with -DLOCKSTEP_CUDA=ON where nvcc 12.4 or later is"},
    {"NCCL", LOCKSTEP_NCCL_VERSION, "build with CUDA where NCCL is, for more than one GPU"},
    {"cuDNN", LOCKSTEP_CUDNN_VERSION, "build with CUDA where cuDNN 9 is, for convolutions on GPUs"},
    {"Gloo", LOCKSTEP_GLOO_VERSION, "install libgloo-dev and build again, for more than one CPU rank"},
}};

}  // namespace

std::string_view version() { return LOCKSTEP_VERSION; }

std::span<const BuildPart> build_parts() { return kParts; }

const BuildPart& build_part(std::string_view name) {
  for (const BuildPart& part : kParts) {
    if (part.name == name) return part;
  }
  throw std::invalid_argument(fmt::format("build_part: expected CUDA, NCCL, cuDNN or Gloo, got {}", name));
}

std::string version_text() {
  std::string text = fmt::format("lockstep {}\n", version());
  for (const BuildPart& part : kParts) {
    text += part.present() ? fmt::format("  {:<6} {}\n", part.name, part.version)
                           : fmt::format("  {:<6} no: {}\n", part.name, part.needs);
  }
  return text;
}

}  // namespace lockstep
