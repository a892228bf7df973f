"""Times the train step of train_step.cc in PyTorch: same models, batch, optimizer and work, one JSON line as result.

Written for PyTorch 2.11. The step: forward, cross-entropy, backward, all-reduce (DistributedDataParallel over gloo or
NCCL where ranks > 1), SGD with momentum, and on CPUs the loss read as a number; on GPUs the host waits before and after
the timed steps, not within. No gradient norm, no clipping.
"""

import argparse
import json
import os
import socket
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


def make_vgg(stages):
    layers, channels = [], 3
    for width, convs in zip((64, 128, 256, 512, 512), stages):
        for _ in range(convs):
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(inplace=True)]
            channels = width
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(7), nn.Flatten(),
        nn.Linear(512 * 7 * 7, 4096), nn.ReLU(inplace=True), nn.Dropout(),
        nn.Linear(4096, 4096), nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(4096, 1000))  # fmt: skip


# By name: how it is made, shape of a sample, classes.
MODELS = {
    "mlp": (make_mlp, (784,), 10),
    "lenet": (make_lenet, (1, 28, 28), 10),
    "vgg11": (lambda: make_vgg((1, 1, 2, 2, 2)), (3, 224, 224), 1000),
    "vgg13": (lambda: make_vgg((2, 2, 2, 2, 2)), (3, 224, 224), 1000),
    "vgg16": (lambda: make_vgg((2, 2, 3, 3, 3)), (3, 224, 224), 1000),
    "vgg19": (lambda: make_vgg((2, 2, 4, 4, 4)), (3, 224, 224), 1000),
}
COMPILE_MODES = ["default", "reduce-overhead", "max-autotune-no-cudagraphs"]


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def make_step(options, rank, device):
    """Returns a function that does one step and returns the loss."""
    torch.manual_seed(0)
    make_model, shape, classes = MODELS[options.model]
    model = make_model().to(device)
    generator = torch.Generator().manual_seed(1 + rank)
    samples = torch.rand((options.batch_per_rank, *shape), generator=generator).to(device)
    labels = torch.randint(classes, (options.batch_per_rank,), generator=generator).to(device)
    if options.channels_last:
        model = model.to(memory_format=torch.channels_last)
        samples = samples.contiguous(memory_format=torch.channels_last)
    if options.ranks > 1:
        model = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True, static_graph=True)
        if options.grad_dtype == "bf16":
            from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook

            model.register_comm_hook(None, bf16_compress_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, **{options.optimizer: True})

    def loss_of(x, y):
        with torch.autocast(device.type, torch.bfloat16, enabled=options.precision == "bf16"):
            return F.cross_entropy(model(x), y)

    if options.compile:
        loss_of = torch.compile(loss_of, mode=options.compile)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(samples, labels)
        loss.backward()
        optimizer.step()
        return loss.item() if device.type == "cpu" else loss

    return captured(step) if options.graph else step


def captured(step):
    """Replays one CUDA graph of the whole step, update included: the least that PyTorch can spend between kernels."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(11):  # what DistributedDataParallel needs before a capture
            step()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.empty_cache()  # what only choosing algorithms took
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()

    def replay():
        graph.replay()
        return loss

    replay.step = step  # which holds the memory that the graph works in

    return replay


def profile(step, options):
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiler

    with profiler(activities=[ProfilerActivity.CPU], record_shapes=True) as result:
        for _ in range(options.profile):
            step()
    print(result.key_averages(group_by_input_shape=True).table(sort_by="self_cpu_time_total", row_limit=40))


def wait_for(device, options):
    if options.ranks > 1:
        dist.barrier()
    if device.type == "cuda":
        torch.cuda.synchronize()


def versions_of(device):
    versions = {"PyTorch": torch.__version__}
    if device.type == "cuda":
        versions["CUDA"] = torch.version.cuda
        versions["cuDNN"] = str(torch.backends.cudnn.version())
        versions["NCCL"] = ".".join(map(str, torch.cuda.nccl.version()))
    return versions


def used_gpu_mib():
    """Of the rank's GPU, as NVML has it: context, libraries and NCCL included, and whoever else is on it."""
    free, total = torch.cuda.mem_get_info()
    return (total - free) >> 20


def run(rank, options, port):
    torch.set_num_threads(options.threads)
    device = torch.device(options.device, rank if options.device == "cuda" else None)
    if device.type == "cuda":
        torch.cuda.set_device(device)
        torch.backends.cudnn.benchmark = not options.deterministic
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = options.precision == "tf32"
    torch.use_deterministic_algorithms(options.deterministic)
    if options.ranks > 1:
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        backend, own = ("nccl", {"device_id": device}) if device.type == "cuda" else ("gloo", {})
        dist.init_process_group(backend, f"tcp://127.0.0.1:{port}", rank=rank, world_size=options.ranks, **own)
    step = make_step(options, rank, device)
    for i in range(options.warmup):
        step()
        if device.type == "cuda" and i == options.warmup // 2:
            torch.cuda.empty_cache()  # what only choosing algorithms took
    wait_for(device, options)
    begin = time.perf_counter()
    for _ in range(options.steps):
        loss = step()
    if device.type == "cuda":
        torch.cuda.synchronize()
    mean_ms = 1e3 * (time.perf_counter() - begin) / options.steps
    if rank == 0:
        on_gpu = device.type == "cuda"
        result = {"mean_ms": mean_ms, "samples_per_s": round(1e3 * options.batch_per_rank * options.ranks / mean_ms, 1),
                  "loss": float(loss), "memory_mib": used_gpu_mib() if on_gpu else 0,
                  "device": torch.cuda.get_device_name() if on_gpu else "cpu",
                  "versions": versions_of(device)}  # fmt: skip
        print(json.dumps(result), flush=True)
        if options.profile:
            profile(step, options)
    if options.ranks > 1:
        dist.barrier()
        dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=sorted(MODELS), required=True)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--precision", choices=["f32", "tf32", "bf16"], default="f32", help="bf16: autocast")
    parser.add_argument("--grad-dtype", choices=["f32", "bf16"], default="f32", help="in which gradients are reduced")
    parser.add_argument("--deterministic", action="store_true")
    parser.add_argument("--batch-per-rank", type=int, default=64)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1, help="threads a rank")
    parser.add_argument("--warmup", type=int, default=100)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--compile", choices=COMPILE_MODES, help="torch.compile the forward pass and the loss")
    parser.add_argument("--graph", action="store_true", help="on a GPU: capture the whole step and replay it")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--optimizer", choices=["foreach", "fused"], default="foreach",
                        help="implementation of SGD")  # fmt: skip
    parser.add_argument("--profile", type=int, default=0, metavar="STEPS", help="one rank: print a table per operator")
    options = parser.parse_args()
    if options.graph and (options.device == "cpu" or options.compile == "reduce-overhead"):
        parser.error("--graph: a graph of one's own needs a GPU, and no mode of torch.compile that makes graphs itself")
    # Before any child starts: OpenMP reads it once.
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    if options.deterministic:
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    if options.ranks == 1:
        run(0, options, 0)
    else:
        mp.spawn(run, args=(options, free_port()), nprocs=options.ranks)


if __name__ == "__main__":
    main()
