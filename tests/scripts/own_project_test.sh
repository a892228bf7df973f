#!/usr/bin/env bash
# A project that adds Lockstep by add_subdirectory builds without its command, tests and options, and trains.
# usage: own_project_test.sh BUILD_DIRECTORY [CMAKE_OPTION...]
set -euo pipefail
project=$(cd "$(dirname "$0")/../../examples/own_project" && pwd)
build=$1
shift

cmake -S "$project" -B "$build" "$@"
cmake --build "$build" --parallel "$(nproc)"
output=$("$build/own_project")
echo "$output"
accuracy=$(sed -n 's/^accuracy \([0-9.]*\) on 2 ranks$/\1/p' <<<"$output")
if ! awk -v accuracy="${accuracy:-0}" 'BEGIN { exit accuracy < 0.95 }'; then
  echo "FAILED: expected an accuracy of at least 0.95 on 2 ranks"
  exit 1
fi
