"""The `torc` program: where it is, and the processes that work for an executor.

Server and runners are processes of their own in sessions of their own: they go on when the client dies.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import sysconfig
from typing import Any, Optional

from ._errors import TorcError
from ._http import ApiError, Connection, local_connection, wait_until

START_SECONDS = 30.0


def program() -> str:
    """The `torc` program: `TORC_BIN`, the one installed with this package, or the one on the path."""
    named = os.environ.get("TORC_BIN")
    if named:
        return named
    beside = os.path.join(sysconfig.get_path("scripts"), "torc")
    if os.access(beside, os.X_OK):
        return beside
    import shutil

    found = shutil.which("torc")
    if found is None:
        raise TorcError("the `torc` program is not there: `pip install torcflow` brings it, or set TORC_BIN")
    return found


def environment() -> dict[str, str]:
    """Our environment without what would point `torc` to another server."""
    dropped = ("TORC_API_URL", "TORC_TOKEN", "TORC_TOKEN_FILE", "TORC_DIR", "TORC_FORMAT", "TORC_TLS_CA")
    return {name: value for name, value in os.environ.items() if name not in dropped}


class WrongCall(TorcError):
    """`torc` says that what it was asked for is wrong: asking again does not help."""


# With this code `torc` ends when the call or the spec is wrong.
WRONG_CALL = 2


def run(args: list[str], cwd: Optional[str] = None) -> str:
    """Runs `torc` to its end; what it printed."""
    done = subprocess.run(
        [program(), *args], capture_output=True, text=True, env=environment(), cwd=cwd, stdin=subprocess.DEVNULL
    )
    if done.returncode != 0:
        kind = WrongCall if done.returncode == WRONG_CALL else TorcError
        raise kind(done.stderr.strip() or f"`torc {' '.join(args)}` ended with {done.returncode}")
    return done.stdout


class Engine:
    """The server of one state directory and the runners of its workflows."""

    def __init__(self, root: str, slurm: bool = False) -> None:
        self.root = root
        # Compute nodes must reach the server: it listens on this machine's name then, over HTTPS.
        self.host = ["--host", socket.gethostname()] if slurm else []
        self.state = os.path.join(root, "torc")
        self.runners: dict[int, subprocess.Popen[bytes]] = {}

    def _log(self, name: str) -> Any:
        path = os.path.join(self.root, name)
        return open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab")

    def _start(self, args: list[str], log: str) -> subprocess.Popen[bytes]:
        with self._log(log) as output:
            return subprocess.Popen(
                [program(), "--dir", self.state, *args],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment(),
                cwd=self.root,
                start_new_session=True,
            )

    def reachable(self) -> Optional[Connection]:
        """The server, if it answers."""
        found = local_connection(self.state)
        if found is None:
            return None
        try:
            found.request("GET", "/health", timeout=5.0)
        except ApiError as error:
            return None if error.unreachable else found
        return found

    def server(self) -> Connection:
        """The server; starts it when there is none. Two clients may do so at once: the second one is refused."""
        found = self.reachable()
        if found is not None:
            return found
        process = self._start(["server", "run", *self.host], "server.log")
        answer: list[Connection] = []

        def ready() -> bool:
            process.poll()
            connection = self.reachable()
            if connection is not None:
                answer.append(connection)
            return connection is not None

        if not wait_until(ready, START_SECONDS):
            with open(os.path.join(self.root, "server.log"), errors="replace") as log:
                raise TorcError(f"the server does not start: {log.read()[-2000:].strip()}")
        return answer[0]

    def runner(self, workflow: int, recover: bool, slurm: bool, limits: list[str]) -> None:
        """Starts what runs a workflow, unless it was started and lives."""
        mine = self.runners.get(workflow)
        if mine is not None and mine.poll() is None:
            return
        if slurm:
            args = ["watch", str(workflow), "--auto-schedule"] + (["--recover"] if recover else [])
        elif recover:
            args = ["watch", str(workflow), "--recover", *limits]
        else:
            args = ["runner", str(workflow), *limits]
        output = [] if slurm else ["--output-dir", os.path.join(self.root, "output")]
        self.runners[workflow] = self._start(args + output, "runner.log")

    def reap(self) -> None:
        """Takes leave of runners that have ended."""
        for workflow, process in list(self.runners.items()):
            if process.poll() is not None:
                del self.runners[workflow]

    def stop_server(self) -> None:
        """Asks the server to end, and waits for it."""
        if self.reachable() is None:
            return  # the record may name a process id that is in use by another program
        try:
            with open(os.path.join(self.state, "server.json"), encoding="utf-8") as file:
                record = json.load(file)
        except (OSError, ValueError):
            return
        if record.get("hostname") != socket.gethostname() or record.get("embedded"):
            return
        pid = int(record["pid"])
        try:
            os.kill(pid, signal.SIGTERM)
        except ProcessLookupError:
            return
        wait_until(lambda: not os.path.exists(os.path.join(self.state, "server.json")), 10.0)


def python_command() -> list[str]:
    """What runs a worker: this interpreter, unbuffered."""
    worker = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_worker.py")
    return [sys.executable, "-u", worker]
