#!/usr/bin/env bash
# Configures build/ for what this machine has and builds the targets given, or everything. Says whether that is for GPUs.
# usage: cmake/build.sh [TARGET...] [-- CMAKE_OPTION...]     LOCKSTEP_CUDA=ON or OFF in the environment decides instead
set -euo pipefail
cd "$(dirname "$0")/.."

targets=()
while [[ $# -gt 0 && $1 != -- ]]; do
  targets+=("$1")
  shift
done
[[ $# -eq 0 ]] || shift

[[ -e build/CMakeCache.txt ]] || ! command -v ninja >/dev/null || export CMAKE_GENERATOR=Ninja
if ! log=$(cmake --preset auto ${LOCKSTEP_CUDA:+"-DLOCKSTEP_CUDA=$LOCKSTEP_CUDA"} "$@" 2>&1); then
  echo "$log" >&2
  exit 1
fi
sed -n 's/^-- \(Building for \)/\1/p' <<<"$log"
build=(cmake --build build --parallel "$(nproc)")
[[ ${#targets[@]} -eq 0 ]] || build+=(--target "${targets[@]}")
"${build[@]}"
