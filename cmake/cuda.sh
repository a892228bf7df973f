#!/usr/bin/env bash
# What a build for GPUs finds on this machine, and what it lacks. bootstrap.sh and CMake (LOCKSTEP_CUDA=AUTO) ask.
# usage: cmake/cuda.sh architectures     of the GPUs here, such as 90 or 80;90; where no build for them is possible, one
#                                        line that says why, and 1
#        cmake/cuda.sh missing           the wheels of PyPI for what neither the system nor build/deps has
#        cmake/cuda.sh install WHEEL...  puts them into build/deps, a virtual environment that holds nothing else
set -euo pipefail
cd "$(dirname "$0")/.."

stop() {
  echo "$1" >&2
  exit 1
}

find_nvcc() {  # sets nvcc and nvcc_version
  nvcc=${CUDACXX:-$(command -v nvcc || echo "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc")}
  nvcc_version=$({ "$nvcc" --version 2>/dev/null || true; } | sed -n 's/.*release \([0-9.]*\),.*/\1/p')
  [[ -n $nvcc_version ]] || stop "no nvcc on PATH, in CUDA_HOME or in CUDACXX (CUDA 12.4 or later is needed)"
  sort --version-sort --check=quiet <<<"12.4"$'\n'"$nvcc_version" ||
    stop "nvcc $nvcc_version is too old (CUDA 12.4 or later is needed)"
}

architectures() {
  local gpus known gpu
  gpus=$({ nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null || true; } |
    sed -n 's/^\([0-9]*\)\.\([0-9]\)$/\1\2/p' | sort --numeric-sort --unique)
  [[ -n $gpus ]] || stop "no GPU that nvidia-smi knows"
  find_nvcc
  known=$("$nvcc" --list-gpu-arch)
  for gpu in $gpus; do
    ((gpu >= 80)) || stop "the GPU here (sm_$gpu) is too old (sm_80 or later is needed)"
    grep --quiet "^compute_$gpu\$" <<<"$known" || stop "nvcc $nvcc_version makes no code for the GPU here (sm_$gpu)"
  done
  paste --serial --delimiters=';' <<<"$gpus"
}

# Name in CMake, header, the oldest version that will do, library, wheel. NCCL's and cuDNN's wheels are those of PyTorch
# 2.11, so that a comparison with it measures the same libraries.
libraries() {  # CUDA_MAJOR_VERSION
  cat <<TABLE
NCCL          nccl.h                   NCCL_VERSION_CODE>=21800       -lnccl  nvidia-nccl-cu$1==2.28.9
cuDNN         cudnn_version.h          CUDNN_VERSION>=90000           -lcudnn nvidia-cudnn-cu$1==9.19.0.56
cuDNNFrontend cudnn_frontend_version.h CUDNN_FRONTEND_VERSION>=11800  -lc     nvidia-cudnn-frontend==1.32.0
TABLE
}

system_has() {  # NAME HEADER CONDITION LIBRARY: a program with them compiles and links
  local root=${1}_ROOT toolkit prefix search=()
  toolkit=$(dirname "$(dirname "$(realpath "$nvcc")")")
  for prefix in ${!root:-} "$toolkit"; do search+=("-I$prefix/include" "-L$prefix/lib64" "-L$prefix/lib"); done
  # shellcheck disable=SC2086 # CXX may hold options
  printf '#include <%s>\n#if !(%s)\n#error too old\n#endif\nint main() {}\n' "$2" "$3" |
    ${CXX:-c++} -x c++ - "${search[@]}" "$4" -o /dev/null 2>/dev/null
}

missing() {
  local needed=() absent=false name header condition library wheel info
  find_nvcc
  while read -r name header condition library wheel; do
    ! system_has "$name" "$header" "$condition" "$library" || continue
    needed+=("$wheel")
    info=${wheel//-/_}
    compgen -G "build/deps/lib/python3*/site-packages/${info/==/-}.dist-info" >/dev/null || absent=true
  done < <(libraries "${nvcc_version%%.*}")
  # All or nothing: wheels for another CUDA lie in the same places.
  ! $absent || printf '%s\n' "${needed[@]}"
}

install() {
  local log
  log=$({ python3 -m venv --clear build/deps && build/deps/bin/pip install --no-deps --only-binary :all: "$@"; } 2>&1) ||
    stop "$(grep --max-count=1 ERROR <<<"$log" || tail -n 1 <<<"$log")"
}

case ${1:-} in
  architectures | missing | install) "$@" ;;
  *) sed -n '3,6s/^# //p' "$0" >&2 && exit 2 ;;
esac
