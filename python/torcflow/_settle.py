"""Settles calls: reads what workers wrote, asks the server about jobs that ended, and starts again what died."""

from __future__ import annotations

import os
import pickle
import signal
import time
from typing import TYPE_CHECKING, Any, Optional

from . import _segment
from ._batch import Batch
from ._errors import Canceled, Lost, TimeLimit, TorcError
from ._future import Call, Future, condition, dependency_failed, went_badly
from ._http import ApiError, Connection
from ._outcome import annotate, cause_error, remote_error
from ._store import Known, read_new

if TYPE_CHECKING:
    from ._core import Core
    from ._send import Sender

# Rounds of recovery (more memory, the same again) that a job gets.
RECOVERIES = 3
# A call that came back this often without an end is given up.
REQUEUES = 20
# Workflows that are over stay for `why` and `logs`; beyond this many the oldest go, with their logs.
KEPT_WORKFLOWS = 100
# How long after a failed call its job's end is asked for.
SOON_SECONDS = 0.15


class Settler:
    """The part of the monitor that brings results."""

    def __init__(self, core: Core, sender: Sender) -> None:
        self.core = core
        self.sender = sender
        # When the server is to be asked, because a call failed; 0 if there is no reason.
        self.check_at = 0.0

    def read(self, batch: Batch) -> None:
        """Takes over what workers have written since the last look."""
        directory = os.path.join(self.core.root, "segments", batch.id)
        try:
            names = sorted(os.listdir(directory), key=_attempt_order)
        except FileNotFoundError:
            return  # no job has begun, or another client has ended the batch
        values: list[tuple[bytes, Optional[bytes], Optional[str], int, float, str, str]] = []
        answers: list[tuple[Future[Any], Known]] = []
        for file in names:
            path = os.path.join(directory, file)
            offset = batch.offsets.get(file, 0)
            try:
                if os.stat(path).st_size <= offset:
                    continue
                found, batch.offsets[file] = read_new(path, offset)
            except FileNotFoundError:
                break  # another client has just ended the batch
            for record in found:
                if record.state == _segment.REFUSED:
                    batch.refused[file.rpartition(".")[0]] = record.payload
                    continue
                call = batch.calls.get(record.name)
                if call is None or record.name in batch.returned:
                    continue
                future = self.core.futures.get(record.name)
                if record.state in (_segment.DONE, _segment.STORED):
                    value, blob, size = record.payload, None, len(record.payload)
                    if record.state == _segment.STORED:
                        blob = record.payload.decode()
                        size = os.stat(_segment.blob_path(self.core.root, blob)).st_size
                    values.append(
                        (record.name, value if blob is None else None, blob, size, record.seconds, call.function, call.title)
                    )
                    batch.returned.add(record.name)
                    batch.last.pop(record.name, None)
                    if future is not None and not future.done():
                        answers.append((future, Known(value, blob, size, record.seconds, call.title)))
                else:
                    batch.last[record.name] = record
                    if record.state != _segment.BEGUN and not self.check_at:
                        self.check_at = time.monotonic() + SOON_SECONDS
                    if record.state == _segment.BEGUN and future is not None:
                        with condition:
                            if not future.running() and not future.done():
                                future.set_running_or_notify_cancel()
        self.core.store.add_values(values)
        for future, known in answers:
            self.core.resolve(future, known)

    def check(self, batch: Batch) -> None:
        """Asks the server about the jobs of a batch: what failed is recovered or told, what died is started again."""
        try:
            if batch.mine or self.core.store.has_batch(batch.id):
                self._check(batch)
                return
        except FileNotFoundError:
            if batch.mine or self.core.store.has_batch(batch.id):
                raise
        self._ended_elsewhere(batch)

    def _check(self, batch: Batch) -> None:
        connection = self.sender.create(batch)
        if connection is None:
            return
        assert batch.workflow is not None
        try:
            status = connection.request("GET", f"/workflows/{batch.workflow}/status")
        except ApiError as error:
            if error.status == 404:
                self.sender.drop(batch, Canceled("its workflow was deleted"))
                return
            raise
        self.core.engine.reap()
        if not status["is_complete"] and batch.workflow not in self.core.engine.runners:
            if status["active_runners"] == 0 or batch.slurm:
                self.core.engine.runner(batch.workflow, batch.recover, batch.slurm, [])
        counts = status["counts"]
        ended = {name: counts.get(name, 0) for name in ("completed", "failed", "canceled", "terminated", "disabled")}
        # Jobs that ended and are not settled here yet; a recovered one may end again.
        if sum(ended.values()) > len(batch.jobs) - len(batch.open):
            self._judge(batch, connection, ended)
        if not batch.open and status["is_complete"]:
            # A client that lives ends its batches itself, when it has read them.
            ends = batch.mine or not self.core.others()
            with self.core.lock:
                if ends:
                    self.core.store.end_batch(batch.id)
                self.core.batches.pop(batch.id, None)
            if ends:
                self._clean(connection, batch.workflow)

    def _ended_elsewhere(self, batch: Batch) -> None:
        """The client that sent a batch has ended it: values are in the index, and what failed was told there."""
        self.core.batches.pop(batch.id, None)
        left = [name for name in batch.calls if name not in batch.returned]
        known = self.core.store.known(left)
        again = []
        for name in left:
            future = self.core.futures.get(name)
            if future is None or future.done():
                continue
            if name in known:
                self.core.resolve(future, known[name])
            elif future._call is not None:
                again.append(future)  # it runs again, as every failed call that is submitted once more
            else:
                self.core.fail(future, Lost("it did not return; the client that submitted it was told why"))
        self.core.enqueue(again)

    def _clean(self, connection: Connection, newest: int) -> None:
        """Deletes the workflow that is the oldest beyond those that are kept, and its logs."""
        oldest = newest - KEPT_WORKFLOWS
        if oldest < 1 or any(batch.workflow == oldest for batch in self.core.batches.values()):
            return
        try:
            connection.request("DELETE", f"/workflows/{oldest}")
        except ApiError as error:
            if error.unreachable:
                raise
            return  # it is gone, or it runs again because a person wanted it
        logs = os.path.join(self.core.root, "output", "job_stdio")
        for name in os.listdir(logs) if os.path.isdir(logs) else ():
            if name.startswith(f"job_wf{oldest}_"):
                os.unlink(os.path.join(logs, name))

    def _judge(self, batch: Batch, connection: Connection, ended: dict[str, int]) -> None:
        """Ends the calls of jobs that ended."""
        good: list[str] = []
        bad: list[dict[str, Any]] = []
        for state in ("completed", "failed", "terminated", "canceled", "disabled"):
            if not ended[state]:
                continue
            after = 0
            while True:
                query = {"workflow_id": batch.workflow, "status": state, "after": after, "limit": 5000}
                page = connection.request("GET", "/jobs", query)["items"]
                for job in page:
                    if job["name"] not in batch.open:
                        continue
                    if state == "completed":
                        good.append(job["name"])
                    else:
                        bad.append(job)
                if len(page) < 5000:
                    break
                after = page[-1]["id"]
        # What the jobs of this answer have written is read before they are judged: a result that came after an earlier
        # look would be taken for missing, and its call would run again.
        self.read(batch)
        for name in good:
            self._completed(batch, name)
        again: set[int] = set()
        tried = [job for job in bad if batch.recover and job["attempt_id"] <= RECOVERIES]
        tried = [job for job in tried if job["status"] in ("failed", "terminated")]
        tried = [job for job in tried if job["name"] not in batch.refused]
        if tried:
            body = {"job_ids": [job["id"] for job in tried], "by": "torcflow"}
            try:
                answer = connection.request("POST", f"/workflows/{batch.workflow}/recover", body=body)
            except ApiError as error:
                if error.code != "nothing_to_recover":
                    raise
                answer = {"jobs_to_retry": [], "reopened": [], "jobs": []}
            again = set(answer["jobs_to_retry"]) | set(answer["reopened"])
            # A job that is not in the answer has been recovered by `torc watch` meanwhile.
            looked_at = {job["job_id"] for job in answer["jobs"]}
            again |= {job["id"] for job in tried if job["id"] not in looked_at}
        for job in bad:
            if job["id"] not in again:
                self._failed(batch, connection, job)

    def _completed(self, batch: Batch, job: str) -> None:
        batch.open.discard(job)
        left = batch.unanswered(job)
        if left:
            self._requeue(batch, left, "its job completed without a result of the call")

    def _failed(self, batch: Batch, connection: Connection, job: dict[str, Any]) -> None:
        """A job that stays as it is: calls that raised or were running end, those that never began run again."""
        name = job["name"]
        left = batch.unanswered(name)
        batch.open.discard(name)
        if not left:
            return
        why = connection.request("GET", f"/jobs/{job['id']}/why")
        attempt = why.get("attempt") or {}
        over: list[bytes] = []
        for call in left:
            record = batch.last.get(call)
            future = self.core.futures.get(call)
            error: Optional[BaseException] = None
            if name in batch.refused:
                error = pickle.loads(batch.refused[name])
            elif record is not None and record.state == _segment.RAISED:
                error = remote_error(record.payload)
            elif record is not None and record.state == _segment.TIMED_OUT:
                error = TimeLimit(f"it ran longer than its limit of {record.seconds:g} s", name, record.seconds)
            elif record is not None and attempt.get("signal") == signal.SIGALRM and (limit := batch.time_limit(call)):
                error = TimeLimit(f"it ran longer than its limit of {limit:g} s", name, limit)
            elif record is not None:
                error = cause_error(name, why, attempt)
            if error is not None:
                over.append(call)
                if future is not None:  # for `reproduce`, which outlives the batch
                    future._call = self._call_again(batch, call, 0)
                annotate(error, name, job["id"], attempt, why)
                if future is not None:
                    self.core.fail(future, error)
        waiting = [call for call in left if call not in set(over)]
        if waiting and job["status"] == "canceled":
            rest = []
            for call in waiting:
                future = self.core.futures.get(call)
                bad = self._failed_need(batch, call)
                if bad is None and job.get("status_reason") is not None and batch.needs(call):
                    rest.append(call)  # its own arguments are well: another call of that job failed
                    continue
                over.append(call)
                if future is not None:
                    self.core.fail(future, dependency_failed(bad) if bad is not None else cause_error(name, why, attempt))
            waiting = rest
        elif waiting and not over:
            # Nothing ever began: the job itself cannot run.
            for call in waiting:
                future = self.core.futures.get(call)
                over.append(call)
                if future is not None:
                    error = cause_error(name, why, attempt)
                    annotate(error, name, job["id"], attempt, why)
                    self.core.fail(future, error)
            waiting = []
        if over:
            self.core.store.drop_pending(over)
            for call in over:
                batch.calls.pop(call, None)
                batch.last.pop(call, None)
        if waiting:
            self._requeue(batch, waiting, "its job ended before the call began")

    def _failed_need(self, batch: Batch, call: bytes) -> Optional[Future[Any]]:
        for name in batch.needs(call):
            future = self.core.futures.get(name)
            if future is not None and future.done() and went_badly(future):
                return future
        return None

    def _requeue(self, batch: Batch, names: list[bytes], why: str) -> None:
        """Calls of a job that is over which have not run: they go into another batch."""
        again: list[Future[Any]] = []
        for name in names:
            future = self.core.futures.get(name)
            count = batch.requeues.get(name, 0) + 1
            if future is not None and not future.done():
                if count > REQUEUES:
                    self.core.fail(future, Lost(f"{why}, {count} times", batch.calls[name].job))
                else:
                    future._call = self._call_again(batch, name, count)
                    future._place = None
                    again.append(future)
        self.core.store.drop_pending(names)
        for name in names:
            batch.calls.pop(name, None)
        self.core.enqueue(again)

    def _call_again(self, batch: Batch, name: bytes, requeues: int) -> Call:
        """A call as it was sent, to be sent once more."""
        entry = batch.entry(name)
        needs = []
        for need in entry.needs:
            future = self.core.futures.get(need)
            if future is None:  # an argument of a call that an earlier process submitted
                future = self.core.futures[need] = Future(self.core, need, "call")
                known = self.core.store.known([need]).get(need)
                if known is None:
                    self.core.fail(future, Lost("the value of the call was forgotten"))
                else:
                    self.core.resolve(future, known)
            needs.append(future)
        return Call(entry.function, entry.arguments, needs, entry.options, requeues)


def _attempt_order(file: str) -> tuple[str, list[int]]:
    job, _, attempt = file.rpartition(".")
    return job, [int(part) for part in attempt.split("-") if part.isdigit()]
