"""What type checkers make of calls. It is checked (`mypy --strict`, `pyright`) and not run."""

from __future__ import annotations

import asyncio
import concurrent.futures
from typing import Iterator

import torcflow
from typing_extensions import assert_type


def scale(x: int, by: float = 1.0) -> float:
    return x * by


@torcflow.task(cpus=2, memory="1g")
def text(x: int) -> str:
    return str(x)


def use(executor: torcflow.Executor) -> None:
    future = executor.submit(scale, 2, by=1.5)
    assert_type(future, torcflow.Future[float])
    assert_type(future.result(), float)
    assert_type(executor.map(scale, [1, 2]), Iterator[float])
    assert_type(executor.options(memory="2g").submit_batch(scale, [(1,), (2,)]), "list[torcflow.Future[float]]")
    assert_type(text(1), str)
    assert_type(text.submit(1), torcflow.Future[str])
    assert_type(text.on(executor).map(range(3)), Iterator[str])
    assert_type(torcflow.attach("name"), torcflow.Executor)
    assert_type(future.attempts, "list[torcflow.Attempt]")
    library: concurrent.futures.Executor = executor
    concurrent.futures.wait([future])
    library.submit(scale, 1)
    executor.submit(scale, "one")  # type: ignore[arg-type]
    text.submit("one")  # type: ignore[arg-type]


async def wait(executor: torcflow.Executor) -> None:
    assert_type(await executor.submit(scale, 2), float)
    await asyncio.gather(executor.submit(scale, 2), executor.submit(scale, 3))


def build(client: torcflow.Client) -> None:
    workflow = torcflow.Workflow("w")
    workflow.reduce("r", "true", over=workflow.sweep("s_{i}", "true", {"i": [1, 2]}))
    assert_type(workflow.create(), int)
    for job in client.iter_jobs(workflow_id=1):
        assert_type(job["id"], int)
