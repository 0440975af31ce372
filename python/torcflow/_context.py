"""What a call can ask about the job that runs it, and how it saves its state when it is told to end."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from typing import Any, Callable, NamedTuple, Optional

from . import _segment

# Set by the worker for the call that runs; None in every other process.
_deadline: Optional[float] = None
_checkpoints: Optional[str] = None
_scratch: Optional[str] = None
# What saves the state of the call that runs, in the order in which it was registered.
_hooks: list[Callable[[], Any]] = []
# The worker's process: only its handler saves, not one that a forked child inherited.
_worker_pid: Optional[int] = None


class Context(NamedTuple):
    """The job around a call. Outside of a job the ids are None and the attempt is 1."""

    workflow_id: Optional[int]
    job_id: Optional[int]
    job_name: Optional[str]
    attempt: int
    checkpoint_dir: str
    deadline: Optional[float]

    @property
    def time_left(self) -> Optional[float]:
        """Seconds until the call's `time` is over; None without a limit."""
        return None if self.deadline is None else self.deadline - time.monotonic()

    @property
    def scratch(self) -> str:
        """A directory on this machine (in `TMPDIR`) that is empty for each call and deleted when the call ends."""
        global _scratch
        if _scratch is None:
            import tempfile

            _scratch = tempfile.mkdtemp(prefix="torcflow-")
        return _scratch

    def on_stop(self, hook: Callable[[], Any]) -> Callable[[], Any]:
        """Calls `hook()` when the call is told to end: its time is over, its node is taken away, or Torc stops.

        The hook interrupts the call in its main thread and has `grace` seconds (of the executor) to save what the call
        needs into `checkpoint_dir`. The call is then run again, in another attempt that costs none of its retries.
        """
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("`on_stop` belongs into the thread that runs the call: signals interrupt only that one")
        if _worker_pid is None:
            return hook  # no job is around: the debug backend, or a plain call
        _hooks.append(hook)
        if len(_hooks) == 1:
            # Not before: without a hook SIGTERM ends the process at once, also inside of long C functions.
            signal.signal(signal.SIGTERM, _save)
        return hook


def _save(number: int, frame: Any) -> None:
    """SIGTERM: runs the hooks of the call and leaves, so that the job is queued again."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if os.getpid() != _worker_pid:
        os.kill(os.getpid(), signal.SIGTERM)
        return
    code = _segment.EXIT_CHECKPOINT
    for hook in _hooks:
        try:
            hook()
        except BaseException:
            import traceback

            traceback.print_exc()
            print("torcflow: the hook of `on_stop` failed; the call counts as ended by SIGTERM", file=sys.stderr)
            code = 128 + number
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def begin_call(checkpoints: str, deadline: Optional[float]) -> None:
    """The worker begins a call."""
    global _checkpoints, _deadline, _worker_pid
    _checkpoints, _deadline, _worker_pid = checkpoints, deadline, os.getpid()


def end_call(returned: bool) -> None:
    """The worker has ended a call: its hooks and its scratch directory go, and its checkpoints if it returned."""
    global _scratch
    if _hooks:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        _hooks.clear()
    kept = None if returned else _checkpoints
    gone = [path for path in (_scratch, _checkpoints) if path is not None and path != kept and os.path.isdir(path)]
    _scratch = None
    if gone:
        import shutil

        for path in gone:
            shutil.rmtree(path, ignore_errors=True)


def saves() -> bool:
    """The call that runs saves its state when it is told to end."""
    return bool(_hooks)


def _number(name: str) -> Optional[int]:
    value = os.environ.get(name, "")
    return int(value) if value.isdigit() else None


def context() -> Context:
    """The job around the call that runs now; `checkpoint_dir` is the same directory for every attempt."""
    directory = _checkpoints or os.path.join(os.getcwd(), "checkpoints")
    os.makedirs(directory, mode=0o700, exist_ok=True)
    return Context(
        _number("TORC_WORKFLOW_ID"),
        _number("TORC_JOB_ID"),
        os.environ.get("TORC_JOB_NAME"),
        _number("TORC_ATTEMPT_ID") or 1,
        directory,
        _deadline,
    )
