"""Batches on a Slurm cluster: `torc slurm generate` plans the nodes, `torc submit` asks for them."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from . import _engine

if TYPE_CHECKING:
    from ._core import Core


def plan(core: Core, batch: str, request: str) -> str:
    """The file with the spec of a batch and the nodes for it. Planned once: what was asked of the server stays the same."""
    planned = os.path.join(core.root, "batches", f"{batch}-slurm.json")
    if os.path.exists(planned):
        return planned
    plain = os.path.join(core.root, "batches", f"{batch}.json")
    made = os.path.join(core.root, "batches", f"{batch}-new.json")
    with open(os.open(plain, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump(json.loads(request)["spec"], file)
    generate = ["slurm", "generate", plain, "-o", made]
    if core.slurm["account"]:
        generate += ["--account", core.slurm["account"]]
    if core.slurm["partition"]:
        generate += ["--partition", core.slurm["partition"]]
    try:
        _engine.run(generate)
        os.replace(made, planned)
    finally:
        for path in (plain, made):
            if os.path.exists(path):
                os.unlink(path)
    return planned


def submit(core: Core, planned: str, request: str) -> int:
    """Creates the workflow of a batch as it was planned, or finds it, and asks for nodes; its id."""
    asked = json.loads(request)
    with open(planned, encoding="utf-8") as file:
        asked["spec"] = json.load(file)
    connection = core.engine.server()
    # The key makes a repeat harmless; `torc submit` initializes it, so a crash between the two is seen by its run.
    made = connection.request("POST", "/workflows", body=dict(asked, initialize=False))
    workflow = int(made["id"])
    if connection.request("GET", f"/workflows/{workflow}")["run_id"] == 0:
        output = os.path.join(core.root, "output")
        _engine.run(["--dir", core.engine.state, "submit", str(workflow), "--output-dir", output], cwd=asked["directory"])
    os.unlink(planned)
    return workflow
