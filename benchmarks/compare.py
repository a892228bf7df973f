#!/usr/bin/env python3
"""Times the train step in Lockstep and in PyTorch, in turn, and prints the ratios.

    benchmarks/compare.py --python /path/to/venv/bin/python

`--python` is an interpreter with PyTorch; this script itself needs the standard library only, and a build of Lockstep.
For each configuration PyTorch first shows in which of its plain settings it is fastest on this machine (eager or
torch.compile, fused or foreach optimizer, channels_last); that one runs against Lockstep. A figure is the mean time of
a step of one run; the table has the median of the runs, with the least and the largest.
"""

import argparse
import datetime
import itertools
import json
import os
import pathlib
import platform
import re
import signal
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
CONFIGURATIONS = [(model, ranks, threads) for model in ("mlp", "lenet") for ranks, threads in ((1, 1), (1, 2), (2, 1))]
# Variables that would change threads or libraries of one side, or make a rank of a process that is none.
NOT_INHERITED = re.compile("OMP|GOMP|KMP|MKL|DNNL|ONEDNN|OPENBLAS|TORCH|LOCKSTEP|RANK|LOCAL_|WORLD_|MASTER_|PMI|SLURM")
RUN_TIMEOUT_S = 600


def environment(threads):
    kept = {name: value for name, value in os.environ.items() if not NOT_INHERITED.match(name)}
    return {**kept, "OMP_NUM_THREADS": str(threads)}


def run(command, threads):
    """The object that a benchmark prints as a line of its own."""
    try:
        process = subprocess.Popen(command, env=environment(threads), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True, start_new_session=True)  # fmt: skip
    except OSError as error:
        raise SystemExit(f"{command[0]}: cannot be run: {error.strerror}")
    try:
        out, err = process.communicate(timeout=RUN_TIMEOUT_S)
    except BaseException as error:
        os.killpg(process.pid, signal.SIGKILL)  # all ranks
        process.wait()
        if isinstance(error, subprocess.TimeoutExpired):
            raise SystemExit(f"{' '.join(command)}: did not end in {RUN_TIMEOUT_S} s")
        raise
    for line in out.splitlines():
        if process.returncode == 0 and line.startswith("{"):
            return json.loads(line)
    raise SystemExit(f"{' '.join(command)}: ended with code {process.returncode}\n{out}{err}")


def settings_of(model, compiled):
    """PyTorch's settings that are tried, as options of pytorch/train_step.py."""
    layouts = [[], ["--channels-last"]] if model == "lenet" else [[]]
    choices = itertools.product([[], ["--compile"]] if compiled else [[]], layouts, ["foreach", "fused"])
    return [[*compiled, *layout, "--optimizer", optimizer] for compiled, layout, optimizer in choices]


def describe(setting):
    return " ".join(option.lstrip("-") for option in setting if option != "--optimizer")


class Comparison:
    def __init__(self, options):
        self.options = options
        self.lockstep = [str(pathlib.Path(options.build) / "bin" / "train_step_benchmark")]
        self.pytorch = [options.python, str(ROOT / "benchmarks" / "pytorch" / "train_step.py")]
        self.versions = {}

    def time(self, side, configuration, steps, setting=()):
        model, ranks, threads = configuration
        program = self.lockstep if side == "lockstep" else self.pytorch
        command = [*program, "--model", model, "--batch", str(self.options.batch), "--ranks", str(ranks), "--threads",
                   str(threads), "--warmup", str(self.options.warmup), "--steps", str(steps), *setting]  # fmt: skip
        result = run(command, threads)
        self.versions[side] = result["version"]
        return result["mean_ms"]

    def fastest_setting(self, configuration):
        """The best of two short runs decides."""
        settings = settings_of(configuration[0], not self.options.eager)
        tried = [[self.time("pytorch", configuration, self.options.trial_steps, s) for s in settings] for _ in range(2)]
        best = [min(times) for times in zip(*tried)]
        report = {describe(setting): round(ms, 3) for setting, ms in zip(settings, best)}
        return settings[best.index(min(best))], report

    def compare(self, configuration):
        setting, tried = self.fastest_setting(configuration)
        times = {"lockstep": [], "pytorch": []}
        for _ in range(self.options.alternations):
            times["lockstep"].append(self.time("lockstep", configuration, self.options.steps))
            times["pytorch"].append(self.time("pytorch", configuration, self.options.steps, setting))
        model, ranks, threads = configuration
        medians = {side: statistics.median(values) for side, values in times.items()}
        return {"model": model, "ranks": ranks, "threads": threads, "lockstep_ms": times["lockstep"],
                "pytorch_ms": times["pytorch"], "ratio": medians["pytorch"] / medians["lockstep"],
                "pytorch_setting": describe(setting), "pytorch_settings_tried_ms": tried}  # fmt: skip


def figure(values):
    return f"{statistics.median(values):.3f} ({min(values):.3f} - {max(values):.3f})"


def row_of(result):
    name = f"{result['model']}, {result['ranks']} x {result['threads']}"
    return (f"{name:15} {figure(result['lockstep_ms']):>24} {figure(result['pytorch_ms']):>24} {result['ratio']:8.2f}"
            f"  {result['pytorch_setting']}")  # fmt: skip


def command_output(*command):
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else "unknown"


def machine():
    cpu = platform.processor() or "unknown"
    try:
        text = pathlib.Path("/proc/cpuinfo").read_text()
        fields = dict(re.findall(r"^(model name|cpu family|model|flags)\s*: (.*)$", text, re.MULTILINE))
        simd = next((name for name in ("avx512f", "avx2") if name in fields.get("flags", "").split()), "no AVX2")
        cpu = f"{fields['model name']}, family {fields['cpu family']} model {fields['model']}, {simd}"
    except (OSError, KeyError):
        pass
    return {"cpu": cpu, "cores": len(os.sched_getaffinity(0)), "load_at_start": os.getloadavg()[0],
            "system": platform.platform()}  # fmt: skip


def build_of(folder):
    cache = (pathlib.Path(folder) / "CMakeCache.txt").read_text()
    wanted = ("CMAKE_BUILD_TYPE", "CMAKE_CXX_FLAGS", "LOCKSTEP_NATIVE")
    settings = {name: value for name, value in re.findall(r"^(\w+):\w+=(.*)$", cache, re.MULTILINE) if name in wanted}
    compiler = re.search(r"^CMAKE_CXX_COMPILER:\w+=(.*)$", cache, re.MULTILINE).group(1)
    return {**settings, "compiler": command_output(compiler, "--version").splitlines()[0]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", required=True, help="interpreter that has PyTorch")
    parser.add_argument("--build", default=str(ROOT / "build"), help="build folder of Lockstep (default: build)")
    parser.add_argument("--models", nargs="+", choices=["mlp", "lenet"], default=["mlp", "lenet"])
    parser.add_argument("--batch", type=int, default=64, help="samples a rank")
    parser.add_argument("--alternations", type=int, default=5)
    parser.add_argument("--warmup", type=int, default=100, help="steps before each run")
    parser.add_argument("--steps", type=int, default=500, help="timed steps of a run")
    parser.add_argument("--trial-steps", type=int, default=200, help="timed steps of a run that chooses a setting")
    parser.add_argument("--eager", action="store_true", help="leave torch.compile out of PyTorch's settings: quicker")
    parser.add_argument("--out", help="file of the record (default: in benchmarks/results)")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # ends what it started, like Ctrl-C
    comparison = Comparison(options)
    if not pathlib.Path(comparison.lockstep[0]).exists():
        raise SystemExit(f"{comparison.lockstep[0]}: not there; build the target train_step_benchmark")

    now = datetime.datetime.now(datetime.timezone.utc)
    work = (f"Train step in ms, f32, batch {options.batch} a rank: forward, loss, backward, all-reduce, SGD with "
            f"momentum, loss read.\nNo gradient norm, no clipping. Median ({options.alternations} runs of "
            f"{options.steps} steps in turn; least - largest).\nRatio: PyTorch / Lockstep.")  # fmt: skip
    record = {"time": now.isoformat(timespec="seconds"), "command": " ".join(sys.argv), "work": work,
              "commit": command_output("git", "describe", "--always", "--dirty", "--abbrev=40"),
              "machine": machine(), "build": build_of(options.build), "results": []}  # fmt: skip
    print(work + "\n")
    print(f"{'ranks x threads':15} {'Lockstep':>24} {'PyTorch':>24}    ratio  PyTorch's best setting")
    for configuration in CONFIGURATIONS:
        if configuration[0] in options.models:
            result = comparison.compare(configuration)
            record["results"].append(result)
            print(row_of(result), flush=True)
    record["versions"] = {**comparison.versions, "python": command_output(options.python, "--version")}
    file = pathlib.Path(options.out or ROOT / "benchmarks" / "results" / f"train_step-{now:%Y%m%d-%H%M}.json")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(record, indent=1) + "\n")
    print(f"\nrecord: {file}")


if __name__ == "__main__":
    main()
