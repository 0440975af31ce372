"""Builds workflows in Python: the same specs as files."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any, Iterable, Mapping, Optional, Sequence, Union

from . import _engine
from ._errors import TorcError

Value = Union[str, int, float, bool]
Needs = Union[str, "Job", Sequence[Union[str, "Job"]]]


class Job:
    """A job, or a family of jobs, of a workflow that is being built."""

    def __init__(self, workflow: Workflow, entry: dict[str, Any]) -> None:
        self.workflow = workflow
        self.entry = entry

    @property
    def name(self) -> str:
        """Its name in the spec, with placeholders for parameters."""
        return str(self.entry["name"])

    def __repr__(self) -> str:
        return f"<torcflow job {self.name!r}>"


class Workflow:
    """A workflow under construction: `job`, `sweep` and `reduce` add to it, `run` and `submit` start it."""

    def __init__(
        self,
        name: str,
        *,
        description: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
        shell: str = "strict",
    ) -> None:
        self.spec: dict[str, Any] = {"name": name, "shell": shell}
        if description is not None:
            self.spec["description"] = description
        if env:
            self.spec["env"] = dict(env)
        self.spec["jobs"] = []
        self._requirements: dict[Any, str] = {}
        self._handlers: dict[int, str] = {}

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.spec["name"])

    def job(
        self,
        name: str,
        command: Optional[str] = None,
        *,
        steps: Optional[Sequence[Union[str, Mapping[str, Any]]]] = None,
        after: Needs = (),
        cpus: Optional[int] = None,
        memory: Optional[str] = None,
        time: Optional[str] = None,
        gpus: Optional[int] = None,
        nodes: Optional[int] = None,
        timeout: Optional[str] = None,
        retries: int = 0,
        priority: Optional[int] = None,
        env: Optional[Mapping[str, str]] = None,
        inputs: Iterable[str] = (),
        outputs: Iterable[str] = (),
        uses: Iterable[str] = (),
        parameters: Optional[Mapping[str, Union[str, Sequence[Value]]]] = None,
        **more: Any,
    ) -> Job:
        """Adds a job. `after` names jobs it waits for; `more` are further fields of the spec, by their names there."""
        if (command is None) == (steps is None):
            raise TypeError(f"job {name!r} needs either `command` or `steps`")
        entry: dict[str, Any] = {"name": name}
        if command is not None:
            entry["command"] = command
        if steps is not None:
            entry["steps"] = [dict(step) if isinstance(step, Mapping) else {"shell": step} for step in steps]
        if parameters:
            entry["parameters"] = {
                key: value if isinstance(value, str) else list(value) for key, value in parameters.items()
            }
        names = [one.name if isinstance(one, Job) else one for one in _listed(after)]
        if names:
            entry["depends_on"] = names
        wishes = {"num_cpus": cpus, "memory": memory, "runtime": time, "num_gpus": gpus, "num_nodes": nodes}
        if any(value is not None for value in wishes.values()):
            entry["resource_requirements"] = self._requirement(wishes)
        for key, value in (("timeout", timeout), ("priority", priority)):
            if value is not None:
                entry[key] = value
        for key, values in (("env", dict(env or {})), ("uses", list(uses))):
            if values:
                entry[key] = values
        for key, paths in (("input_files", inputs), ("output_files", outputs)):
            listed = [self._file(path) for path in paths]
            if listed:
                entry[key] = listed
        if retries:
            entry["failure_handler"] = self._handler(retries)
        entry.update(more)
        self.spec["jobs"].append(entry)
        return Job(self, entry)

    def sweep(
        self,
        name: str,
        command: str,
        parameters: Mapping[str, Union[str, Sequence[Value]]],
        *,
        zip: bool = False,
        **more: Any,
    ) -> Job:
        """Adds one job for every combination of parameters; `{name}` in name and command is their value."""
        if zip:
            more["parameter_mode"] = "zip"
        missing = [key for key in parameters if "{" + key not in name]
        if missing:
            raise ValueError(f"the name {name!r} must hold {{{missing[0]}}}, so that its jobs can be told apart")
        return self.job(name, command, parameters=parameters, **more)

    def reduce(self, name: str, command: str, over: Job, **more: Any) -> Job:
        """Adds a job that waits for every job of a family."""
        entry = over.entry
        if "parameters" not in entry:
            return self.job(name, command, after=over, **more)
        job = self.job(name, command, after=over, **more)
        # The parameters gather: a job without placeholders in its name waits for all instances.
        job.entry["parameters"] = dict(entry["parameters"])
        if "parameter_mode" in entry:
            job.entry["parameter_mode"] = entry["parameter_mode"]
        return job

    def _requirement(self, wishes: Mapping[str, Any]) -> str:
        kind = tuple(sorted((key, value) for key, value in wishes.items() if value is not None))
        if kind not in self._requirements:
            name = f"r{len(self._requirements) + 1}"
            self._requirements[kind] = name
            self.spec.setdefault("resource_requirements", []).append({"name": name, **dict(kind)})
        return self._requirements[kind]

    def _handler(self, retries: int) -> str:
        if retries not in self._handlers:
            name = f"retry{retries}"
            self._handlers[retries] = name
            rule = {"match_all_exit_codes": True, "max_retries": retries + 1}
            self.spec.setdefault("failure_handlers", []).append({"name": name, "rules": [rule]})
        return self._handlers[retries]

    def _file(self, path: str) -> str:
        files = self.spec.setdefault("files", [])
        for file in files:
            if file["path"] == path:
                return str(file["name"])
        files.append({"name": path, "path": path})
        return path

    def write(self, path: str) -> str:
        """Writes the spec as a file: `.yaml` or `.json`. JSON is YAML, so both hold the same text."""
        with open(path, "w", encoding="utf-8") as file:
            json.dump(self.spec, file, indent=2, ensure_ascii=False)
            file.write("\n")
        return path

    def _torc(self, command: list[str], directory: Optional[str], capture: bool) -> str:
        state = ["--dir", directory] if directory is not None else []
        done = subprocess.run(
            [_engine.program(), *state, *command],
            input=json.dumps(self.spec),
            stdout=subprocess.PIPE if capture else None,
            stderr=subprocess.PIPE if capture else None,
            text=True,
        )
        if done.returncode >= 2 or (capture and done.returncode != 0):
            raise TorcError((done.stderr or "").strip() or f"`torc {' '.join(command)}` ended with {done.returncode}")
        if done.returncode == 1:
            raise TorcError(f"some jobs of {self.name!r} did not succeed; `torc status {self.name}` shows them")
        return done.stdout or ""

    def check(self) -> str:
        """Checks the spec and returns the plan, without touching anything."""
        return self._torc(["check", "-"], None, True)

    def run(self, *, directory: Optional[str] = None, quiet: bool = True) -> None:
        """Runs it to its end on this machine; raises if a job did not succeed."""
        self._torc((["-q"] if quiet else []) + ["run", "-"], directory, False)

    def create(self, *, directory: Optional[str] = None) -> int:
        """Creates it without running it; its id."""
        made = json.loads(self._torc(["-f", "json", "create", "-"], directory, True))
        return int(made["id"])

    def submit(self, *, account: Optional[str] = None, directory: Optional[str] = None) -> int:
        """Plans nodes for it (`torc slurm generate`), creates it, and asks Slurm for them; its id."""
        if "slurm_schedulers" not in self.spec:
            pays = ["--account", account] if account else []
            planned = json.loads(self._torc(["-f", "json", "slurm", "generate", "-", *pays], None, True))
            whole = Workflow(self.name)
            whole.spec = planned
            return whole.submit(directory=directory)
        workflow = self.create(directory=directory)
        state = ["--dir", directory] if directory is not None else []
        _engine.run([*state, "submit", str(workflow)], cwd=os.getcwd())
        return workflow

    def __repr__(self) -> str:
        return f"<torcflow.Workflow {self.name!r}: {len(self.spec['jobs'])} entries>"


def _listed(value: Needs) -> list[Union[str, Job]]:
    return [value] if isinstance(value, (str, Job)) else list(value)
