"""What a call can ask about the job that runs it."""

from __future__ import annotations

import os
import time
from typing import NamedTuple, Optional

# Set by the worker for the call that runs; None in every other process.
_deadline: Optional[float] = None
_checkpoints: Optional[str] = None


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
