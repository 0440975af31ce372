"""Clients, servers and runners are killed; every result comes exactly once and no finished call runs again."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Callable

import pytest
import torcflow
from conftest import processes_of, runner_pids, server_pid

# Each call writes a line when it begins and one when its result is about to be returned. A call that was killed in
# between may run again; the last line is followed by nothing but the append of the result.
SCRIPT = """
import os, sys, time
import torcflow

def work(n):
    line(f"begin {n}")
    time.sleep(0.004)
    line(f"end {n}")
    return n * n

def line(text):
    handle = os.open("log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(handle, (text + "\\n").encode())
    os.close(handle)

with torcflow.Executor("test", backend="local") as ex:
    results = list(ex.map(work, range(CALLS), chunksize=SIZE))
    assert results == [n * n for n in range(CALLS)], "a result is wrong"
    print("known", ex.progress().known)
"""


def stored(flow: Path) -> set[int]:
    """Results that are in the index or in a segment, by their value: what may not be run again."""
    import pickle

    from torcflow import _segment
    from torcflow._store import Store

    root = flow / "flow" / "test"
    found: set[int] = set()
    if not (root / "index.db").exists():
        return found
    for segment in root.glob("segments/*/*"):
        try:
            data = segment.read_bytes()
        except FileNotFoundError:
            continue
        for record in _segment.records(data):
            if record.state == _segment.DONE:
                found.add(int(pickle.loads(record.payload) ** 0.5))
    store = Store(str(root))
    try:
        for (value,) in store.database.execute("SELECT value FROM calls"):
            found.add(int(pickle.loads(value) ** 0.5))
    finally:
        store.close()
    return found


def lines(flow: Path) -> list[str]:
    return (flow / "log").read_text().splitlines() if (flow / "log").exists() else []


def wait_for_lines(flow: Path, process: subprocess.Popen[str], number: int) -> None:
    while len(lines(flow)) < number and process.poll() is None:
        time.sleep(0.01)


def kill(pids: list[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue  # it had ended by itself


def begun_after_stored(flow: Path, at: int, done: set[int]) -> set[int]:
    """Calls that began after line `at` although their result was stored before."""
    return {int(line.split()[1]) for line in lines(flow)[at:] if line.startswith("begin")} & done


@pytest.mark.parametrize("seed", range(int(os.environ.get("TORCFLOW_KILLS", "2"))))
def test_kills_of_client_server_and_runner_lose_nothing_and_repeat_nothing(
    flow: Path, script: Callable[..., subprocess.Popen[str]], seed: int
) -> None:
    calls = 1000
    text = SCRIPT.replace("CALLS", str(calls)).replace("SIZE", "50")
    chance = random.Random(seed)
    process = script(text)
    repeated: set[int] = set()
    for _ in range(6):
        wait_for_lines(flow, process, len(lines(flow)) + chance.randrange(20, 200))
        if process.poll() is not None:
            break
        # What is stored now must not begin again, whatever is killed next.
        done, at = stored(flow), len(lines(flow))
        victim = chance.choice(["client", "server", "runner"])
        if victim == "client":
            process.kill()
            process.communicate()
            process = script(text)
        elif victim == "server":
            kill([pid for pid in processes_of(flow / "flow") if pid == server_pid(flow)])
        else:
            kill(runner_pids(flow))
        wait_for_lines(flow, process, at + 5)
        repeated |= begun_after_stored(flow, at, done)
    output, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors
    assert not repeated, "a call with a stored result ran again"
    ends = Counter(line for line in lines(flow) if line.startswith("end"))
    assert len(ends) == calls
    # Running it once more runs nothing.
    before = len(lines(flow))
    again = script(text)
    output, errors = again.communicate(timeout=60)
    assert again.returncode == 0, errors
    assert output.split() == ["known", str(calls)] and len(lines(flow)) == before


def test_calls_go_on_without_their_client_and_attach_finds_them(
    flow: Path, script: Callable[..., subprocess.Popen[str]]
) -> None:
    process = script(
        """
import time, torcflow
def slow(n):
    time.sleep(1.0)
    return n + 1
ex = torcflow.Executor("test", backend="local")
futures = [ex.submit(slow, n) for n in range(4)]
while any(future.job is None for future in futures):
    time.sleep(0.01)
print("sent", flush=True)
time.sleep(60)
"""
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "sent\n"
    process.kill()
    process.communicate()
    with torcflow.attach("test", backend="local") as executor:
        assert len(executor.futures) > 0
        assert {future.result() for future in executor.futures} <= {1, 2, 3, 4}
    assert executor.progress().stored == 4


def test_what_was_submitted_last_is_sent_although_the_script_ends(
    flow: Path, script: Callable[..., subprocess.Popen[str]]
) -> None:
    process = script(
        """
import torcflow
def f(n):
    return n + 1
torcflow.Executor("test", backend="local").submit(f, 1)
"""
    )
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    with torcflow.attach("test", backend="local"):
        pass
    with torcflow.Executor("test", backend="local") as executor:
        assert executor.progress().stored == 1


def test_attach_refuses_a_name_that_is_not_there(flow: Path) -> None:
    with pytest.raises(torcflow.TorcError, match="no executor 'nothing'"):
        torcflow.attach("nothing")
