#!/usr/bin/env python3
"""Where the time of a step goes on a GPU, from a trace of libgpu_trace.so (gpu_trace.cc).

usage: gpu_trace.py TRACE.csv [--steps N] [--marker NAME] [--top N]

A step ends with the kernel that MARKER is part of (write_report, of Lockstep's step; for another program, one that runs
once a step). The last N steps are looked at: time by kernel, time in which nothing ran, and, where steps are graph
launches, the idle share between the first and the last node of a launch. A trace slows small kernels down: shares are
to be read, not milliseconds.
"""
import argparse
import collections
import csv
import re
import statistics


def union_ns(intervals):
    total, reach = 0, 0
    for begin, end in sorted(intervals):
        total += max(0, end - max(begin, reach))
        reach = max(reach, end)
    return total


def short(name):
    name = re.sub(r"<.*|\(.*", "", name.replace("(anonymous namespace)::", "")).split(" ")[-1]
    return name.split("::")[-1][:70]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--marker", default="write_report")
    parser.add_argument("--top", type=int, default=40)
    parser.add_argument("--full-names", action="store_true")
    arguments = parser.parse_args()

    with open(arguments.trace, newline="") as file:
        rows = [(int(r[0]), int(r[1]), r[2], r[3], r[4] == "1", ",".join(r[5:])) for r in list(csv.reader(file))[1:]]
    rows.sort()
    ends = [row[1] for row in rows if arguments.marker in row[5]]
    if len(ends) <= arguments.steps:
        parser.error(f"expected more than {arguments.steps} kernels named {arguments.marker}, got {len(ends)}")
    first, last = ends[-arguments.steps - 1], ends[-1]
    rows = [row for row in rows if first < row[1] <= last]

    window = last - first
    busy = union_ns([(max(row[0], first), row[1]) for row in rows])
    print(f"{arguments.steps} steps of {window / arguments.steps / 1e3:.1f} us, "
          f"{len(rows) / arguments.steps:.1f} kernels a step, idle {1 - busy / window:.1%}")
    launches = collections.defaultdict(list)
    for row in rows:
        if row[4]:
            launches[row[3]].append(row[:2])
    whole = [nodes for nodes in launches.values() if len(nodes) == max(map(len, launches.values()))]
    if whole:
        idle = [1 - union_ns(nodes) / (max(end for _, end in nodes) - min(begin for begin, _ in nodes)) for nodes in whole]
        print(f"inside a graph launch of {len(whole[0])} nodes: idle {statistics.median(idle):.2%} (median of {len(idle)})")

    by_name = collections.defaultdict(list)
    for row in rows:
        by_name[row[5] if arguments.full_names else short(row[5])].append(row[1] - row[0])
    print(f"{'us a step':>10} {'calls':>6} {'us each':>9}  kernel")
    for name, times in sorted(by_name.items(), key=lambda item: -sum(item[1]))[:arguments.top]:
        print(f"{sum(times) / arguments.steps / 1e3:10.1f} {len(times) / arguments.steps:6.1f} "
              f"{statistics.mean(times) / 1e3:9.2f}  {name}")


if __name__ == "__main__":
    main()
