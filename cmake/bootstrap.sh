#!/usr/bin/env bash
# Installs the Debian packages that are missing, and for GPUs the wheels of PyPI. Needs the network only where something
# is missing, and root where that is a package.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: cmake/bootstrap.sh [--yes | --no-install | --print] [PURPOSE...]

Installs what is missing for each PURPOSE: build (the default), cuda, data, test, ci.

cuda is what a build for GPUs needs beside nvcc: NCCL, cuDNN and its C++ front end. Where the system has them, nothing
is downloaded; else wheels of PyPI go into build/deps. It is part of build where there is a GPU and nvcc 12.4 or later,
and LOCKSTEP_CUDA=OFF is not in the environment.

  --yes          install without asking
  --no-install   install nothing: if something is missing, say what would bring it and end with 2
  --print        list each package with its CMake name or command, for machines without apt
TEXT
}

# Purpose, Debian package, the name it has in CMake (or its command).
packages() {
  cat <<'TABLE'
build  g++                    a C++20 compiler
build  cmake                  cmake 3.25 or later
build  ninja-build            ninja (or make)
build  libeigen3-dev          Eigen3
build  libspdlog-dev          spdlog
build  libfmt-dev             fmt
build  libcli11-dev           CLI11
build  nlohmann-json3-dev     nlohmann_json
build  zlib1g-dev             ZLIB
build  libgloo-dev            Gloo (optional: several CPU ranks)
wheels python3-venv           python3 -m venv
data   dataset-fashion-mnist  the files in /usr/share/datasets/fashion-mnist
test   libgtest-dev           GTest
test   libbenchmark-dev       benchmark (optional: benchmarks of ops)
test   openmpi-bin            mpirun
test   ccache                 ccache (optional: quicker rebuilds)
ci     clang-format-14        clang-format-14
ci     chromium               chromium
TABLE
}

die() {
  echo "bootstrap.sh: $1" >&2
  exit "${2:-1}"
}

missing_packages() {  # of the purposes given
  local wanted
  wanted=$(packages | awk -v purposes=" $* " 'index(purposes, " " $1 " ") { print $2 }')
  [[ -n $wanted ]] || return 0
  # shellcheck disable=SC2086 # one argument a package
  comm -13 <(dpkg-query --show --showformat '${db:Status-Abbrev}${Package}\n' $wanted 2>/dev/null |
    sed -n 's/^ii //p' | sort) <(sort <<<"$wanted")
}

install_packages() {  # ROOT_COMMAND PACKAGE...
  local as_root=$1 log
  shift
  echo "bootstrap.sh: installing $*"
  local apt=(env DEBIAN_FRONTEND=noninteractive apt-get -o Acquire::Retries=1 -o Acquire::http::Timeout=20)
  [[ -z $as_root ]] || apt=("$as_root" "${apt[@]}")
  log=$({
    "${apt[@]}" update
    "${apt[@]}" install --yes --no-install-recommends "$@"
  } 2>&1 </dev/null) || die "cannot install $*: $(grep -m 1 -E '^(W|E):' <<<"$log" || tail -n 1 <<<"$log")"
}

mode=ask
purposes=()
for argument in "$@"; do
  case $argument in
    --yes) mode=yes ;;
    --no-install) mode=no-install ;;
    --print) mode=print ;;
    --help) usage && exit ;;
    build | cuda | data | test | ci) purposes+=("$argument") ;;
    *) usage >&2 && exit 2 ;;
  esac
done
[[ ${#purposes[@]} -gt 0 ]] || purposes=(build)

if [[ $mode == print ]]; then
  packages
  exit
fi

cuda=$(dirname "$0")/cuda.sh
wants() { [[ " ${purposes[*]} " == *" $1 "* ]]; }
if wants build; then
  case ${LOCKSTEP_CUDA:-AUTO} in
    AUTO) ! "$cuda" architectures >/dev/null 2>&1 || purposes+=(cuda) ;;
    ON) purposes+=(cuda) ;;
  esac
fi
wheels=()
if wants cuda; then
  # What a shell warns of comes first on standard error, and is no failure.
  found=$("$cuda" missing 2>/dev/null) || die "$("$cuda" missing 2>&1 >/dev/null | tail -n 1)" 2
  read -ra wheels -d '' <<<"$found" || true
fi
[[ ${#wheels[@]} -eq 0 ]] || python3 -c 'import ensurepip' 2>/dev/null || purposes+=(wheels)

missing=()
if command -v dpkg-query >/dev/null; then
  mapfile -t missing < <(missing_packages "${purposes[@]}")
else
  echo "bootstrap.sh: not a Debian system, so no package is checked; cmake/bootstrap.sh --print lists what is needed"
fi
[[ ${#missing[@]} -gt 0 || ${#wheels[@]} -gt 0 ]] || exit 0

as_root=
[[ $EUID -eq 0 ]] || as_root=sudo
remedy=
[[ ${#missing[@]} -eq 0 ]] || remedy="${as_root:+sudo }apt-get install ${missing[*]}"
[[ ${#wheels[@]} -eq 0 ]] || remedy+="${remedy:+, }cmake/bootstrap.sh cuda (for ${wheels[*]})"

if [[ $mode == no-install ]]; then
  die "missing packages: $remedy" 2
fi
if [[ -t 0 && $mode == ask ]]; then
  read -rp "Install ${missing[*]}${wheels[*]:+${missing[*]:+, }${wheels[*]} into build/deps}? [Y/n] " answer
  [[ $answer =~ ^[Yy]?$ ]] || die "nothing installed: $remedy" 2
elif [[ ${#missing[@]} -gt 0 && $EUID -ne 0 && ! -t 0 ]] && ! sudo -n true 2>/dev/null; then
  die "installing needs root: $remedy" 2
fi

[[ ${#missing[@]} -eq 0 ]] || install_packages "$as_root" "${missing[@]}"
# A C++ compiler that came only now may find in the system what seemed to be missing.
[[ ${#wheels[@]} -eq 0 || ${#missing[@]} -eq 0 ]] || mapfile -t wheels < <("$cuda" missing)
if [[ ${#wheels[@]} -gt 0 ]]; then
  echo "bootstrap.sh: installing ${wheels[*]} into build/deps"
  log=$("$cuda" install "${wheels[@]}" 2>&1) ||
    die "cannot install ${wheels[*]}: $log (LOCKSTEP_CUDA=OFF builds for the CPU)"
fi
