"""Batches on a Slurm cluster: `torc slurm generate` plans the nodes, `torc submit` asks for them."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from . import _engine

if TYPE_CHECKING:
    from ._core import Core


def submit(core: Core, batch: str, request: str) -> int:
    """Creates the workflow of a batch with its schedulers, or finds it, and asks for nodes; its id."""
    asked = json.loads(request)
    plain = os.path.join(core.root, "batches", f"{batch}.json")
    planned = os.path.join(core.root, "batches", f"{batch}-slurm.json")
    with open(os.open(plain, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump(asked["spec"], file)
    generate = ["slurm", "generate", plain, "-o", planned]
    if core.slurm["account"]:
        generate += ["--account", core.slurm["account"]]
    if core.slurm["partition"]:
        generate += ["--partition", core.slurm["partition"]]
    try:
        if os.path.exists(planned):
            os.unlink(planned)
        _engine.run(generate)
        with open(planned, encoding="utf-8") as file:
            asked["spec"] = json.load(file)
    finally:
        for path in (plain, planned):
            if os.path.exists(path):
                os.unlink(path)
    connection = core.engine.server()
    # The key makes a repeat harmless; `torc submit` initializes it, so a crash between the two is seen by its run.
    made = connection.request("POST", "/workflows", body=dict(asked, initialize=False))
    workflow = int(made["id"])
    if connection.request("GET", f"/workflows/{workflow}")["run_id"] == 0:
        output = os.path.join(core.root, "output")
        _engine.run(["--dir", core.engine.state, "submit", str(workflow), "--output-dir", output], cwd=asked["directory"])
    return workflow
