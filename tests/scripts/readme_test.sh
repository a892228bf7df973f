#!/usr/bin/env bash
# Runs the commands that README.md and the lessons' pages tell a reader to type, in the order in which they stand there.
# usage: readme_test.sh BIN_DIRECTORY       (what it does not run: the two scripts, which the continuous integration does)
set -euo pipefail
source_dir=$(cd "$(dirname "$0")/../.." && pwd)
bin=$(cd "$1" && pwd)

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
mkdir "$tmp/build"
ln -s "$bin" "$tmp/build/bin"
cd "$tmp"

# Indented lines that start with a program of the build; what stands in brackets is optional.
mapfile -t commands < <(sed -n 's/^    \(build\/bin\/[^[]*\).*/\1/p' "$source_dir"/README.md "$source_dir"/docs/lesson_*.md)
if [[ ${#commands[@]} -lt 7 ]]; then
  echo "FAILED: expected the README's four commands and three lessons, found ${#commands[@]}"
  exit 1
fi
for command in "${commands[@]}"; do
  echo "$ $command"
  if [[ $command == *"# on GPUs" ]] && ! nvidia-smi -L >/dev/null 2>&1; then
    # Understood, and refused for the one reason.
    refusal=$(bash -c "$command" 2>&1 </dev/null) && status=0 || status=$?
    [[ $status -eq 2 && $refusal == *"expected a GPU"* ]] || { echo "FAILED: $status and '$refusal'" && exit 1; }
  else
    bash -c "$command" </dev/null
  fi
done

# Every page and folder that the README links to is there.
for link in $(grep -oP '\]\(\K[^)#]+' "$source_dir/README.md"); do
  [[ -e $source_dir/$link ]] || { echo "FAILED: README.md links to $link, which is not there" && exit 1; }
done
