#!/usr/bin/env python3
"""Trivial calls by `map`, beside other executors that are installed, in one run: `python3 python/bench.py [CALLS]`.

Prints one line per tool: the time of all calls with start and end of the tool, and the largest resident memory of the
client. submitit starts a process per call on the local machine; it gets a thousandth of the calls, and its line says so.
"""

from __future__ import annotations

import concurrent.futures
import importlib.util
import os
import subprocess
import sys
import tempfile
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


TOOLS = {
    "torcflow": (torcflow_map, "torcflow", 1),
    "torcflow, once more": (torcflow_again, "torcflow", 1),
    "ProcessPoolExecutor": (process_pool, "concurrent.futures", 1),
    "submitit (local)": (submitit_local, "submitit", 1000),
    "Dask (LocalCluster)": (dask_local, "dask", 1),
    "Parsl (HighThroughputExecutor)": (parsl_local, "parsl", 1),
}


def main() -> None:
    calls = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    print(f"{calls} trivial calls, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}, Python {sys.version.split()[0]}")
    with tempfile.TemporaryDirectory() as directory:
        for name, (_, module, part) in TOOLS.items():
            if importlib.util.find_spec(module) is None:
                print(f"{name:32} not installed")
                continue
            began = time.monotonic()
            done = subprocess.run(
                [sys.executable, os.path.abspath(__file__), "--one", name, str(calls // part)],
                cwd=directory,
                env={**os.environ, "PATH": f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"},
                capture_output=True,
                text=True,
            )
            seconds = time.monotonic() - began
            if done.returncode != 0:
                print(f"{name:32} failed: {done.stderr.strip().splitlines()[-1:]}")
                continue
            rate = calls / part / seconds
            memory = done.stdout.split()[-1]
            note = f"  ({calls // part} calls)" if part > 1 else ""
            print(f"{name:32} {seconds:7.2f} s  {rate:9.0f} calls/s  {memory:>5} MB{note}")


def one(name: str, calls: int) -> None:
    import resource

    assert sorted(TOOLS[name][0](calls)) == list(range(calls))
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        one(sys.argv[2], int(sys.argv[3]))
    else:
        main()
