#!/usr/bin/env bash
# Installs what is missing, builds everything and runs the tests that this machine can run.
# usage: tests/run.sh [--yes | --no-install] [--label LABEL] [-- CMAKE_OPTION...]
#   --label LABEL   only the tests with this label (gpu, browser, mpi, slow); what they need must be there
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
  sed -n '3,4s/^# //p' "$0" >&2
  exit 2
}

install=()
label=
while [[ $# -gt 0 && $1 != -- ]]; do
  case $1 in
    --yes | --no-install) install+=("$1") ;;
    --label)
      label=${2:-}
      [[ -n $label ]] || usage
      shift
      ;;
    *) usage ;;
  esac
  shift
done

absent() {  # what the tests labelled $1 need and this machine does not have
  case $1 in
    gpu) nvidia-smi -L >/dev/null 2>&1 || echo "no NVIDIA GPU" ;;
    browser) command -v chromium >/dev/null || echo "no chromium" ;;
    mpi) command -v mpirun >/dev/null || echo "no mpirun" ;;
  esac
}

cmake/bootstrap.sh "${install[@]}" build data test
if [[ -n $label && -n $(absent "$label") ]]; then
  echo "tests/run.sh: tests labelled $label were asked for: $(absent "$label") here" >&2
  exit 1
fi
cmake/build.sh "$@"

ctest=(ctest --test-dir build --output-on-failure --no-tests=error --parallel "$(nproc)")
if [[ -n $label ]]; then
  exec "${ctest[@]}" --label-regex "^$label\$"
fi
exclude=none
for needy in gpu browser mpi; do
  reason=$(absent "$needy")
  [[ -n $reason ]] || continue
  exclude+="|$needy"
  ctest --test-dir build --show-only --label-regex "^$needy\$" |
    sed -n "s/^ *Test *#[0-9]*: \(.*\)/not run: \1 ($reason)/p"
done
exec "${ctest[@]}" --label-exclude "^($exclude)\$"
