"""Writes optimizers.json and schedules.json: 20-step traces of PyTorch in f64, for tests/optim.

    python -m venv venv && venv/bin/pip install torch==2.11.0 numpy
    venv/bin/python tests/golden/make_optim.py
"""

import json
import pathlib
import random

import torch
from torch.optim import lr_scheduler

TORCH_VERSION = "2.11.0"
STEPS = 20

# Learning rates change from step to step, and are not folded into the moments.
OPTIMIZERS = [
    {"name": "sgd_plain", "kind": "sgd"},
    {"name": "sgd_weight_decay", "kind": "sgd", "weight_decay": 0.1},
    {"name": "sgd_momentum", "kind": "sgd", "momentum": 0.9},
    {"name": "sgd_momentum_weight_decay", "kind": "sgd", "momentum": 0.8, "weight_decay": 0.1},
    {"name": "sgd_nesterov", "kind": "sgd", "momentum": 0.9, "weight_decay": 0.05, "nesterov": True},
    {"name": "adamw_defaults", "kind": "adamw", "weight_decay": 0.01},
    {"name": "adamw_gpt", "kind": "adamw", "beta1": 0.9, "beta2": 0.95, "weight_decay": 0.1},
    {"name": "adamw_large_eps", "kind": "adamw", "beta1": 0.5, "beta2": 0.9, "eps": 0.1, "weight_decay": 0.0},
    {"name": "sgd_clipped", "kind": "sgd", "momentum": 0.9, "max_norm": 1.0},
    {"name": "adamw_clipped", "kind": "adamw", "weight_decay": 0.01, "max_norm": 0.5},
]

SCHEDULES = [
    {"kind": "constant", "peak": 0.3},
    {"kind": "constant", "peak": 0.3, "warmup_steps": 4},
    {"kind": "cosine", "peak": 0.5, "final_fraction": 0.0, "total_steps": 19},
    {"kind": "cosine", "peak": 0.5, "final_fraction": 0.1, "total_steps": 19, "warmup_steps": 4},
    {"kind": "linear", "peak": 0.2, "final_fraction": 0.0, "total_steps": 15},
    {"kind": "linear", "peak": 0.2, "final_fraction": 0.25, "total_steps": 15, "warmup_steps": 5},
    {"kind": "step", "peak": 1.0, "step_size": 6, "gamma": 0.1},
    {"kind": "step", "peak": 1.0, "step_size": 5, "gamma": 0.5, "warmup_steps": 3},
]


def draw(rng, count, low, high):
    return [round(rng.uniform(low, high), 3) for _ in range(count)]


def optimizer_trace(case, inputs):
    """A weight of 2 elements, decayed, and a bias of 1, which is not."""
    weight = torch.tensor(inputs["initial"][:2], dtype=torch.float64, requires_grad=True)
    bias = torch.tensor(inputs["initial"][2:], dtype=torch.float64, requires_grad=True)
    groups = [{"params": [weight], "weight_decay": case.get("weight_decay", 0.0)},
              {"params": [bias], "weight_decay": 0.0}]  # fmt: skip
    if case["kind"] == "sgd":
        optimizer = torch.optim.SGD(groups, momentum=case.get("momentum", 0.0), nesterov=case.get("nesterov", False))
    else:
        betas = (case.get("beta1", 0.9), case.get("beta2", 0.999))
        optimizer = torch.optim.AdamW(groups, betas=betas, eps=case.get("eps", 1e-8))
    values, norms = [], []
    for gradient, learning_rate in zip(inputs["gradients"], inputs["learning_rates"]):
        weight.grad = torch.tensor(gradient[:2], dtype=torch.float64)
        bias.grad = torch.tensor(gradient[2:], dtype=torch.float64)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate
        if "max_norm" in case:
            norms.append(torch.nn.utils.clip_grad_norm_([weight, bias], case["max_norm"]).item())
        optimizer.step()
        values.append(weight.tolist() + bias.tolist())
    return {**case, "norms": norms, "values": values} if norms else {**case, "values": values}


def main_scheduler(optimizer, case):
    after_warmup = case.get("total_steps", 0) - case.get("warmup_steps", 0)
    if case["kind"] == "constant":
        return lr_scheduler.ConstantLR(optimizer, factor=1.0)
    if case["kind"] == "cosine":
        return lr_scheduler.CosineAnnealingLR(optimizer, after_warmup, case["final_fraction"] * case["peak"])
    if case["kind"] == "linear":
        return lr_scheduler.LinearLR(optimizer, 1.0, case["final_fraction"], after_warmup)
    return lr_scheduler.StepLR(optimizer, case["step_size"], case["gamma"])


def schedule_trace(case):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=case["peak"])
    warmup = case.get("warmup_steps", 0)
    if warmup:  # peak * (step + 1) / (warmup + 1)
        rise = lr_scheduler.LinearLR(optimizer, 1.0 / (warmup + 1), 1.0, warmup)
        scheduler = lr_scheduler.SequentialLR(optimizer, [rise, main_scheduler(optimizer, case)], [warmup])
    else:
        scheduler = main_scheduler(optimizer, case)
    rates = []
    for _ in range(STEPS):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return {**case, "learning_rates": rates}


def write(name, inputs, cases):
    """Every list of numbers on a line of its own."""

    def fields(values):
        for key, value in values.items():
            if isinstance(value, list) and isinstance(value[0], list):
                rows = ",\n    ".join(json.dumps(row) for row in value)
                yield f'"{key}": [\n    {rows}]'
            else:
                yield f'"{key}": {json.dumps(value)}'

    head = fields({"made_by": "tests/golden/make_optim.py", "pytorch": TORCH_VERSION, **inputs})
    bodies = ["{" + ",\n   ".join(fields(case)) + "}" for case in cases]
    text = "{" + ",\n ".join(head) + ',\n "cases": [\n  ' + ",\n  ".join(bodies) + "]}\n"
    json.loads(text)
    pathlib.Path(__file__).with_name(name).write_text(text)


def main():
    if torch.__version__.split("+")[0] != TORCH_VERSION:
        raise SystemExit(f"expected PyTorch {TORCH_VERSION}, got {torch.__version__}")
    rng = random.Random(1)
    inputs = {"initial": draw(rng, 3, -1.0, 1.0),
              "gradients": [draw(rng, 3, -1.0, 1.0) for _ in range(STEPS)],
              "learning_rates": draw(rng, STEPS, 0.01, 0.1)}  # fmt: skip
    write("optimizers.json", inputs, [optimizer_trace(case, inputs) for case in OPTIMIZERS])
    write("schedules.json", {}, [schedule_trace(case) for case in SCHEDULES])


if __name__ == "__main__":
    main()
