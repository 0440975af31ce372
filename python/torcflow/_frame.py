"""Calls of an executor as a frame of pandas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._errors import TorcError
from ._future import Future, state_of
from ._http import ApiError

if TYPE_CHECKING:
    import pandas

    from ._executor import Executor


def _pandas() -> Any:
    try:
        import pandas
    except ImportError as error:
        raise TorcError("frames need pandas: `pip install pandas`") from error
    return pandas


def _error_text(future: Future[Any]) -> Any:
    if state_of(future) != "failed":
        return None
    error = future.exception()
    return f"{type(error).__name__}: {error}"


def calls_frame(executor: Executor) -> pandas.DataFrame:
    """One row for each call: what it is, how it stands, its result, and what its job used."""
    make = _pandas().DataFrame
    core = executor._core
    futures = executor.futures
    debug = core.backend == "debug"
    known = {} if debug else core.store.known([future._torcflow_name for future in futures])
    used, present = _used(executor, [] if debug else futures)
    rows = []
    for future in futures:
        state = state_of(future)
        value = known.get(future._torcflow_name)
        attempt = used.get(future.job, {}) if future.job else {}
        if not attempt and future.job and future.job[0] in present and state in ("done", "failed"):
            # A call's value is stored before the server hears of the end of its job.
            attempt = {"attempt_id": len(core.attempts(future.job)) or None}
        rows.append(
            {
                "name": future.name,
                "function": future._title,
                "status": state,
                "result": future.result() if state == "done" else None,
                "error": _error_text(future),
                "seconds": None if value is None else value.seconds,
                "workflow": future.job[0] if future.job else None,
                "job": future.job[1] if future.job else None,
                "attempts": attempt.get("attempt_id"),
                "host": attempt.get("hostname"),
                "job_memory": attempt.get("memory_bytes"),
                "job_peak_memory": attempt.get("peak_memory_bytes"),
                "job_seconds": attempt.get("exec_seconds"),
            }
        )
    frame: pandas.DataFrame = make(rows)
    return frame


def _used(executor: Executor, futures: list[Future[Any]]) -> tuple[dict[tuple[int, str], Any], set[int]]:
    """The newest result of each job by workflow and name, and the workflows that are there."""
    found: dict[tuple[int, str], Any] = {}
    present: set[int] = set()
    workflows = {future.job[0] for future in futures if future.job}
    client = executor.client() if workflows else None
    for workflow in sorted(workflows):
        assert client is not None
        try:
            for row in client.iter_results(workflow_id=workflow):
                found[workflow, row["job_name"]] = row
            present.add(workflow)
        except ApiError as error:
            if error.status != 404:  # old workflows are deleted, their results are kept
                raise
    return found, present


def with_results(frame: pandas.DataFrame, futures: list[Future[Any]], column: str) -> pandas.DataFrame:
    """The frame with a column of results, and how each call ended."""
    states = [state_of(future) for future in futures]
    new: pandas.DataFrame = frame.copy()
    new[column] = [future.result() if state == "done" else None for future, state in zip(futures, states)]
    new["torc_status"] = states
    new["torc_error"] = [_error_text(future) for future in futures]
    return new
