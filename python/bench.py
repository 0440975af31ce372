#!/usr/bin/env python3
"""Trivial calls by `map`, beside other executors that are installed, in one run: `python3 python/bench.py [CALLS]`.

Prints one line per tool: the time of all calls with start and end of the tool, the CPU time of all its processes
(which says more than the time on a machine that others use), the largest resident memory of the client, and the largest
memory of all its processes together (proportional, so that shared pages count once). submitit starts a process per call
on the local machine; it gets a thousandth of the calls. `submit` is ten times the calls, one by one, as futures.
"""

from __future__ import annotations

import concurrent.futures
import ctypes
import importlib.util
import os
import platform
import resource
import subprocess
import sys
import tempfile
import threading
import time


def trivial(x: int) -> int:
    return x


def torcflow_map(calls: int) -> list[int]:
    import torcflow

    with torcflow.Executor("bench", backend="local", directory="flow") as executor:
        return list(executor.map(trivial, range(calls)))


def torcflow_again(calls: int) -> list[int]:
    """The same script once more: every result is known."""
    return torcflow_map(calls)


def torcflow_submit(calls: int) -> list[int]:
    """As many futures, each submitted by itself."""
    import torcflow

    with torcflow.Executor("futures", backend="local", directory="flow") as executor:
        futures = [executor.submit(trivial, n) for n in range(calls)]
        return [future.result() for future in futures]


def process_pool(calls: int) -> list[int]:
    with concurrent.futures.ProcessPoolExecutor() as executor:
        return list(executor.map(trivial, range(calls)))


def submitit_local(calls: int) -> list[int]:
    import submitit

    executor = submitit.LocalExecutor("logs")
    executor.update_parameters(timeout_min=5)
    # One process per call: no more at once than there are CPUs.
    done: list[int] = []
    width = os.cpu_count() or 1
    for start in range(0, calls, width):
        jobs = [executor.submit(trivial, n) for n in range(start, min(start + width, calls))]
        done += [job.result() for job in jobs]
    return done


def dask_local(calls: int) -> list[int]:
    from dask.distributed import Client, LocalCluster

    with LocalCluster(dashboard_address=None) as cluster, Client(cluster) as client:
        return list(client.gather(client.map(trivial, range(calls))))


def parsl_local(calls: int) -> list[int]:
    import parsl
    from parsl.config import Config
    from parsl.executors import HighThroughputExecutor
    from parsl.providers import LocalProvider

    executor = HighThroughputExecutor(address="127.0.0.1", provider=LocalProvider(min_blocks=1, max_blocks=1))
    with parsl.load(Config(executors=[executor])):
        app = parsl.python_app(trivial)
        return [future.result() for future in [app(n) for n in range(calls)]]


# What is called, the module that must be there, and the part of the calls that it gets.
TOOLS = {
    "torcflow, map": (torcflow_map, "torcflow", 1.0),
    "torcflow, map once more": (torcflow_again, "torcflow", 1.0),
    "torcflow, submit": (torcflow_submit, "torcflow", 10.0),
    "ProcessPoolExecutor": (process_pool, "concurrent.futures", 1.0),
    "submitit (local)": (submitit_local, "submitit", 0.001),
    "Dask (LocalCluster)": (dask_local, "dask", 1.0),
    "Parsl (HighThroughputExecutor)": (parsl_local, "parsl", 1.0),
}


class Tree(threading.Thread):
    """Looks at the memory of all processes below this one."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.most = 0
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.wait(0.2):
            self.most = max(self.most, sum(map(proportional_bytes, descendants(os.getpid()))))


def descendants(root: int) -> list[int]:
    parents: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat") as file:
                    parent = int(file.read().rpartition(")")[2].split()[1])
            except OSError:
                continue
            parents.setdefault(parent, []).append(int(name))
    found, left = [], [root]
    while left:
        children = parents.get(left.pop(), [])
        found += children
        left += children
    return found


def proportional_bytes(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/smaps_rollup") as file:
            return next((int(line.split()[1]) << 10 for line in file if line.startswith("Pss:")), 0)
    except OSError:
        return 0


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure(name: str, calls: int, directory: str) -> str:
    """Runs one tool in a process of its own; the line about it."""
    part = TOOLS[name][2]
    count = max(1, int(calls * part))
    cpu, began = cpu_seconds(), time.monotonic()
    tree = Tree()
    tree.start()
    done = subprocess.run(
        [sys.executable, os.path.abspath(__file__), "--one", name, str(count)],
        cwd=directory,
        env={**os.environ, "PATH": f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
    )
    seconds = time.monotonic() - began
    tree.over.set()
    tree.join()
    while True:  # processes of sessions of their own come to us when their parent ends
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            break
    if done.returncode != 0:
        return f"{name:32} failed: {done.stderr.strip().splitlines()[-1:]}"
    memory = done.stdout.split()[-1]
    return (
        f"{name:32} {count:7} calls {seconds:7.2f} s  {count / seconds:7.0f}/s  {cpu_seconds() - cpu:6.1f} s of CPU"
        f"  {memory:>4} MB client  {tree.most >> 20:4} MB all"
    )


def main() -> None:
    calls = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    # 36 is PR_SET_CHILD_SUBREAPER: servers and workers that outlive their parent are still counted here.
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
    print(f"{time.strftime('%Y-%m-%d %H:%M')}, {os.cpu_count()} CPUs, {platform.machine()}, Python {platform.python_version()}")
    with tempfile.TemporaryDirectory() as directory:
        for name, (_, module, _) in TOOLS.items():
            if importlib.util.find_spec(module) is None:
                print(f"{name:32} not installed")
                continue
            load = os.getloadavg()[0]
            print(f"{measure(name, calls, directory)}  load {load:.1f}", flush=True)


def one(name: str, calls: int) -> None:
    assert sorted(TOOLS[name][0](calls)) == list(range(calls))
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        one(sys.argv[2], int(sys.argv[3]))
    else:
        main()
