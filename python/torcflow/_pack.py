"""Calls become jobs: how many in each, the batch's file that workers read, and the spec that the server gets.

Each batch is a workflow of its own and not an addition to one that runs; docs/adr/20261117-python-batches.md says why.
"""

from __future__ import annotations

import os
import pickle
import re
import shlex
import sys
from typing import Any, Callable, NamedTuple, Optional

from . import _segment
from ._engine import python_command
from ._future import Function, Future, options_of
from ._options import Options

# Jobs of short calls are made about this long.
JOB_SECONDS = 20.0
# A job of calls whose time is unknown gives the rest back after this long.
PROBE_SECONDS = 2.0
# Jobs per slot, so that the last ones end together.
JOBS_PER_SLOT = 4
# Where the size of the machine is not known.
SLURM_SLOTS = 64
# What the watchdog of the worker does not end, the runner ends this much later.
LATE_SECONDS = 60


class Job(NamedTuple):
    """Calls that one process runs one after another."""

    calls: list[Future[Any]]
    # After so many seconds it gives back what it has not begun.
    budget: Optional[float]


class Packed(NamedTuple):
    """A batch before it is written down."""

    header: dict[str, Any]
    jobs: list[bytes]
    spec: dict[str, Any]
    # Name of the call, job, place in it, name and title of the function.
    rows: list[tuple[bytes, str, int, str, str]]


def cpus() -> int:
    """CPUs that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def slots(slurm: bool, asked: int) -> int:
    """How many jobs run at once, about."""
    return SLURM_SLOTS if slurm else max(1, cpus() // asked)


def chunks(calls: list[Future[Any]], slurm: bool, mean_seconds: Callable[[str], Optional[float]]) -> list[Job]:
    """Calls in groups that become jobs."""
    groups: dict[Any, list[Future[Any]]] = {}
    jobs: list[Job] = []
    for future in calls:
        call = future._call
        assert call is not None
        if call.needs:
            jobs.append(Job([future], None))
        else:
            kind = (call.function.name, call.options.of_job(), call.options.chunksize)
            groups.setdefault(kind, []).append(future)
    for (function, _, _), group in groups.items():
        options = options_of(group[0])
        even = -(-len(group) // (slots(slurm, options.cpus) * JOBS_PER_SLOT))
        budget = None
        if options.chunksize != "auto":
            size = int(options.chunksize)
        else:
            seconds = mean_seconds(function.hex())
            if seconds is not None:
                size = min(even, max(1, int(JOB_SECONDS / max(seconds, 1e-6))))
            elif options.time is not None and options.time >= JOB_SECONDS and slurm:
                size = 1
            else:
                size = even
                budget = PROBE_SECONDS if size > 1 else None
        jobs += [Job(group[at : at + size], budget) for at in range(0, len(group), size)]
    return jobs


class Packer:
    """Packs the jobs of one batch."""

    def __init__(
        self,
        root: str,
        batch: str,
        slurm: bool,
        grace_seconds: float,
        source: Callable[[Future[Any]], tuple[str, Any]],
    ) -> None:
        self.root = root
        self.batch = batch
        self.slurm = slurm
        self.grace_seconds = grace_seconds
        # Where a worker finds the value of a call of an earlier batch.
        self.source = source
        self.functions: dict[bytes, tuple[int, Function]] = {}
        self.requirements: dict[Any, dict[str, Any]] = {}
        self.handlers: dict[int, dict[str, Any]] = {}
        self.limits: dict[str, int] = {}

    def pack(self, title: str, jobs: list[Job]) -> Packed:
        """The batch of these jobs."""
        job_of: dict[bytes, str] = {}
        for index, job in enumerate(jobs):
            name = f"{_safe(job.calls[0]._title)}-{index:05d}"
            for future in job.calls:
                job_of[future._torcflow_name] = name
        payloads: list[bytes] = []
        specs: list[dict[str, Any]] = []
        rows: list[tuple[bytes, str, int, str, str]] = []
        for index, job in enumerate(jobs):
            name = job_of[job.calls[0]._torcflow_name]
            options = options_of(job.calls[0])
            payload, after = self._payload(name, job, job_of)
            payloads.append(payload)
            specs.append(self._job(index, name, len(job.calls), options, after))
            for place, future in enumerate(job.calls):
                assert future._call is not None
                function = future._call.function
                rows.append((future._torcflow_name, name, place, function.name.hex(), function.title))
        made = [function for _, function in self.functions.values()]
        modules: dict[str, tuple[str, str]] = {}
        for function in made:
            modules.update(function.modules)
        header = {
            "python": "%d.%d" % sys.version_info[:2],
            "sys_path": [os.path.abspath(place) if place else os.getcwd() for place in sys.path],
            "modules": modules,
            "functions": [_segment.write_blob(self.root, function.pickled) for function in made],
            "titles": [(function.name, function.title) for function in made],
            "grace": self.grace_seconds,
        }
        spec: dict[str, Any] = {
            "name": title,
            "jobs": specs,
            "checkpoint_exit_code": _segment.EXIT_CHECKPOINT,
            "execution_config": {"grace_seconds": self.grace_seconds},
        }
        if self.requirements:
            spec["resource_requirements"] = list(self.requirements.values())
        if self.handlers:
            spec["failure_handlers"] = list(self.handlers.values())
        if self.limits:
            spec["limits"] = self.limits
        return Packed(header, payloads, spec, rows)

    def keep_functions(self) -> None:
        """Writes the functions once more: another client may have cleaned up before the batch was known."""
        for _, function in self.functions.values():
            _segment.write_blob(self.root, function.pickled)

    def _payload(self, name: str, job: Job, job_of: dict[bytes, str]) -> tuple[bytes, set[str]]:
        """What the worker of a job reads, and the jobs that it waits for."""
        listed = []
        values: dict[bytes, tuple[str, Any]] = {}
        after: set[str] = set()
        for future in job.calls:
            call = future._call
            assert call is not None
            if call.function.name not in self.functions:
                self.functions[call.function.name] = (len(self.functions), call.function)
            for need in call.needs:
                other = job_of.get(need._torcflow_name)
                if other is None:
                    values[need._torcflow_name] = self.source(need)
                else:
                    values[need._torcflow_name] = ("job", other)
                    after.add(other)
            listed.append((future._torcflow_name, self.functions[call.function.name][0], call.arguments))
        options = options_of(job.calls[0])
        payload = {
            "name": name,
            "calls": listed,
            "values": values,
            "time": options.time,
            "budget": job.budget,
            "options": tuple(options._replace(key=None)),
        }
        return pickle.dumps(payload, protocol=4), after

    def _job(self, index: int, name: str, calls: int, options: Options, after: set[str]) -> dict[str, Any]:
        """One job of the spec."""
        words = [*python_command(), self.root, self.batch, str(index)]
        # The worker takes the shell's place, so that its exit code is the job's also after SIGTERM to both.
        command = "exec " + " ".join(shlex.quote(word) for word in words)
        # Braces around a name would be a placeholder of the spec.
        command = re.sub(r"\{(\w[^{}]*)\}", r"{{\1}}", command)
        if options.setup:
            command = f"{options.setup}\n{command}"
        job: dict[str, Any] = {"name": name, "command": command}
        seconds = None if options.time is None else int(options.time * calls) + 1
        job["resource_requirements"] = self._requirement(options, seconds)
        if seconds is not None:
            job["timeout"] = f"{seconds + LATE_SECONDS + int(self.grace_seconds)}s"
        if options.retries:
            if options.retries not in self.handlers:
                rule = {"match_all_exit_codes": True, "max_retries": options.retries + 1}
                self.handlers[options.retries] = {"name": f"retry{options.retries}", "rules": [rule]}
            job["failure_handler"] = self.handlers[options.retries]["name"]
        if options.priority:
            job["priority"] = options.priority
        if after:
            job["depends_on"] = sorted(after)
        if not self.slurm:
            # Every batch has a runner of its own; the limit keeps all of them together within this machine.
            limit = f"cpus-{options.cpus}"
            self.limits[limit] = slots(False, options.cpus)
            job["uses"] = [limit]
        return job

    def _requirement(self, options: Options, seconds: Optional[int]) -> str:
        """The name of the requirements that a job has in common with others."""
        kind = (options.cpus, options.memory, options.gpus, seconds)
        if kind not in self.requirements:
            needs: dict[str, Any] = {"name": f"r{len(self.requirements)}", "num_cpus": options.cpus}
            if options.memory is not None:
                needs["memory"] = options.memory
            if options.gpus:
                needs["num_gpus"] = options.gpus
            if seconds is not None:
                needs["runtime"] = f"{seconds}s"
            self.requirements[kind] = needs
        return str(self.requirements[kind]["name"])


def _safe(title: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]+", "", title)[:80] or "call"
