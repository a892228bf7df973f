#!/usr/bin/env bash
# cmake/bootstrap.sh against a dpkg-query, an apt-get and a sudo of our own: nothing is installed.
. "$(dirname "$0")/fakes.sh"
cp "$source_dir"/cmake/{bootstrap,cuda}.sh "$tmp/cmake"

# Every package asked for is installed, but for those in $MISSING.
fake bin/dpkg-query <<'TEXT'
for package in "${@:3}"; do
  [[ " $MISSING " == *" $package "* ]] || echo "ii $package"
done
TEXT
fake bin/apt-get <<'TEXT'
echo "apt-get $*" >>"$CALLS"
[[ -z "${APT_FAILS-}" ]] || { echo "E: Unable to fetch some archives" && exit 100; }
TEXT
fake bin/sudo <<'TEXT'
[[ -z "${SUDO_FAILS-}" ]] || exit 1
[[ $1 != -n ]] || shift
exec "$@"
TEXT
export MISSING=

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
bootstrap="$tmp/cmake/bootstrap.sh"

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
mkdir "$tmp/bare" && ln -s "$(command -v cat)" "$(command -v dirname)" "$tmp/bare"
expect 0 "${line}not a Debian system$line" env PATH="$tmp/bare" "$BASH" "$bootstrap"

# For GPUs: wheels, where the system lacks them and a build for GPUs is possible.
fake bin/python3 <<'TEXT'
[[ $1 != -c ]] || exit "${NO_VENV:-0}"
[[ "$*" == "-m venv --clear build/deps" ]] || exit 1
rm -rf build/deps && mkdir -p build/deps/bin build/deps/lib/python3.9/site-packages
cat >build/deps/bin/pip <<'PIP'
#!/bin/bash
[[ -z "${PIP_FAILS-}" ]] || { echo "ERROR: No matching distribution" && exit 1; }
for wheel in "${@:4}"; do
  echo "pip $wheel" >>"$CALLS"
  name=${wheel//-/_} && mkdir "build/deps/lib/python3.9/site-packages/${name/==/-}.dist-info"
done
PIP
chmod 755 build/deps/bin/pip
TEXT
expect_wheels() {  # CUDA_MAJOR_VERSION: what the last command installed; nothing without it
  local wheels
  wheels=$(sed -n 's/^pip \(.*\)==.*/\1/p' "$tmp/calls" | paste -sd' ')
  [[ $wheels == "${1+nvidia-nccl-cu$1 nvidia-cudnn-cu$1 nvidia-cudnn-frontend}" ]] ||
    { echo "FAILED: expected the wheels for CUDA ${1-none}, got '$wheels'" && exit 1; }
}
export MISSING='' CXX="c++ -nostdinc"  # a system without headers
wheels="nvidia-nccl-cu12==$line nvidia-cudnn-cu12==$line nvidia-cudnn-frontend==$line"

expect 0 '' "$bootstrap" --no-install                         # no GPU
GPUS=9.0 expect 0 '' "$bootstrap" --no-install                # no nvcc
GPUS=9.0 NVCC=12.3 expect 0 '' "$bootstrap" --no-install      # an old nvcc
NVCC=12.4 expect 0 '' "$bootstrap" --no-install               # a toolkit alone
GPUS=9.0 NVCC=12.4 expect 0 '' "$bootstrap" --no-install data # nothing is built
GPUS=9.0 NVCC=12.4 LOCKSTEP_CUDA=OFF expect 0 '' "$bootstrap" --no-install
expect 2 "${line}no nvcc$line" "$bootstrap" --no-install cuda
NVCC=12.4 expect 2 "${line}cmake/bootstrap.sh cuda \(for $wheels\)" "$bootstrap" --no-install cuda
NVCC=12.4 LC_ALL=of_nowhere expect 2 ".*: cmake/bootstrap.sh cuda \(for $wheels\)" "$bootstrap" --no-install cuda
LC_ALL=of_nowhere expect 2 ".*: no nvcc$line" "$bootstrap" --no-install cuda
NVCC=12.4 LOCKSTEP_CUDA=ON expect 2 "$line \(for $wheels\)" "$bootstrap" --no-install
expect_wheels

export GPUS=9.0 NVCC=12.4
MISSING="python3-venv" expect 2 "$line: cmake/bootstrap.sh cuda \(for $wheels\)" "$bootstrap" --no-install
NO_VENV=1 MISSING="python3-venv zlib1g-dev" expect 2 \
  "${line}apt-get install python3-venv zlib1g-dev, cmake/bootstrap.sh cuda \(for $wheels\)" "$bootstrap" --no-install
PIP_FAILS=1 expect 1 "${line}installing $wheels into build/deps"$'\n'"${line}cannot install $wheels: ERROR: No matching$line" \
  "$bootstrap" --yes
expect 2 ".*Install $wheels into build/deps\?.*nothing installed.*" on_terminal n "$bootstrap"
expect_wheels
MISSING=zlib1g-dev expect 0 ".*Install zlib1g-dev, $wheels into build/deps\?.*installing.*" on_terminal y "$bootstrap"
expect_installed zlib1g-dev
expect_wheels 12
expect 0 '' "$bootstrap" --yes
NVCC=13.0 expect 0 "${line}installing $line into build/deps" "$bootstrap" --yes
expect_wheels 13
expect 0 "${line}installing $line into build/deps" "$bootstrap" --yes  # those for CUDA 13 had taken their place
expect_wheels 12
