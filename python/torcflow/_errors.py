"""What a call can end with, beside the exception that it raised itself."""

from __future__ import annotations

from typing import Any, Optional


class TorcError(Exception):
    """Base of everything that torcflow raises by itself."""


class NotPicklable(TorcError, TypeError):
    """A function or an argument cannot be sent to another process."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


class JobError(TorcError):
    """The job of a call ended without a result of the call."""

    def __init__(self, why: str, job: Optional[str] = None) -> None:
        super().__init__(why, job)
        self.why = why
        self.job = job

    def __str__(self) -> str:
        return f"{self.job}: {self.why}" if self.job else self.why


class OutOfMemory(JobError, MemoryError):
    """The call used more memory than it was given, and recovery could not give it more."""

    def __init__(
        self, why: str, job: Optional[str] = None, used: Optional[int] = None, limit: Optional[int] = None
    ) -> None:
        super().__init__(why, job)
        self.args = (why, job, used, limit)
        self.used = used
        self.limit = limit


class TimeLimit(JobError, TimeoutError):
    """The call ran longer than its `time`."""

    def __init__(self, why: str, job: Optional[str] = None, limit: Optional[float] = None) -> None:
        super().__init__(why, job)
        self.args = (why, job, limit)
        self.limit = limit


class Lost(JobError):
    """The runner of the call died too often."""


class Canceled(JobError):
    """The call was canceled through Torc (`torc cancel`, the page, `Future.cancel`)."""


class Changed(JobError):
    """The interpreter or a module is not the one that the call was submitted with."""


class DependencyFailed(JobError):
    """A call whose result is an argument of this one ended badly."""

    def __init__(self, why: str, job: Optional[str] = None, future: Any = None) -> None:
        super().__init__(why, job)
        self.future = future

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.why, self.job))


class RemoteTraceback(Exception):
    """The traceback of the process that ran the call, as text."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'


def add_note(error: BaseException, note: str) -> None:
    """`add_note` of Python 3.11; older ones keep the list without showing it."""
    add = getattr(error, "add_note", None)
    if add is not None:
        add(note)
        return
    try:
        notes = list(getattr(error, "__notes__", []))
        setattr(error, "__notes__", notes + [note])
    except AttributeError:  # an exception class with slots
        return
