"""A batch: the calls of one workflow, from its file to the last of its results."""

from __future__ import annotations

import os
from typing import Any, NamedTuple, Optional

from . import _segment
from ._future import Function
from ._options import Options
from ._store import Pending


class Entry(NamedTuple):
    """A call as its batch's file has it."""

    function: Function
    arguments: bytes
    # The calls whose values are arguments of the calls of the job.
    needs: list[bytes]
    options: Options


class Batch:
    """A workflow whose results are not all here yet."""

    def __init__(
        self, root: str, id: str, spec: str, slurm: bool, recover: bool, calls: dict[bytes, Pending]
    ) -> None:
        self.root = root
        self.id = id
        self.spec = spec
        self.slurm = slurm
        self.recover = recover
        self.calls = calls
        self.jobs: dict[str, list[bytes]] = {}
        for name, call in sorted(calls.items(), key=lambda item: item[1].place):
            self.jobs.setdefault(call.job, []).append(name)
        self.workflow: Optional[int] = None
        # Sent by this process.
        self.mine = False
        self.offsets: dict[str, int] = {}
        # The last record of each call that has not returned.
        self.last: dict[bytes, _segment.Record] = {}
        self.refused: dict[str, bytes] = {}
        self.returned: set[bytes] = set()
        self.open: set[str] = set(self.jobs)
        self.requeues: dict[bytes, int] = {}
        self._last_job: Any = None

    def unanswered(self, job: str) -> list[bytes]:
        """The calls of a job that have not returned."""
        return [name for name in self.jobs[job] if name not in self.returned]

    def _job(self, call: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
        """Header of the file, and the job of a call. The last job is kept: its calls are asked for one after another."""
        job = self.calls[call].job
        if self._last_job is None or self._last_job[0] != job:
            with open(os.path.join(self.root, "batches", self.id), "rb") as file:
                header, start = _segment.read_batch(file)
                self._last_job = (job, header, _segment.read_job(file, header, start, int(job.rpartition("-")[2])))
        return self._last_job[1], self._last_job[2]

    def time_limit(self, call: bytes) -> Optional[float]:
        """The longest that a call may run, in seconds."""
        limit: Optional[float] = self._job(call)[1]["time"]
        return limit

    def needs(self, call: bytes) -> list[bytes]:
        """The calls whose values are arguments of the job of a call."""
        return list(self._job(call)[1]["values"])

    def entry(self, call: bytes) -> Entry:
        """A call as it was sent."""
        header, job = self._job(call)
        _, index, arguments = job["calls"][self.calls[call].place]
        with open(_segment.blob_path(self.root, header["functions"][index]), "rb") as file:
            pickled = file.read()
        name, title = header["titles"][index]
        function = Function(name, title, pickled, header["modules"])
        return Entry(function, arguments, list(job["values"]), Options(*job["options"])._replace(fresh=False))
