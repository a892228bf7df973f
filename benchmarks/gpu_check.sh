#!/usr/bin/env bash
# Runs programs that were built elsewhere on a machine with GPUs, where CUDA's libraries are those that PyTorch brings.
# usage: benchmarks/gpu_check.sh FOLDER [FILTER]          every *_test in FOLDER with the GoogleTest filter, by default *Gpu*
#        benchmarks/gpu_check.sh FOLDER -- COMMAND ...    a command in that environment
# FOLDER also holds `lockstep` and the shared libraries that come with it. Logs go to GPU_CHECK_LOGS, if it is set.
set -euo pipefail

[[ $# -ge 1 && -d $1 ]] || { sed -n '3,4s/^# //p' "$0" >&2; exit 2; }
folder=$(cd "$1" && pwd)
shift

# cuBLAS, cuDNN and NCCL: nvidia/*/lib beside PyTorch.
libraries=$(python3 - <<'PYTHON'
import glob, importlib.util, os
spec = importlib.util.find_spec("nvidia")
roots = list(spec.submodule_search_locations) if spec else []
print(":".join(sorted(lib for root in roots for lib in glob.glob(os.path.join(root, "*", "lib")))))
PYTHON
)
export LD_LIBRARY_PATH=$folder:$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LOCKSTEP_COMMAND=$folder/lockstep
export NCCL_NVLS_ENABLE=${NCCL_NVLS_ENABLE:-0}

if [[ ${1:-} == -- ]]; then
  shift
  exec "$@"
fi

filter=${1:-*Gpu*}
logs=${GPU_CHECK_LOGS:-$(mktemp -d)}
table=()
failed=0
for program in "$folder"/*_test; do
  name=$(basename "$program")
  log=$logs/$name.log
  start=$SECONDS
  echo "=== $name"
  timeout -k 10 300 "$program" --gtest_filter="$filter" 2>&1 | tee "$log" |
    { grep -vE '^\[( RUN|  *OK|  SKIPPED|-----)|Skipped$|^$' || true; } && code=0 || code=$?
  count() { grep -c "^\[ *$1 *\] [^ ]*\.[^ ]* (" "$log" || true; }
  table+=("$(printf '%-18s %6s %8s %7s %6s %5d s' "$name" "$(count OK)" "$(count SKIPPED)" "$(count FAILED)" "$code" \
    $((SECONDS - start)))")
  while read -r case; do
    table+=("    failed: $case")
  done < <(sed -n 's/^\[ *FAILED *\] \([^ ]*\.[^ ]*\) (.*/\1/p' "$log")
  [[ $code == 0 ]] || failed=1
done
echo
nvidia-smi --query-gpu=index,name,driver_version --format=csv,noheader 2>/dev/null || echo "no nvidia-smi"
echo "logs in $logs"
printf '%-18s %6s %8s %7s %6s %7s\n' program passed skipped failed code time
printf '%s\n' "${table[@]}"
exit "$failed"
