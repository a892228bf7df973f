#!/usr/bin/env bash
# Configures build/ for what this machine has and builds the targets given, or everything.
# usage: cmake/build.sh [TARGET...] [-- CMAKE_OPTION...]
set -euo pipefail
cd "$(dirname "$0")/.."

targets=()
while [[ $# -gt 0 && $1 != -- ]]; do
  targets+=("$1")
  shift
done
[[ $# -eq 0 ]] || shift

# GPUs join here: a driver and nvcc 12.4 or later will choose the preset cuda.
preset=cpu
if [[ -e /proc/driver/nvidia/version ]]; then
  echo "Building for the CPU: this version has no GPU kernels yet."
elif command -v nvcc >/dev/null; then
  echo "Building for the CPU: there is a CUDA toolkit here, but no NVIDIA driver."
fi

[[ -e build/CMakeCache.txt ]] || ! command -v ninja >/dev/null || export CMAKE_GENERATOR=Ninja
if ! log=$(cmake --preset "$preset" "$@" 2>&1); then
  echo "$log" >&2
  exit 1
fi
build=(cmake --build build --parallel "$(nproc)")
[[ ${#targets[@]} -eq 0 ]] || build+=(--target "${targets[@]}")
"${build[@]}"
