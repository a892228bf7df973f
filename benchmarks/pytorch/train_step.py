"""Times the train step of train_step.cc in PyTorch: same models, batch, optimizer and work, one JSON line as result.

Written for PyTorch 2.11. The step: forward, cross-entropy, backward, all-reduce (DistributedDataParallel over gloo
where ranks > 1), SGD with momentum, and the loss read as a number. No gradient norm, no clipping.
"""

import argparse
import json
import os
import socket
import statistics
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn


def make_mlp():
    return nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))


def make_lenet():
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))  # fmt: skip


MODELS = {"mlp": make_mlp, "lenet": make_lenet}


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def make_step(options, rank):
    """Returns a function that does one step and returns the loss."""
    torch.manual_seed(0)
    model = MODELS[options.model]()
    generator = torch.Generator().manual_seed(1 + rank)
    shape = (options.batch, 784) if options.model == "mlp" else (options.batch, 1, 28, 28)
    samples = torch.rand(shape, generator=generator)
    labels = torch.randint(10, (options.batch,), generator=generator)
    if options.channels_last:
        model = model.to(memory_format=torch.channels_last)
        samples = samples.contiguous(memory_format=torch.channels_last)
    if options.ranks > 1:
        model = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True, static_graph=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, **{options.optimizer: True})

    def loss_of(x, y):
        return F.cross_entropy(model(x), y)

    if options.compile:
        loss_of = torch.compile(loss_of)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(samples, labels)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def profile(step, options):
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiler

    with profiler(activities=[ProfilerActivity.CPU], record_shapes=True) as result:
        for _ in range(options.profile):
            step()
    print(result.key_averages(group_by_input_shape=True).table(sort_by="self_cpu_time_total", row_limit=40))


def run(rank, options, port):
    torch.set_num_threads(options.threads)
    if options.ranks > 1:
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=options.ranks)
    step = make_step(options, rank)
    for _ in range(options.warmup):
        step()
    if options.ranks > 1:
        dist.barrier()
    times = []
    loss = 0.0
    begin = time.perf_counter()
    last = begin
    for _ in range(options.steps):
        loss = step()
        now = time.perf_counter()
        times.append(now - last)
        last = now
    if rank == 0:
        result = {"mean_ms": 1e3 * (last - begin) / options.steps, "median_ms": 1e3 * statistics.median(times),
                  "loss": loss, "version": torch.__version__}  # fmt: skip
        print(json.dumps(result), flush=True)
        if options.profile:
            profile(step, options)
    if options.ranks > 1:
        dist.barrier()
        dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=sorted(MODELS), required=True)
    parser.add_argument("--batch", type=int, default=64, help="samples a rank")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1, help="threads a rank")
    parser.add_argument("--warmup", type=int, default=100)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--compile", action="store_true", help="torch.compile the forward pass and the loss")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--optimizer", choices=["foreach", "fused"], default="foreach",
                        help="implementation of SGD")  # fmt: skip
    parser.add_argument("--profile", type=int, default=0, metavar="STEPS", help="one rank: print a table per operator")
    options = parser.parse_args()
    # Before any child starts: OpenMP reads it once.
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    if options.ranks == 1:
        run(0, options, 0)
    else:
        mp.spawn(run, args=(options, free_port()), nprocs=options.ranks)


if __name__ == "__main__":
    main()
