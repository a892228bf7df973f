#!/usr/bin/env bash
# Which build a machine gets, and where it is trained: cmake/cuda.sh, cmake/build.sh and examples/quickstart.sh on
# machines with and without GPUs, nvcc and libraries that we make up.
. "$(dirname "$0")/fakes.sh"
cp "$source_dir"/cmake/{build,cuda}.sh "$tmp/cmake"
cuda="$tmp/cmake/cuda.sh"
export CXX="c++ -nostdinc"  # a system without headers

expect 1 'no GPU that nvidia-smi knows' "$cuda" architectures
NVCC=13.0 expect 1 'no GPU that nvidia-smi knows' "$cuda" architectures
GPUS='[N/A]' NVCC=13.0 expect 1 'no GPU that nvidia-smi knows' "$cuda" architectures
GPUS=9.0 expect 1 'no nvcc on PATH, .* \(CUDA 12.4 or later is needed\)' "$cuda" architectures
GPUS=9.0 NVCC=11.8 expect 1 'nvcc 11.8 is too old \(CUDA 12.4 or later is needed\)' "$cuda" architectures
GPUS=9.0 NVCC=12.3 expect 1 'nvcc 12.3 is too old .*' "$cuda" architectures
GPUS=12.0 NVCC=12.4 expect 1 'nvcc 12.4 makes no code for the GPU here \(sm_120\)' "$cuda" architectures
GPUS=7.5 NVCC=12.4 expect 1 'the GPU here \(sm_75\) is too old \(sm_80 or later is needed\)' "$cuda" architectures
GPUS='9.0 6.1' NVCC=12.4 expect 1 'the GPU here \(sm_61\) is too old .*' "$cuda" architectures
GPUS=9.0 NVCC=12.4 expect 0 90 "$cuda" architectures
GPUS='9.0 8.0 9.0' NVCC=12.10 expect 0 '80;90' "$cuda" architectures

# nvcc beside PATH.
mkdir -p "$tmp/toolkit/bin" && cp "$tmp/bin/nvcc" "$tmp/toolkit/bin"
GPUS=9.0 NVCC=13.0 CUDACXX="$tmp/toolkit/bin/nvcc" expect 0 90 "$cuda" architectures
GPUS=9.0 NVCC=13.0 CUDACXX="$tmp/none" expect 1 'no nvcc.*' "$cuda" architectures
mkdir "$tmp/plain" && for tool in bash cat dirname grep paste sed sort; do ln -s "$(command -v "$tool")" "$tmp/plain"; done
ln -s "$tmp/bin/nvidia-smi" "$tmp/plain"
GPUS=9.0 NVCC=13.0 CUDA_HOME="$tmp/toolkit" expect 0 90 env PATH="$tmp/plain" "$cuda" architectures
GPUS=9.0 NVCC=13.0 expect 1 'no nvcc.*' env PATH="$tmp/plain" "$cuda" architectures

# What the system has needs no wheel, unless it is too old or half of it is missing.
all=$'nvidia-nccl-cu13==[0-9.]+\nnvidia-cudnn-cu13==[0-9.]+\nnvidia-cudnn-frontend==[0-9.]+'
missing() { env NVCC=13.0 CUDACXX="$tmp/toolkit/bin/nvcc" "$cuda" missing; }
expect 1 'no nvcc.*' "$cuda" missing
expect 0 "$all" missing
mkdir "$tmp/toolkit/include" "$tmp/toolkit/lib64"
for library in nccl cudnn; do echo | c++ -shared -x c++ - -o "$tmp/toolkit/lib64/lib$library.so"; done
echo '#define NCCL_VERSION_CODE 22809' >"$tmp/toolkit/include/nccl.h"
echo '#define CUDNN_VERSION 91900' >"$tmp/toolkit/include/cudnn_version.h"
expect 0 'nvidia-cudnn-frontend==[0-9.]+' missing
mkdir -p "$tmp/frontend/include"
echo '#define CUDNN_FRONTEND_VERSION 13200' >"$tmp/frontend/include/cudnn_frontend_version.h"
cuDNNFrontend_ROOT="$tmp/frontend" expect 0 '' missing
cp "$tmp/frontend/include/cudnn_frontend_version.h" "$tmp/toolkit/include"
expect 0 '' missing
echo '#define CUDNN_VERSION 8907' >"$tmp/toolkit/include/cudnn_version.h"
expect 0 'nvidia-cudnn-cu13==[0-9.]+' missing
fake bin/c++-without-nccl <<<'[[ "$*" != *-lnccl* ]] && exec c++ -nostdinc "$@"'
CXX=c++-without-nccl expect 0 $'nvidia-nccl-cu13==[0-9.]+\nnvidia-cudnn-cu13==[0-9.]+' missing

# CMake asks for the same versions.
for name in NCCL cuDNN cuDNNFrontend; do
  least=$(sed -n "s/.*find_package($name \([0-9.]*\) .*/\1/p" "$source_dir/cmake/cuda.cmake")
  number=$((${least%.*} * 10000 + ${least#*.} * 100))
  grep -q "^$name .*>=$number " "$cuda" || { echo "FAILED: cuda.sh does not ask for $name $least ($number)" && exit 1; }
done

# build.sh says in one line what is built, and all of CMake's text where that fails.
fake bin/cmake <<'TEXT'
echo "cmake $*" >>"$CALLS"
[[ $1 != --build ]] || exit 0
printf -- '-- The CXX compiler\n-- Building for the CPU: no GPU\n-- Configuring done\n'
exit "${CMAKE_FAILS:-0}"
TEXT
build="$tmp/cmake/build.sh"
expect 0 'Building for the CPU: no GPU' "$build" one two -- -DX=1
[[ $(<"$tmp/calls") == "cmake --preset auto -DX=1"$'\n'"cmake --build build --parallel "*" --target one two" ]] ||
  { echo "FAILED: build.sh called $(<"$tmp/calls")" && exit 1; }
LOCKSTEP_CUDA=OFF expect 0 'Building.*' "$build"
grep -q -- '--preset auto -DLOCKSTEP_CUDA=OFF$' "$tmp/calls" || { echo "FAILED: LOCKSTEP_CUDA=OFF is lost" && exit 1; }
CMAKE_FAILS=1 expect 1 '-- The CXX.*done' "$build"

# The quickstart trains on all GPUs that the batch divides by, if the build is for GPUs.
mkdir "$tmp/examples" && cp "$source_dir/examples/quickstart.sh" "$tmp/examples"
fake cmake/bootstrap.sh <<<''
fake cmake/build.sh <<<''
fake build/bin/lockstep <<'TEXT'
[[ $1 == --version ]] || exit 0
printf 'lockstep 0.1.0\n  CUDA   %s\n' "${BUILT_FOR:-no: build with CUDA 12.4}"
TEXT
trains() { expect 0 ".*train lenet $1 --global-batch 128 .*" "$tmp/examples/quickstart.sh"; }
trains '--device cpu --ranks 2'
GPUS='9.0 9.0' trains '--device cpu --ranks 2'
export BUILT_FOR=13.0.88
trains '--device cpu --ranks 2'
GPUS=9.0 trains '--device cuda --ranks 1'
GPUS='9.0 9.0' trains '--device cuda --ranks 2'
GPUS='9.0 9.0 9.0' trains '--device cuda --ranks 2'
GPUS='9.0 9.0' CUDA_VISIBLE_DEVICES=1 trains '--device cuda --ranks 1'
GPUS='9.0 9.0' CUDA_VISIBLE_DEVICES='' trains '--device cpu --ranks 2'
