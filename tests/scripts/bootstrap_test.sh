#!/usr/bin/env bash
# cmake/bootstrap.sh against a dpkg-query, an apt-get and a sudo of our own: nothing is installed.
set -euo pipefail
source_dir=$(cd "$(dirname "$0")/../.." && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
chmod 755 "$tmp"
cp "$source_dir/cmake/bootstrap.sh" "$tmp"
touch "$tmp/calls" && chmod 666 "$tmp/calls"

mkdir "$tmp/bin"
fake() {  # NAME: a command that runs the script on standard input
  { echo '#!/bin/bash' && cat; } >"$tmp/bin/$1"
  chmod 755 "$tmp/bin/$1"
}
# Every package asked for is installed, but for those in $MISSING.
fake dpkg-query <<'TEXT'
for package in "${@:3}"; do
  [[ " $MISSING " == *" $package "* ]] || echo "ii $package"
done
TEXT
fake apt-get <<'TEXT'
echo "apt-get $*" >>"$CALLS"
[[ -z "${APT_FAILS-}" ]] || { echo "E: Unable to fetch some archives" && exit 100; }
TEXT
fake sudo <<'TEXT'
[[ -z "${SUDO_FAILS-}" ]] || exit 1
[[ $1 != -n ]] || shift
exec "$@"
TEXT
export PATH="$tmp/bin:$PATH" CALLS="$tmp/calls" MISSING=

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
expect_installed() {  # PACKAGE...: what the last command asked apt-get to install
  local installed
  installed=$(sed -n 's/^apt-get .* install --yes --no-install-recommends //p' "$tmp/calls")
  [[ $installed == "$*" ]] || { echo "FAILED: expected to install '$*', got '$installed'" && exit 1; }
}
as_user() {
  if [[ $EUID -eq 0 ]]; then setpriv --reuid=65534 --clear-groups "$@"; else "$@"; fi
}
on_terminal() {  # ANSWER COMMAND
  script --quiet --return --command "$2" /dev/null <<<"$1"
}
bootstrap="$tmp/bootstrap.sh"
line=$'[^\n]*'

expect 0 '.*libeigen3-dev +Eigen3.*' "$bootstrap" --print
printed=$("$bootstrap" --print)
packages=$(grep -rhoP --include=CMakeLists.txt --include=dependencies.cmake 'find_package\(\K\w+' "$source_dir" | sort -u)
for name in $packages; do
  case $name in
    Threads | OpenMP | CUDAToolkit | NCCL | cuDNN | cuDNNFrontend | Lockstep) ;;
    *) grep -qw "$name" <<<"$printed" || { echo "FAILED: --print has no package for $name" && exit 1; } ;;
  esac
done

expect 0 '' "$bootstrap" build data test ci
expect 0 '' as_user "$bootstrap" build data test ci
expect_installed

export MISSING="zlib1g-dev libgtest-dev"
expect 2 "${line}apt-get install zlib1g-dev" "$bootstrap" --no-install
expect 2 "${line}apt-get install libgtest-dev zlib1g-dev" "$bootstrap" --no-install build test
expect 0 '' "$bootstrap" --no-install data
expect_installed

expect 0 "${line}installing zlib1g-dev" "$bootstrap"
expect_installed zlib1g-dev
APT_FAILS=1 expect 1 "${line}"$'\n'"${line}cannot install libgtest-dev: E: Unable to fetch$line" "$bootstrap" --yes test
expect 0 "${line}installing zlib1g-dev" as_user "$bootstrap"
SUDO_FAILS=1 expect 2 "${line}needs root: sudo apt-get install zlib1g-dev" as_user "$bootstrap"
expect_installed

expect 2 '.*Install zlib1g-dev\?.*nothing installed.*' on_terminal n "$bootstrap"
expect_installed
expect 0 '.*Install zlib1g-dev\?.*installing zlib1g-dev.*' on_terminal y "$bootstrap"
expect_installed zlib1g-dev
expect 0 '[^?]*installing zlib1g-dev[^?]*' on_terminal n "$bootstrap --yes"

expect 2 'usage:.*' "$bootstrap" --nonsense
mkdir "$tmp/bare" && ln -s "$(command -v cat)" "$tmp/bare/cat"
expect 0 "${line}not a Debian system$line" env PATH="$tmp/bare" "$BASH" "$bootstrap"
