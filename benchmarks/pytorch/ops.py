"""Times the ops of ops_benchmark.cc in PyTorch, in turn with that program, and prints microseconds and ratios.

    python benchmarks/pytorch/ops.py --benchmark build/bin/ops_benchmark

Written for PyTorch 2.11. Images in the faster of PyTorch's two layouts. A figure is the least time of all rounds: what else
the machine does can only add to it.
"""

import argparse
import collections
import json
import os
import subprocess
import sys
import time

BATCH = 64


def functions():
    """(name as in ops_benchmark.cc, function that does the op once); a name once for each layout."""
    import torch
    import torch.nn.functional as F

    ops = torch.ops.aten
    for inputs, outputs in ((784, 512), (512, 512), (512, 10), (400, 120), (120, 84), (84, 10)):
        x, weight, bias = torch.randn(BATCH, inputs), torch.randn(outputs, inputs), torch.randn(outputs)
        dy, sizes = torch.randn(BATCH, outputs), f"{inputs}x{outputs}"
        yield f"linear_forward/{sizes}", lambda x=x, w=weight, b=bias: F.linear(x, w, b)
        yield f"linear_backward_input/{sizes}", lambda dy=dy, w=weight: dy @ w
        yield f"linear_backward_weight/{sizes}", lambda dy=dy, x=x: (dy.t() @ x, dy.sum(0))
    for layout in (torch.contiguous_format, torch.channels_last):
        for size, channels, outputs, padding in ((28, 1, 6, 2), (14, 6, 16, 0)):
            x = torch.randn(BATCH, channels, size, size).contiguous(memory_format=layout)
            weight = torch.randn(outputs, channels, 5, 5).contiguous(memory_format=layout)
            bias, pad = torch.randn(outputs), [padding, padding]
            dy, sizes = torch.randn_like(F.conv2d(x, weight, bias, padding=padding)), f"{size}x{channels}x{outputs}"

            def backward(mask, dy=dy, x=x, weight=weight, outputs=outputs, pad=pad):
                ops.convolution_backward(dy, x, weight, [outputs], [1, 1], pad, [1, 1], False, [0, 0], 1, mask)

            yield f"conv2d_forward/{sizes}", lambda x=x, w=weight, b=bias, p=padding: F.conv2d(x, w, b, padding=p)
            yield f"conv2d_backward_input/{sizes}", lambda f=backward: f([True, False, False])
            yield f"conv2d_backward_weight/{sizes}", lambda f=backward: f([False, True, True])
        for size, channels in ((28, 6), (10, 16)):
            x, sizes = torch.randn(BATCH, channels, size, size).contiguous(memory_format=layout), f"{size}x{channels}"
            y, indices = ops.max_pool2d_with_indices(x, [2, 2], [2, 2])
            dy = torch.randn_like(y)
            yield f"max_pool2d_forward/{sizes}", lambda x=x: ops.max_pool2d_with_indices(x, [2, 2], [2, 2])
            yield f"max_pool2d_backward/{sizes}", lambda x=x, dy=dy, i=indices: ops.max_pool2d_with_indices_backward(
                dy, x, [2, 2], [2, 2], [0, 0], [1, 1], False, i)  # fmt: skip


def least_us(function, seconds):
    """Least time of a call over `seconds`, in batches long enough for the clock."""
    for _ in range(3):
        function()
    begin = time.perf_counter()
    function()
    calls = max(1, int(1e-4 / (time.perf_counter() - begin)))
    times, deadline = [], time.perf_counter() + seconds
    while time.perf_counter() < deadline:
        begin = time.perf_counter()
        for _ in range(calls):
            function()
        times.append((time.perf_counter() - begin) / calls * 1e6)
    return min(times)


def time_pytorch(options):
    """Prints one JSON object: for each op the time in microseconds."""
    import torch

    torch.set_num_threads(options.threads[0])
    least = collections.defaultdict(lambda: float("inf"))
    with torch.no_grad():
        for name, function in functions():
            least[name] = min(least[name], least_us(function, options.seconds))
    print(json.dumps(least))


def run(command, threads):
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    return json.loads(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)


def round_of_lockstep(options, threads):
    command = [options.benchmark, "--benchmark_format=json", f"--benchmark_filter=/{threads}/real_time$",
               f"--benchmark_min_time={options.seconds / 200}", "--benchmark_repetitions=200"]  # fmt: skip
    least = {}
    for row in run(command, threads)["benchmarks"]:
        if row["run_type"] == "iteration":
            name = row["name"].rsplit("/", 2)[0]
            least[name] = min(least.get(name, float("inf")), row["real_time"] / 1e3)
    return least


def round_of_pytorch(options, threads):
    return run([sys.executable, __file__, "--threads", str(threads), "--seconds", str(options.seconds)], threads)


def compare(options):
    print(f"{'op':40} {'threads':>7} {'Lockstep us':>12} {'PyTorch us':>12} {'ratio':>6}")
    for threads in options.threads:
        sides = ({}, {})
        for _ in range(options.rounds):
            for side, timed in zip(sides, (round_of_lockstep, round_of_pytorch)):
                for name, us in timed(options, threads).items():
                    side[name] = min(side.get(name, us), us)
        for name, us in sides[0].items():
            print(f"{name:40} {threads:7} {us:12.1f} {sides[1][name]:12.1f} {sides[1][name] / us:6.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--benchmark", metavar="PATH", help="ops_benchmark; without it PyTorch alone is timed, on the first of the threads")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="(default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="of both, in turn (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=0.2, help="an op and round (default: %(default)s)")
    options = parser.parse_args()
    compare(options) if options.benchmark else time_pytorch(options)


if __name__ == "__main__":
    main()
