#!/usr/bin/env python3
"""Times the train step in Lockstep and in PyTorch, in turn, and prints the ratios.

    benchmarks/compare.py --python /path/to/venv/bin/python
    benchmarks/compare.py --device cuda --models vgg16 --ranks 2 --batch-per-rank 32 --precision bf16

`--python` is an interpreter with PyTorch; this script itself needs the standard library only, and a build of Lockstep.
For each configuration PyTorch first shows in which of its plain settings it is fastest on this machine (on CPUs eager
or torch.compile, fused or foreach optimizer, channels_last; on GPUs torch.compile's modes); that one runs against
Lockstep. A figure is the mean time of a step of one run; the table has the median of the runs, with the least and the
largest.
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
PYTORCH = str(ROOT / "benchmarks" / "pytorch" / "train_step.py")
IMAGE_MODELS = ("lenet", "vgg11", "vgg13", "vgg16", "vgg19")
# graph: the whole step captured by hand; reduce-overhead captures forward and backward.
MODES = ("eager", "default", "reduce-overhead", "max-autotune-no-cudagraphs", "eager-graph", "default-graph")
# What the options leave open, by device. Steps are for mlp and lenet, and for larger models.
DEFAULTS = {
    "cpu": {"models": ["mlp", "lenet"], "modes": ["eager", "default"], "alternations": 5, "warmup": (100, 2),
            "steps": (500, 5), "trials": 2, "run_timeout": 600},
    "cuda": {"models": ["vgg16"], "modes": ["default", "reduce-overhead", "eager-graph", "default-graph"], "alternations": 3, "warmup": (40, 40),
             "steps": (5000, 100), "trials": 1, "run_timeout": 150},
}  # fmt: skip
# Variables that would change threads or libraries of one side, or make a rank of a process that is none.
NOT_INHERITED = re.compile("OMP|GOMP|KMP|MKL|DNNL|ONEDNN|OPENBLAS|TORCH|LOCKSTEP|RANK|LOCAL_|WORLD_|MASTER_|PMI|SLURM")


class Failed(Exception):
    """A benchmark ended without a result."""


def environment(options, threads):
    kept = {name: value for name, value in os.environ.items() if not NOT_INHERITED.match(name)}
    kept.setdefault("NCCL_NVLS_ENABLE", "0")
    cache = pathlib.Path(options.cache).resolve()
    return {**kept, "OMP_NUM_THREADS": str(threads), "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"),
            "TRITON_CACHE_DIR": str(cache / "triton")}  # fmt: skip


def run(command, variables, timeout_s):
    """The object that a benchmark prints as a line of its own."""
    try:
        process = subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True, start_new_session=True)  # fmt: skip
    except OSError as error:
        raise Failed(f"{command[0]}: cannot be run: {error.strerror}")
    try:
        out, err = process.communicate(timeout=timeout_s)
    except BaseException as error:
        os.killpg(process.pid, signal.SIGKILL)  # all ranks
        process.wait()
        if isinstance(error, subprocess.TimeoutExpired):
            raise Failed(f"{' '.join(command)}: did not end in {timeout_s} s")
        raise
    for line in out.splitlines():
        if process.returncode == 0 and line.startswith("{"):
            return json.loads(line)
    raise Failed(f"{' '.join(command)}: ended with code {process.returncode}\n{out}{err}")


def settings_of(model, options):
    """PyTorch's settings that are tried, as options of pytorch/train_step.py."""
    on_gpu = options.device == "cuda"
    channels_last = [["--channels-last"]] if model in IMAGE_MODELS else []
    layouts = channels_last if on_gpu and channels_last else [[], *channels_last]
    optimizers = ["fused"] if on_gpu else ["foreach", "fused"]
    modes = []
    for mode in options.modes:
        compiled = mode.removesuffix("-graph")
        modes.append([*([] if compiled == "eager" else ["--compile", compiled]),
                      *(["--graph"] if mode.endswith("-graph") else [])])  # fmt: skip
    return [[*mode, *layout, "--optimizer", optimizer]
            for mode, layout, optimizer in itertools.product(modes, layouts, optimizers)]  # fmt: skip


def describe(setting):
    return " ".join(option.lstrip("-") for option in setting if option != "--optimizer")


class Comparison:
    def __init__(self, options):
        self.options = options
        self.programs = {"lockstep": [options.lockstep], "pytorch": [options.python, PYTORCH]}
        self.versions = {}

    def time(self, side, configuration, setting=()):
        """What one run printed; `setting` is PyTorch's."""
        options = self.options
        model, ranks, threads = configuration
        large = model not in ("mlp", "lenet")
        own = setting if side == "pytorch" else ["--graph", options.graph]
        command = [*self.programs[side], "--model", model, "--device", options.device, "--precision", options.precision,
                   "--grad-dtype", options.grad_dtype, "--batch-per-rank", str(options.batch_per_rank),
                   "--ranks", str(ranks), "--threads", str(threads), "--warmup", str(options.warmup[large]),
                   "--steps", str(options.steps[large]), *own]  # fmt: skip
        if options.deterministic:
            command.append("--deterministic")
        result = run(command, environment(options, threads), options.run_timeout)
        self.versions[side] = result["versions"]
        return result

    def fastest_setting(self, configuration):
        """The best of the trials decides. A setting that fails is left out, and the record says why."""
        report = {}
        best = None
        for setting in settings_of(configuration[0], self.options):
            name = describe(setting)
            try:
                trials = [self.time("pytorch", configuration, setting) for _ in range(self.options.trials)]
            except Failed as error:
                report[name] = str(error)[-2000:]
                print(f"PyTorch, {name}: no figure: {error}", file=sys.stderr)
                continue
            report[name] = round(min(trial["mean_ms"] for trial in trials), 3)
            if best is None or report[name] < report[describe(best)]:
                best = setting
        if best is None:
            raise Failed("no setting of PyTorch gave a figure")
        return best, report

    def compare(self, configuration):
        setting, tried = self.fastest_setting(configuration)
        runs = {"lockstep": [], "pytorch": []}
        for _ in range(self.options.alternations):
            runs["lockstep"].append(self.time("lockstep", configuration))
            runs["pytorch"].append(self.time("pytorch", configuration, setting))

        def values(side, key):
            return [each[key] for each in runs[side]]

        model, ranks, threads = configuration
        medians = {side: statistics.median(values(side, "mean_ms")) for side in runs}
        result = {"model": model, "ranks": ranks, "threads": threads}
        for side in runs:
            result |= {f"{side}_ms": values(side, "mean_ms"), f"{side}_memory_mib": values(side, "memory_mib"),
                       f"{side}_samples_per_s": statistics.median(values(side, "samples_per_s")),
                       f"{side}_loss": runs[side][-1]["loss"]}  # fmt: skip
        return result | {"ratio": medians["pytorch"] / medians["lockstep"], "device": runs["lockstep"][0]["device"],
                         "pytorch_setting": describe(setting), "pytorch_settings_tried_ms": tried}  # fmt: skip


def figure(values):
    return f"{statistics.median(values):.3f} ({min(values):.3f} - {max(values):.3f})"


def row_of(result):
    name = f"{result['model']}, {result['ranks']} x {result['threads']}"
    memory = [max(result[f"{side}_memory_mib"]) for side in ("lockstep", "pytorch")]
    return (f"{name:15} {figure(result['lockstep_ms']):>24} {figure(result['pytorch_ms']):>24} {result['ratio']:8.2f}"
            f"  {result['pytorch_setting']}{f'; {memory[0]} and {memory[1]} MiB' if any(memory) else ''}")  # fmt: skip


def command_output(*command):
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    except OSError:
        return "unknown"
    return done.stdout.strip() if done.returncode == 0 else "unknown"


def machine(options):
    cpu = platform.processor() or "unknown"
    try:
        text = pathlib.Path("/proc/cpuinfo").read_text()
        fields = dict(re.findall(r"^(model name|cpu family|model|flags)\s*: (.*)$", text, re.MULTILINE))
        simd = next((name for name in ("avx512f", "avx2") if name in fields.get("flags", "").split()), "no AVX2")
        cpu = f"{fields['model name']}, family {fields['cpu family']} model {fields['model']}, {simd}"
    except (OSError, KeyError):
        pass
    found = {"cpu": cpu, "cores": len(os.sched_getaffinity(0)), "load_at_start": os.getloadavg()[0],
             "system": platform.platform()}  # fmt: skip
    if options.device == "cuda":
        found["gpus"] = command_output("nvidia-smi", "--query-gpu=name,driver_version,memory.total,memory.used",
                                       "--format=csv,noheader").splitlines()  # fmt: skip
        found["environment"] = {name: value for name, value in environment(options, 1).items()
                                if name.startswith(("NCCL_", "CUDA_"))}  # fmt: skip
    return found


def build_of(program):
    try:
        cache = (pathlib.Path(program).parent.parent / "CMakeCache.txt").read_text()
    except OSError:
        return "unknown"
    wanted = ("CMAKE_BUILD_TYPE", "CMAKE_CXX_FLAGS", "LOCKSTEP_NATIVE")
    settings = {name: value for name, value in re.findall(r"^(\w+):\w+=(.*)$", cache, re.MULTILINE) if name in wanted}
    compiler = re.search(r"^CMAKE_CXX_COMPILER:\w+=(.*)$", cache, re.MULTILINE).group(1)
    return {**settings, "compiler": command_output(compiler, "--version").splitlines()[0]}


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="interpreter that has PyTorch (default: this one)")
    parser.add_argument("--lockstep", default=str(ROOT / "build" / "bin" / "train_step_benchmark"),
                        help="train_step_benchmark (default: build/bin/train_step_benchmark)")  # fmt: skip
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--models", nargs="+", choices=["mlp", *IMAGE_MODELS],
                        help="default: mlp and lenet, on GPUs vgg16")  # fmt: skip
    parser.add_argument("--ranks", nargs="+", type=int,
                        help="each of them is a row (default: on CPUs 1 rank with 1 and with 2 threads, and 2 ranks "
                        "with 1; on GPUs 1)")  # fmt: skip
    parser.add_argument("--batch-per-rank", type=int, default=64)
    parser.add_argument("--precision", choices=["f32", "tf32", "bf16"], default="f32",
                        help="bf16: autocast in PyTorch")  # fmt: skip
    parser.add_argument("--grad-dtype", choices=["f32", "bf16"], default="f32",
                        help="bf16: in PyTorch a hook casts buckets for the all-reduce")  # fmt: skip
    parser.add_argument("--graph", choices=["on", "off"], default="on", help="of Lockstep, on GPUs")
    parser.add_argument("--deterministic", action="store_true")
    parser.add_argument("--modes", nargs="+", choices=MODES,
                        help="of torch.compile that are tried (default: eager and default, on GPUs those with and without graphs)")  # fmt: skip
    parser.add_argument("--alternations", type=int, help="default: 5, on GPUs 3")
    parser.add_argument("--warmup", type=int, help="steps before each run (default: 100, for vgg 2; on GPUs 40)")
    parser.add_argument("--steps", type=int, help="timed steps of a run (default: 500, for vgg 5; on GPUs 5000 and 100)")
    parser.add_argument("--run-timeout", type=int, metavar="S",
                        help="seconds for one run, compilation included (default: 600, on GPUs 150)")  # fmt: skip
    parser.add_argument("--cache", default=str(ROOT / "build" / "torch_cache"),
                        help="folder of what torch.compile made, kept for later runs (default: build/torch_cache)")  # fmt: skip
    parser.add_argument("--commit", default=command_output("git", "describe", "--always", "--dirty", "--abbrev=40"),
                        help="for the record, where there is no git")  # fmt: skip
    parser.add_argument("--out", help="file of the record (default: in benchmarks/results)")
    options = parser.parse_args()
    defaults = DEFAULTS[options.device]
    for name in ("models", "modes", "alternations", "run_timeout"):
        setattr(options, name, getattr(options, name) or defaults[name])
    for name in ("warmup", "steps"):
        given = getattr(options, name)
        setattr(options, name, defaults[name] if given is None else (given, given))
    options.trials = defaults["trials"]
    options.cores = [(ranks, 1) for ranks in options.ranks or [1]]  # ranks and threads
    if options.device == "cpu" and not options.ranks:
        options.cores = [(1, 1), (1, 2), (2, 1)]
    return options


def work_of(options):
    return (f"Train step in ms, {options.device}, {options.precision}, batch {options.batch_per_rank} a rank: forward, "
            f"loss, backward, all-reduce, SGD with momentum, loss read.\n"
            f"No gradient norm, no clipping; gradients in {options.grad_dtype}; graph {options.graph}; "
            f"{'' if options.deterministic else 'not '}deterministic. "
            f"Median ({options.alternations} runs in turn; least - largest).\nRatio: PyTorch / Lockstep.")  # fmt: skip


def main():
    options = parse_options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # ends what it started, like Ctrl-C
    comparison = Comparison(options)
    if not pathlib.Path(options.lockstep).exists():
        raise SystemExit(f"{options.lockstep}: not there; build the target train_step_benchmark")
    now = datetime.datetime.now(datetime.timezone.utc)
    work = work_of(options)
    record = {"time": now.isoformat(timespec="seconds"), "command": " ".join(sys.argv), "work": work,
              "commit": options.commit, "machine": machine(options), "build": build_of(options.lockstep),
              "precision": options.precision, "clipping": "none", "gradient_dtype": options.grad_dtype,
              "graph": options.graph, "deterministic": options.deterministic, "results": []}  # fmt: skip
    print(work + "\n")
    print(f"{'ranks x threads':15} {'Lockstep':>24} {'PyTorch':>24}    ratio  PyTorch's best setting")
    try:
        for model, (ranks, threads) in itertools.product(options.models, options.cores):
            result = comparison.compare((model, ranks, threads))
            record["results"].append(result)
            print(row_of(result), flush=True)
    except Failed as error:
        raise SystemExit(str(error))
    record["versions"] = {**comparison.versions, "Python": command_output(options.python, "--version")}
    file = pathlib.Path(options.out or ROOT / "benchmarks" / "results" / f"train_step-{now:%Y%m%d-%H%M}.json")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(record, indent=1) + "\n")
    print(f"\nrecord: {file}")


if __name__ == "__main__":
    main()
