#!/usr/bin/env bash
# From a fresh clone to a trained model: installs what is missing, builds the command and trains LeNet-5 on
# Fashion-MNIST, over the GPUs of this machine or over two CPU ranks.
# usage: examples/quickstart.sh [--yes | --no-install]     (see cmake/bootstrap.sh)
set -euo pipefail
cd "$(dirname "$0")/.."

usage() { sed -n '2,4s/^# //p' examples/quickstart.sh; }
for option in "$@"; do
  case $option in
    --yes | --no-install) ;;
    --help) usage && exit 0 ;;
    *) usage >&2 && exit 2 ;;
  esac
done
cmake/bootstrap.sh "$@" build data
cmake/build.sh lockstep

number=1
while [[ -e runs/quickstart-$number ]]; do number=$((number + 1)); done
out=runs/quickstart-$number

batch=128
place=(--device cpu --ranks 2)
if build/bin/lockstep --version | grep -q '^ *CUDA *[0-9]'; then
  visible=${CUDA_VISIBLE_DEVICES-$({ nvidia-smi --query-gpu=index --format=csv,noheader 2>/dev/null || true; } | paste -sd,)}
  IFS=, read -ra gpus <<<"$visible"
  ranks=${#gpus[@]}
  while [[ $ranks -gt 1 && $((batch % ranks)) -ne 0 ]]; do ranks=$((ranks - 1)); done
  [[ $ranks -eq 0 ]] || place=(--device cuda --ranks "$ranks")
fi
train=(build/bin/lockstep train lenet "${place[@]}" --global-batch "$batch" --epochs 8 --schedule cosine --out "$out")
echo "${train[*]}"
"${train[@]}"

cat <<TEXT

Try next:
  build/bin/lockstep eval lenet --checkpoint $out             the accuracy again, from the checkpoint
  build/bin/lockstep train lenet ${place[*]} --resume $out --epochs 10    two epochs more
  build/bin/lockstep train mlp --epochs 2                                  another model
  build/bin/lockstep train --help                                          every option
  cmake --build build --target lessons                                     build/bin/lesson_1_... to lesson_3_...; docs/
TEXT
