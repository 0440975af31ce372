"""Clients, servers and runners are killed; every result comes exactly once and no finished call runs again."""

from __future__ import annotations

import math
import os
import pickle
import random
import signal
import sqlite3
import subprocess
import time
from contextlib import closing
from pathlib import Path
from typing import Any, Callable

import pytest
import torcflow
from conftest import processes_of, runner_pids, server_pid
from torcflow import _segment

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


class Ledger:
    """Which results were stored when: a call whose result was stored once must never begin again."""

    def __init__(self, flow: Path) -> None:
        self.flow = flow
        # For each call, how many lines the log had when its result was first seen to be stored.
        self.stored_at: dict[int, int] = {}

    def note(self) -> None:
        """Looks at the store first and at the log then, so that every line beyond was written after the result."""
        done = self._stored()
        at = len(lines(self.flow))
        for call in done:
            self.stored_at.setdefault(call, at)

    def repeated(self) -> set[int]:
        """Calls that began although their result was stored."""
        begun = [(at, int(line.split()[1])) for at, line in enumerate(lines(self.flow)) if line.startswith("begin")]
        return {call for at, call in begun if at >= self.stored_at.get(call, at + 1)}

    def _stored(self) -> set[int]:
        """Calls whose results are in a segment or in the index, by their value."""
        root = self.flow / "flow" / "test"
        found: set[int] = set()
        # Segments first: a client moves results from there to the index.
        for segment in root.glob("segments/*/*"):
            try:
                data = segment.read_bytes()
            except FileNotFoundError:
                continue
            for record in _segment.records(data):
                if record.state == _segment.DONE:
                    found.add(math.isqrt(pickle.loads(record.payload)))
        if (root / "index.db").exists():
            with closing(sqlite3.connect(f"file:{root / 'index.db'}?mode=ro", uri=True, timeout=30)) as index:
                try:
                    rows = index.execute("SELECT value FROM calls").fetchall()
                except sqlite3.OperationalError:
                    rows = []  # a client is just creating it
                found |= {math.isqrt(pickle.loads(value)) for (value,) in rows}
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


KILLS = 10


@pytest.mark.parametrize("seed", range(int(os.environ.get("TORCFLOW_KILLS", "2"))))
def test_kills_of_client_server_and_runner_lose_nothing_and_repeat_nothing(
    flow: Path, script: Callable[..., subprocess.Popen[str]], seed: int
) -> None:
    calls = 1000
    text = SCRIPT.replace("CALLS", str(calls)).replace("SIZE", "50")
    chance = random.Random(seed)
    # Each of them at least twice, in an order and at points of the work that are left to chance.
    victims = ["client", "server", "runner"] * 3 + ["all"]
    chance.shuffle(victims)
    points = sorted(chance.sample(range(20, 2 * calls - 40), KILLS))
    process = script(text)
    ledger = Ledger(flow)
    killed = []
    for victim, point in zip(victims, points):
        wait_for_lines(flow, process, point)
        if process.poll() is not None:
            break
        ledger.note()
        killed.append(victim)
        if victim in ("server", "all"):
            kill([pid for pid in processes_of(flow / "flow") if pid == server_pid(flow)])
        if victim in ("runner", "all"):
            kill(runner_pids(flow))
        if victim in ("client", "all"):
            process.kill()
            process.communicate()
            process = script(text)
    output, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors
    assert len(killed) == KILLS, f"it ended before all were killed: {killed}"
    assert ledger.stored_at and ledger.repeated() == set(), "a call with a stored result ran again"
    assert {line for line in lines(flow) if line.startswith("end")} == {f"end {n}" for n in range(calls)}
    ledger.note()
    assert set(ledger.stored_at) == set(range(calls))
    # Running it once more runs nothing.
    before = len(lines(flow))
    again = script(text)
    output, errors = again.communicate(timeout=60)
    assert again.returncode == 0, errors
    assert output.split() == ["known", str(calls)] and len(lines(flow)) == before
    assert ledger.repeated() == set()


def test_the_ledger_sees_a_finished_call_that_runs_again(
    flow: Path, script: Callable[..., subprocess.Popen[str]]
) -> None:
    """The check above can fail: `fresh=True` is a client that forgets what is done, long after it was noted."""
    text = SCRIPT.replace("CALLS", "20").replace("SIZE", "5")
    ledger = Ledger(flow)
    for wishes in ("", ", fresh=True"):
        process = script(text.replace('backend="local"', 'backend="local"' + wishes))
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
        if not wishes:
            ledger.note()
            assert ledger.repeated() == set()
    assert ledger.repeated() == set(range(20))


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


def test_a_second_client_sees_the_calls_of_the_first_one_end(
    flow: Path, script: Callable[..., subprocess.Popen[str]]
) -> None:
    """The first one owns its batches and ends them; the second one gets every result all the same."""
    process = script(
        """
import time, torcflow
def slow(n):
    time.sleep(0.3)
    if n == 3:
        raise LookupError("three")
    return n + 1
with torcflow.Executor("test", backend="local") as ex:
    futures = [ex.submit(slow, n) for n in range(6)]
    while any(future.job is None for future in futures):
        time.sleep(0.01)
    print("sent", flush=True)
    print([future.exception() or future.result() for future in futures])
"""
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "sent\n"
    with torcflow.attach("test", backend="local") as second:
        assert len(second.futures) > 3
        values = {future.result() for future in second.futures if future.exception(timeout=60) is None}
        bad = [future.exception() for future in second.futures if future.exception() is not None]
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 0 and "LookupError('three')" in output, errors
    assert values <= {1, 2, 3, 5, 6} and len(bad) == 1 and isinstance(bad[0], (LookupError, torcflow.Lost))


def test_results_that_come_while_the_server_answers_are_not_taken_for_missing(
    flow: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs that end between the client's look at the segments and the server's answer are in that answer."""
    from torcflow._http import Connection

    request = Connection.request

    def slow(self: Connection, method: str, path: str, *args: Any, **kwargs: Any) -> Any:
        if path == "/jobs":
            time.sleep(1.0)
        return request(self, method, path, *args, **kwargs)

    monkeypatch.setattr(Connection, "request", slow)

    def work(path: str, n: int) -> int:
        with open(path, "a") as file:
            file.write(f"{n}\n")
        time.sleep(0.2)
        return n

    with torcflow.Executor("test", backend="local") as executor:
        assert list(executor.map(work, [str(flow / "log")] * 24, range(24), chunksize=2)) == list(range(24))
    assert sorted(lines(flow), key=int) == [str(n) for n in range(24)], "a call ran twice"
