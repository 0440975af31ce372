"""Exceptions of calls, from what workers wrote and what the server says of their jobs."""

from __future__ import annotations

import pickle
from typing import Any

from ._errors import Canceled, JobError, Lost, OutOfMemory, RemoteTraceback, TimeLimit, add_note


def remote_error(payload: bytes) -> BaseException:
    pickled, text = pickle.loads(payload)
    try:
        read = pickle.loads(pickled)
    except Exception as broken:
        read = JobError(f"it raised an exception that cannot be read here: {broken}")
    error: BaseException = read if isinstance(read, BaseException) else JobError(f"it raised {read!r}")
    error.__cause__ = RemoteTraceback(text)
    return error


def cause_error(job: str, why: dict[str, Any], attempt: dict[str, Any]) -> JobError:
    """The error of a job that ended without a word of the call."""
    summary = attempt.get("error") or why["summary"]
    tail = attempt.get("stderr_tail")
    cause = attempt.get("cause")
    if cause == "oom":
        return OutOfMemory(summary, job, attempt.get("peak_memory_bytes"), attempt.get("memory_bytes"))
    if cause == "timeout":
        return TimeLimit(summary, job, attempt.get("time_limit_seconds"))
    if cause in ("lost", "preempted", "node_fail", "walltime", "stopped"):
        return Lost(summary, job)
    if cause == "canceled" or why["job"]["status"] == "canceled":
        return Canceled(summary, job)
    return JobError(f"{summary}\n{tail.strip()}" if tail else summary, job)


def annotate(error: BaseException, job: str, job_id: int, attempt: dict[str, Any], why: dict[str, Any]) -> None:
    where = f" on {attempt['hostname']}" if attempt.get("hostname") else ""
    add_note(error, f"torc: job {job} (id {job_id}), attempt {attempt.get('attempt_id', 1)}{where}")
    if attempt.get("stderr_path"):
        add_note(error, f"torc: log {attempt['stderr_path']}")
    diagnosis = why.get("diagnosis") or {}
    sentence = diagnosis.get("summary") or why["summary"]
    if isinstance(sentence, str):
        add_note(error, f"torc: {sentence}")


