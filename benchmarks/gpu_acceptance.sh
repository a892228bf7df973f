#!/usr/bin/env bash
# What a release must show on GPUs, in parts; one takes ten minutes or more. Programs as for gpu_check.sh, and beside them
# train_step_benchmark and libgpu_trace.so; python3 has PyTorch. The table at the end has a line for each command: its
# exit code, its seconds and what it said last. The whole output lies in LOGS.
# usage: benchmarks/gpu_acceptance.sh FOLDER LOGS PART...
#   tests        all tests for GPUs; on one GPU those of several ranks too, over the host's network
#   sanitizers   memcheck and initcheck of steps, racecheck of the kernels
#   speed        idle time within a captured step; the step side by side with PyTorch
#   scaling      two GPUs: the step side by side with PyTorch over NVLink and without it
#   links        two GPUs: what is wrong with the machine, the switch on PyTorch's program, the whole comparison
set -euo pipefail

usage() {
  sed -n '5,10s/^# //p' "$0" >&2
  exit 2
}
[[ $# -ge 3 && -d $1 ]] || usage
here=$(cd "$(dirname "$0")" && pwd)
folder=$(cd "$1" && pwd)
mkdir -p "$2"
logs=$(cd "$2" && pwd)
shift 2

gpus=$(nvidia-smi --list-gpus | wc -l)
table=()
failed=0

line() {  # NAME LIMIT_S COMMAND...
  local name=$1 limit=$2 log=$logs/${1//[^A-Za-z0-9_.-]/_}.log start=$SECONDS code=0 said
  shift 2
  timeout -k 10 "$limit" "$here/gpu_check.sh" "$folder" -- "$@" >"$log" 2>&1 || code=$?
  said=$(grep -avE '^[[:space:]]*$|^\[-|FAILED TEST|^record:' "$log" | tail -1 | cut -c1-150 || true)
  table+=("$(printf '%-44s %4s %4d s  %s' "$name" "$code" $((SECONDS - start)) "$said")")
  [[ $code == 0 ]] || failed=1
  printf '%s\n' "${table[-1]}"
}

compare() {  # NAME OPTION...
  local name=$1
  shift
  line "beside PyTorch: $name" 500 ${switch:-} python3 "$here/compare.py" --device cuda \
    --lockstep "$folder/train_step_benchmark" --commit "$(cat "$folder/commit" 2>/dev/null || echo unknown)" \
    --cache "$logs/../torch_cache" --out "$logs/${name//[^A-Za-z0-9]/_}.json" "$@"
}

tests() {
  local program
  for program in "$folder"/*_test; do
    line "$(basename "$program")" 300 env LOCKSTEP_SHARE_GPUS=0 "$program" --gtest_filter='*Gpu*'
  done
  [[ $gpus == 1 ]] || return 0
  for program in train_test distributed_test cli_test; do
    line "$program, ranks that share the GPU" 300 env LOCKSTEP_SHARE_GPUS=1 "$folder/$program" --gtest_filter='*Gpu*'
  done
}

sanitized() {  # TOOL LIMIT_S PROGRAM OPTION...; the line is named after the last option
  line "$1, ${*: -1}" "$2" compute-sanitizer --error-exitcode 9 --tool "$1" "${@:3}"
}

sanitizers() {
  local step=("$folder/train_step_benchmark" --device cuda --warmup 2 --steps 2)
  sanitized memcheck 120 "${step[@]}" --model mlp
  sanitized memcheck 120 "${step[@]}" --model lenet
  sanitized memcheck 240 "${step[@]}" --batch-per-rank 2 --precision bf16 --model vgg16
  # It does not see what kernels of cuBLAS and cuDNN write by TMA, as in bf16: there LeNet runs with the plan that it has by
  # itself, of own kernels. Under the tool the libraries' may come out as faster.
  sanitized initcheck 120 "${step[@]}" --model mlp
  sanitized initcheck 120 "${step[@]}" --model lenet
  local own=("$folder/lockstep" measure lenet --device cuda --ranks 1 --alone --warmup 1 --steps 2
    --plan "$logs/lenet.plan" --precision bf16)
  line "plan, lenet in bf16" 60 "${own[@]}"
  sanitized initcheck 120 "${own[@]}"
  # cuDNN's own data gradients have hazards inside them; optimizers share no memory, and their tests are long.
  sanitized racecheck 300 "$folder/kernels_test" \
    --gtest_filter='*Gpu*-GpuConv2d.EveryPlanOfCudnnAgrees:GpuKernels.Sgd:GpuKernels.AdamW'
}

idle() {  # MODEL PRECISION BATCH
  local trace=$logs/trace_$1_$2.csv
  line "idle within a captured step, $1 $2" 120 bash -o pipefail -c '
    CUDA_INJECTION64_PATH=$1/libgpu_trace.so GPU_TRACE_FILE=$3 "$1/train_step_benchmark" --device cuda --warmup 20 \
      --steps 100 --model "$4" --precision "$5" --batch-per-rank "$6" &&
    python3 "$2/gpu_trace.py" "$3" --steps 20 | tee "$3.txt" | sed -n 2p' - "$folder" "$here" "$trace" "$@"
}

speed() {
  local precision
  for precision in f32 bf16; do
    idle mlp $precision 64
    idle lenet $precision 64
  done
  idle vgg16 bf16 32
  compare "vgg16 32 bf16" --models vgg16 --batch-per-rank 32 --precision bf16 --modes default reduce-overhead
  compare "vgg16 128 bf16" --models vgg16 --batch-per-rank 128 --precision bf16 --modes default --steps 50
  for precision in f32 bf16; do
    compare "mlp 64 $precision" --models mlp --precision $precision --modes reduce-overhead default-graph
    compare "lenet 64 $precision" --models lenet --precision $precision --modes reduce-overhead default-graph
  done
}

scaling() {
  local vgg16="--models vgg16 --precision bf16 --modes default --batch-per-rank"
  compare "vgg16 128, 1 and 2 GPUs" $vgg16 128 --ranks 1 2 --steps 50
  compare "vgg16 32, 2 GPUs" $vgg16 32 --ranks 2
  local switch="$folder/lockstep with-link pcie --"
  compare "vgg16 32, 2 GPUs, staged" $vgg16 32 --ranks 2
  compare "vgg16 32, 2 GPUs, staged, bf16 gradients" $vgg16 32 --ranks 2 --grad-dtype bf16
}

links() {
  line "topology" 60 "$folder/lockstep" topology --check --json "$logs/topology.json"
  line "training on NVLink" 120 "$folder/lockstep" train vgg16 --synthetic --device cuda --ranks 2 --link nvlink \
    --require-proof --batch-per-rank 32 --steps 200 --out "$logs/run_nvlink"
  line "training staged" 120 "$folder/lockstep" train vgg16 --synthetic --device cuda --ranks 2 --link pcie \
    --require-proof --batch-per-rank 32 --steps 200 --out "$logs/run_staged"
  line "PyTorch staged" 200 "$folder/lockstep" with-link pcie --require-proof -- python3 "$here/pytorch/train_step.py" \
    --model vgg16 --device cuda --precision bf16 --batch-per-rank 32 --ranks 2 --channels-last --steps 100
  line "the comparison" 500 "$folder/lockstep" compare vgg16 --batch-per-rank 32 --require-proof --report "$logs/report.html"
  line "the comparison by batch" 590 "$folder/lockstep" compare --report "$logs/report_batches.html"
}

for part in "$@"; do
  case $part in
    tests | sanitizers | speed) ;;
    scaling | links) [[ $gpus -ge 2 ]] || { echo "gpu_acceptance.sh: $part: expected two GPUs, got $gpus" >&2; exit 2; } ;;
    *) usage ;;
  esac
done
nvidia-smi --query-gpu=index,name,driver_version --format=csv,noheader
cat "$folder/commit" 2>/dev/null || true
for part in "$@"; do "$part"; done

echo
printf '%s\n' "${table[@]}"
exit "$failed"
