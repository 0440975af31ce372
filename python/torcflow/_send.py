"""Sends calls: answers what is known, joins what runs, and makes a workflow of the rest."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Optional

from . import _segment
from ._arguments import dump
from ._batch import Batch
from ._engine import WrongCall
from ._errors import TorcError
from ._future import Future, dependency_failed, options_of, went_badly
from ._http import ApiError, Connection
from ._pack import Packer, chunks
from ._store import Pending

if TYPE_CHECKING:
    from ._core import Core

# Larger values travel as files of their own.
INLINE_BYTES = 32 << 10


class Sender:
    """The part of the monitor that sends."""

    def __init__(self, core: Core) -> None:
        self.core = core

    def flush(self, calls: list[Future[Any]]) -> None:
        """Answers what is known, joins what runs, and sends the rest as one workflow."""
        calls = [future for future in calls if not future.done()]
        fresh = [one._torcflow_name for one in calls if one._call is not None and one._call.options.fresh]
        if fresh:
            self.core.store.forget(fresh)
        names = [future._torcflow_name for future in calls]
        known = self.core.store.known(names)
        pending = self.core.store.pending(names)
        rest: list[Future[Any]] = []
        for future in calls:
            value = known.get(future._torcflow_name)
            waits = pending.get(future._torcflow_name)
            if value is not None:
                future._known = True
                self.core.known_before += 1
                self.core.resolve(future, value)
            elif waits is not None and self._join(future, waits):
                continue
            else:
                rest.append(future)
        if known:
            self.core.store.touch(list(known))
        sendable = self._without_waiting(rest)
        while sendable:
            # One workflow has one way to be run: with recovery or without.
            recover = sendable[0]._call is None or sendable[0]._call.options.on_oom == "more"
            part = [one for one in sendable if (options_of(one).on_oom == "more") == recover]
            taken = {id(one) for one in part}
            sendable = [one for one in sendable if id(one) not in taken]
            if not self._send(part, recover):
                with self.core.lock:  # another client was faster with one of them: look again
                    self.core.queue = part + self.core.queue
                    self.core.first_at = self.core.last_at = -1.0
                self.core.wake()

    def _without_waiting(self, calls: list[Future[Any]]) -> list[Future[Any]]:
        """Calls that can be sent now: their arguments are there, or are calls of the same batch."""
        here = {id(future) for future in calls}
        sendable = []
        for future in calls:
            assert future._call is not None
            bad = next((need for need in future._call.needs if need.done() and went_badly(need)), None)
            if bad is not None:
                here.discard(id(future))
                self.core.fail(future, dependency_failed(bad))
                continue
            same = future._call.options.on_oom
            if all(
                need.done() or (id(need) in here and options_of(need).on_oom == same) for need in future._call.needs
            ):
                sendable.append(future)
            else:
                here.discard(id(future))
                with self.core.lock:
                    self.core.held.append(future)
        return sendable

    def _send(self, calls: list[Future[Any]], recover: bool) -> bool:
        """Writes a batch down and creates its workflow. False if another client holds one of its calls."""
        id = os.urandom(16).hex()
        core = self.core
        slurm = core.backend == "slurm"
        packer = Packer(core.root, id, slurm, core.grace_seconds, self._source)
        packed = packer.pack(core.name, chunks(calls, slurm, core.store.mean_seconds))
        path = os.path.join(core.root, "batches", id)
        _segment.write_batch(path, packed.header, packed.jobs)
        request = json.dumps({"spec": packed.spec, "key": id, "initialize": True, "directory": os.getcwd()})
        if not core.store.add_batch(id, request, slurm, recover, packed.rows):
            os.unlink(path)
            return False
        packer.keep_functions()
        batch = core.adopt(id, request, slurm, recover)
        batch.mine = True
        for future in calls:
            assert future._call is not None
            batch.requeues[future._torcflow_name] = future._call.requeues
            future._call = None
        self.create(batch)
        return True

    def _source(self, future: Future[Any]) -> tuple[str, Any]:
        """Where a worker finds the value of a call that has ended."""
        known = self.core.store.known([future._torcflow_name]).get(future._torcflow_name)
        if known is None:  # a result that was forgotten meanwhile, or one of the debug backend
            pickled = dump(future.result(0))
            if len(pickled) > INLINE_BYTES:
                return ("blob", _segment.write_blob(self.core.root, pickled))
            return ("inline", pickled)
        if known.blob is not None:
            return ("blob", known.blob)
        return ("inline", bytes(known.value or b""))

    def create(self, batch: Batch) -> Optional[Connection]:
        """Creates the workflow of a batch, or finds it, and sees to it that it is run. None if it is refused."""
        if batch.workflow is None and batch.slurm:
            from ._slurm import plan, submit

            try:
                planned = plan(self.core, batch.id, batch.spec)
            except WrongCall as error:
                # Nothing of it was sent. Calls that cannot be planned are free for another try with other wishes.
                self.drop(batch, TorcError(f"Slurm cannot be asked for nodes: {error}"))
                return None
            batch.workflow = submit(self.core, planned, batch.spec)
        connection = self.core.engine.server()
        if batch.workflow is None:
            # The key makes a repeat harmless: the server answers with the same workflow.
            try:
                answer = connection.request("POST", "/workflows", body=json.loads(batch.spec))
            except ApiError as error:
                if error.status is None or error.status >= 500:
                    raise
                self.drop(batch, TorcError(f"the server refuses the calls: {error}"))
                return None
            batch.workflow = int(answer["id"])
            if batch.mine:  # whether another client's batch has a runner is seen by its status
                self.core.engine.runner(batch.workflow, batch.recover, batch.slurm, [])
        with self.core.lock:
            for name, call in batch.calls.items():
                future = self.core.futures.get(name)
                if future is not None:
                    future._place = (batch.workflow, call.job)
        return connection

    def drop(self, batch: Batch, error: TorcError) -> None:
        """Ends a batch that cannot go on."""
        for name in batch.calls:
            future = self.core.futures.get(name)
            if future is not None and name not in batch.returned:
                self.core.fail(future, error)
        with self.core.lock:
            self.core.store.end_batch(batch.id)
            self.core.batches.pop(batch.id, None)

    def _join(self, future: Future[Any], waits: Pending) -> bool:
        """Attaches a future to a batch that an earlier or another process sent."""
        batch = self.core.batches.get(waits.batch)
        if batch is None:
            for id, spec, slurm, recover in self.core.store.batches():
                if id == waits.batch:
                    batch = self.core.adopt(id, spec, slurm, recover)
        if batch is None:
            # It ended between two looks: its value is in the store now, or the call is free.
            value = self.core.store.known([future._torcflow_name]).get(future._torcflow_name)
            if value is not None:
                self.core.resolve(future, value)
            return value is not None
        if future._torcflow_name in batch.returned:
            value = self.core.store.known([future._torcflow_name]).get(future._torcflow_name)
            if value is not None:
                self.core.resolve(future, value)
                return True
        if waits.job not in batch.open:
            # It failed, as this process knows already: it runs again.
            self.core.store.drop_pending([future._torcflow_name])
            batch.calls.pop(future._torcflow_name, None)
            return False
        if batch.workflow is not None:
            future._place = (batch.workflow, waits.job)
        return True
