"""Calls in allocations of a real Slurm cluster, the one of `scripts/slurm-lab`."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Optional

import pytest
import torcflow


def no_cluster() -> Optional[str]:
    if "SLURM_CONF" not in os.environ or shutil.which("sinfo") is None:
        return 'no Slurm cluster: `scripts/slurm-lab start` and `eval "$(scripts/slurm-lab env)"` give one'
    answer = subprocess.run(["sinfo", "-h"], capture_output=True, text=True)
    return None if answer.returncode == 0 else f"the Slurm cluster does not answer: {answer.stderr.strip()}"


pytestmark = pytest.mark.skipif(no_cluster() is not None, reason=str(no_cluster()))


def allocation(x: int) -> tuple[int, str]:
    return x * x, os.environ["SLURM_JOB_ID"]


def refuse(x: int) -> int:
    raise LookupError(f"{x} is not there")


def slow(path: str) -> str:
    with open(path, "a") as file:
        file.write(os.environ["SLURM_JOB_ID"] + "\n")
    time.sleep(4)
    return "done"


def test_calls_run_in_allocations_and_errors_come_back(flow: Path) -> None:
    with torcflow.Executor("test", backend="slurm", memory="200m", time="1m", account="abc") as executor:
        first = executor.submit(allocation, 3)
        assert first.result(timeout=120)[0] == 9
        assert int(first.result()[1]) > 0
        assert [value for value, _ in executor.map(allocation, range(6), timeout=120)] == [0, 1, 4, 9, 16, 25]
        error = executor.submit(refuse, 5).exception(timeout=120)
        assert isinstance(error, LookupError) and isinstance(error.__cause__, torcflow.RemoteTraceback)
    with torcflow.Executor("test", account="abc") as executor:
        assert executor.backend == "slurm"
        assert executor.submit(allocation, 3).result(timeout=120) == first.result()
        assert executor.progress().known == 1


def test_calls_that_cannot_be_planned_fail_and_are_free_for_another_try(flow: Path) -> None:
    with torcflow.Executor("test", backend="slurm", account="abc", partition="nowhere") as executor:
        error = executor.submit(pow, 3, 2).exception(timeout=60)
        assert isinstance(error, torcflow.TorcError) and "nowhere" in str(error)
    with torcflow.Executor("test", backend="local") as executor:
        assert executor.submit(pow, 3, 2).result(timeout=60) == 9


def test_a_canceled_allocation_costs_no_call(flow: Path) -> None:
    log = flow / "log"
    with torcflow.Executor("test", backend="slurm", memory="200m", time="1m", account="abc") as executor:
        future = executor.submit(slow, str(log))
        deadline = time.monotonic() + 120
        while not log.exists() or not log.read_text().strip():
            assert time.monotonic() < deadline
            time.sleep(0.1)
        subprocess.run(["scancel", log.read_text().strip()], check=True)
        assert future.result(timeout=180) == "done"
    assert len(log.read_text().split()) == 2, "it ran in another allocation"


def counts(path: str, end: int) -> tuple[int, int]:
    """Counts, and saves how far it is when it is told to end; where it began, and where it ended."""
    import torcflow

    context = torcflow.context()
    state = os.path.join(context.checkpoint_dir, "step")
    step = began = int(open(state).read()) if os.path.exists(state) else 0

    @context.on_stop
    def save() -> None:
        with open(state, "w") as file:
            file.write(str(step))

    with open(path, "a") as file:
        file.write(os.environ["SLURM_JOB_ID"] + "\n")
    while step < end:
        time.sleep(0.1)
        step += 1
    return began, step


def test_a_call_saves_its_state_when_its_allocation_is_canceled(flow: Path) -> None:
    log = flow / "log"
    with torcflow.Executor("test", backend="slurm", memory="200m", time="2m", account="abc") as executor:
        future = executor.submit(counts, str(log), 60)
        deadline = time.monotonic() + 120
        while not log.exists() or not log.read_text().strip():
            assert time.monotonic() < deadline
            time.sleep(0.1)
        time.sleep(1)  # the work of the first allocation
        subprocess.run(["scancel", log.read_text().strip()], check=True)
        began, ended = future.result(timeout=180)
    assert began > 0 and ended == 60, "it went on where it was"
    assert len(set(log.read_text().split())) == 2
