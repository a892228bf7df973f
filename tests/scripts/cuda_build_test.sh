#!/usr/bin/env bash
# Of a build for GPUs: the libraries that it needs when it starts, and what CMake chooses by itself where such a build is
# possible.
# usage: cuda_build_test.sh PROGRAM NVCC [CMAKE_OPTION...]
. "$(dirname "$0")/fakes.sh"
program=$1
export CUDACXX=$2
options=("${@:3}")
unset LD_LIBRARY_PATH

# CONTRIBUTING.md names them. The driver is not among them: a program must start where there is none.
named=$(tr '\n' ' ' <"$source_dir/CONTRIBUTING.md" | grep -oP 'A build for GPUs needs \K.*?(?= when it starts)' |
  grep -o 'lib[a-zA-Z]*' | sort | paste -sd' ')
needed=$(objdump -p "$program" | sed -nE 's/^ *NEEDED *(lib(cu|nv|nccl)[a-zA-Z]*)\.so.*/\1/p' | sort | paste -sd' ')
[[ -n $named && $needed == "$named" ]] ||
  { echo "FAILED: expected to need what CONTRIBUTING.md names ($named), got $needed" && exit 1; }
expect 0 'lockstep .*CUDA +[0-9.]+.*NCCL +[0-9.]+.*cuDNN +[0-9.]+.*' "$program" --version

configure() {
  rm -rf "$tmp/build"
  cmake -S "$source_dir" -B "$tmp/build" "${options[@]}" "$@"
}
auto() { configure -DLOCKSTEP_CUDA=AUTO "$@"; }
GPUS='9.0 8.0' expect 0 '.*-- Building for GPUs \(sm_80;90\): CUDA [0-9.]+, NCCL [0-9.]+, cuDNN [0-9.]+.*' auto
GPUS=9.0 LC_ALL=of_nowhere expect 0 '.*-- Building for GPUs \(sm_90\).*' auto  # of which shells warn
expect 0 '.*-- Building for the CPU: no GPU that nvidia-smi knows.*' auto
GPUS=9.0 expect 0 ".*-- Building for the CPU: no NCCL, cuDNN ${line}cmake/bootstrap.sh cuda$line.*" \
  auto -DCMAKE_DISABLE_FIND_PACKAGE_NCCL=ON -DCMAKE_DISABLE_FIND_PACKAGE_cuDNN=ON
GPUS=9.0 CUDAHOSTCXX=false expect 0 '.*-- Building for the CPU: no nvcc that compiles.*' auto
expect 1 '.*LOCKSTEP_CUDA=ON: no NCCL .*' configure -DLOCKSTEP_CUDA=ON -DCMAKE_DISABLE_FIND_PACKAGE_NCCL=ON
