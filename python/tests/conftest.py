"""Every test has a directory of its own; servers and runners that it leaves are ended by their process id."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))

import torcflow  # noqa: E402


def processes_of(directory: Path) -> list[int]:
    """Processes of `torc` and of workers that work in this directory."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if any(str(directory).encode() in word for word in words) and int(entry.name) != os.getpid():
                found.append(int(entry.name))
    return found


def end_processes(directory: Path) -> None:
    for pid in processes_of(directory):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


@pytest.fixture
def flow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory for executors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCFLOW_DIR", str(tmp_path / "flow"))
    yield tmp_path
    end_processes(tmp_path)


@pytest.fixture
def local(flow: Path) -> Iterator[torcflow.Executor]:
    """An executor that runs on this machine."""
    with torcflow.Executor("test", backend="local") as executor:
        yield executor


@pytest.fixture
def script(flow: Path) -> Callable[..., subprocess.Popen[str]]:
    """Starts Python with this text in a process of its own."""

    def start(text: str, name: str = "script.py") -> subprocess.Popen[str]:
        file = flow / name
        file.write_text(text)
        path = str(Path(__file__).parent.parent)
        return subprocess.Popen(
            [sys.executable, str(file)],
            cwd=flow,
            env={**os.environ, "PYTHONPATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


def server_pid(flow: Path, name: str = "test") -> Any:
    """The process of an executor's server."""
    try:
        return json.loads((flow / "flow" / name / "torc" / "server.json").read_text())["pid"]
    except (OSError, ValueError):
        return None


def runner_pids(flow: Path) -> list[int]:
    """The processes that run jobs."""
    found = []
    for pid in processes_of(flow / "flow"):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"watch" in words or b"runner" in words:
            found.append(pid)
    return found
