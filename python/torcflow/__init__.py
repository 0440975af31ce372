"""Torc for Python: an executor whose calls survive crashes, a workflow builder and an API client.

Every name is imported when it is first used, so that `import torcflow` costs next to nothing.
"""

from __future__ import annotations

# Type checkers know this name; `typing` itself would cost half of the time of the import.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ._api import Client as Client
    from ._context import Context as Context, context as context
    from ._errors import (
        Canceled as Canceled,
        Changed as Changed,
        DependencyFailed as DependencyFailed,
        JobError as JobError,
        Lost as Lost,
        NotPicklable as NotPicklable,
        OutOfMemory as OutOfMemory,
        RemoteTraceback as RemoteTraceback,
        TimeLimit as TimeLimit,
        TorcError as TorcError,
    )
    from ._executor import Executor as Executor, attach as attach, forget as forget
    from ._future import Attempt as Attempt, Future as Future
    from ._http import ApiError as ApiError
    from ._progress import Progress as Progress
    from ._task import Task as Task, task as task
    from ._workflow import Workflow as Workflow

__version__ = "0.2.0"

_WHERE = {
    "Client": "_api",
    "Context": "_context",
    "context": "_context",
    "Canceled": "_errors",
    "Changed": "_errors",
    "DependencyFailed": "_errors",
    "JobError": "_errors",
    "Lost": "_errors",
    "NotPicklable": "_errors",
    "OutOfMemory": "_errors",
    "RemoteTraceback": "_errors",
    "TimeLimit": "_errors",
    "TorcError": "_errors",
    "Attempt": "_future",
    "Executor": "_executor",
    "Future": "_future",
    "Progress": "_progress",
    "attach": "_executor",
    "forget": "_executor",
    "ApiError": "_http",
    "Task": "_task",
    "task": "_task",
    "Workflow": "_workflow",
}

__all__ = [
    "Client",
    "Context",
    "context",
    "Canceled",
    "Changed",
    "DependencyFailed",
    "JobError",
    "Lost",
    "NotPicklable",
    "OutOfMemory",
    "RemoteTraceback",
    "TimeLimit",
    "TorcError",
    "Attempt",
    "Executor",
    "Future",
    "Progress",
    "attach",
    "forget",
    "ApiError",
    "Task",
    "task",
    "Workflow",
    "__version__",
]


def __getattr__(name: str) -> Any:
    where = _WHERE.get(name)
    if where is None:
        raise AttributeError(f"module 'torcflow' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(f"{__name__}.{where}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
