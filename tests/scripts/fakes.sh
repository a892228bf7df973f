# Sourced by the tests of scripts: a copy of what they test in $tmp, and commands of our own before the system's.
set -euo pipefail
source_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
chmod 755 "$tmp"
mkdir "$tmp/bin" "$tmp/cmake"
touch "$tmp/calls" && chmod 666 "$tmp/calls"
unset CPATH LIBRARY_PATH LOCKSTEP_CUDA CUDA_VISIBLE_DEVICES
export PATH="$tmp/bin:$PATH" CALLS="$tmp/calls"

fake() {  # PATH below $tmp: a command that runs the script on standard input
  mkdir -p "$(dirname "$tmp/$1")"
  { echo '#!/bin/bash' && cat; } >"$tmp/$1"
  chmod 755 "$tmp/$1"
}
# A machine's GPUs and its CUDA toolkit: $GPUS (such as "9.0 8.0"), $NVCC (such as 12.4), or none where they are empty.
fake bin/nvidia-smi <<'TEXT'
[[ -n ${GPUS-} ]] || exit 9
case $* in
  *compute_cap*) printf '%s\n' $GPUS ;;
  *index*) i=0 && for gpu in $GPUS; do echo $((i++)); done ;;
esac
TEXT
fake bin/nvcc <<'TEXT'
[[ -n ${NVCC-} ]] || exit 127
case $1 in
  --version) echo "Cuda compilation tools, release $NVCC, V$NVCC.88" ;;
  --list-gpu-arch) printf 'compute_%s\n' 75 80 90 ;;
esac
TEXT
export GPUS='' NVCC='' CUDACXX='' CUDA_HOME="$tmp/none"

expect() {  # CODE PATTERN COMMAND...: ends with CODE and prints one match of PATTERN (nothing where it is empty)
  local code=$1 pattern=$2 output status=0
  shift 2
  : >"$tmp/calls"
  output=$("$@" 2>&1 </dev/null) || status=$?
  if [[ $status -ne $code ]] || ! [[ $output =~ ^$pattern$ ]]; then
    printf 'FAILED: %s\n  expected %s and "%s"\n  got      %s and "%s"\n' "$*" "$code" "$pattern" "$status" "$output"
    exit 1
  fi
}
line=$'[^\n]*'
