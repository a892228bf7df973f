#!/usr/bin/env bash
# Installs the Debian packages that are missing. Needs the network, and root, only where one is missing.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: cmake/bootstrap.sh [--yes | --no-install | --print] [PURPOSE...]

Installs what is missing for each PURPOSE: build (the default), data, test, ci.

  --yes          install without asking
  --no-install   install nothing: if a package is missing, print the apt line and end with 2
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
data   dataset-fashion-mnist  the files in /usr/share/datasets/fashion-mnist
test   libgtest-dev           GTest
test   libbenchmark-dev       benchmark (optional: benchmarks of ops)
test   openmpi-bin            mpirun
test   ccache                 ccache (optional: quicker rebuilds)
ci     clang-format-14        clang-format-14
TABLE
}

die() {
  echo "bootstrap.sh: $1" >&2
  exit "${2:-1}"
}

missing_packages() {  # of the purposes given
  local wanted
  wanted=$(packages | awk -v purposes=" $* " 'index(purposes, " " $1 " ") { print $2 }')
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
    build | data | test | ci) purposes+=("$argument") ;;
    *) usage >&2 && exit 2 ;;
  esac
done
[[ ${#purposes[@]} -gt 0 ]] || purposes=(build)

if [[ $mode == print ]]; then
  packages
  exit
fi
if ! command -v dpkg-query >/dev/null; then
  echo "bootstrap.sh: not a Debian system, so nothing is checked; cmake/bootstrap.sh --print lists what is needed"
  exit
fi

mapfile -t missing < <(missing_packages "${purposes[@]}")
[[ ${#missing[@]} -gt 0 ]] || exit 0
apt_line="apt-get install ${missing[*]}"

as_root=
if [[ $EUID -ne 0 ]]; then
  as_root=sudo
  apt_line="sudo $apt_line"
fi
if [[ $mode == no-install ]]; then
  die "missing packages: $apt_line" 2
fi
if [[ -t 0 && $mode == ask ]]; then
  read -rp "Install ${missing[*]}? [Y/n] " answer
  [[ $answer =~ ^[Yy]?$ ]] || die "nothing installed: $apt_line" 2
elif [[ $EUID -ne 0 && ! -t 0 ]] && ! sudo -n true 2>/dev/null; then
  die "installing needs root: $apt_line" 2
fi
install_packages "$as_root" "${missing[@]}"
