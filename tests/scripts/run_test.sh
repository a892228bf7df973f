#!/usr/bin/env bash
# tests/run.sh: what was asked for and is not there is a failure, before anything is built.
set -euo pipefail
cd "$(dirname "$0")/../.."
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
printf '#!/bin/sh\nexit 9\n' >"$tmp/nvidia-smi"
chmod +x "$tmp/nvidia-smi"

status=0
output=$(PATH="$tmp:$PATH" tests/run.sh --no-install --label gpu 2>&1) || status=$?
[[ $status -eq 1 && $output == *"labelled gpu were asked for: no NVIDIA GPU here"* ]] || {
  echo "FAILED: expected 1 and a line about the GPU, got $status and '$output'"
  exit 1
}
status=0
output=$(tests/run.sh --label 2>&1) || status=$?
[[ $status -eq 2 && $output == usage:* ]] || { echo "FAILED: expected 2 and the usage, got $status and '$output'" && exit 1; }
