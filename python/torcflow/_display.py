"""How far an executor is, for notebooks and terminals."""

from __future__ import annotations

import concurrent.futures
import html
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._executor import Executor
    from ._progress import Progress


def progress_html(progress: Progress) -> str:
    """A bar with counts."""
    total = max(1, progress.total)
    parts = (("#2e7d32", progress.done), ("#c62828", progress.failed), ("#1565c0", progress.running))
    bar = "".join(
        f'<div style="width:{100 * number / total:.2f}%;background:{color}"></div>' for color, number in parts
    )
    return (
        '<div style="display:flex;height:10px;max-width:480px;background:#ddd;border-radius:3px;overflow:hidden">'
        f"{bar}</div><div>{html.escape(str(progress))}</div>"
    )


def executor_html(executor: Executor) -> str:
    """Bar, counts and groups of failures."""
    groups = "".join(
        f"<li>{len(futures)} × {html.escape(title)}</li>" for title, futures in list(executor.failures().items())[:10]
    )
    name = html.escape(f"{executor.name} ({executor.backend})")
    failures = f"<ul>{groups}</ul>" if groups else ""
    return f"<div><b>{name}</b>{progress_html(executor.progress())}{failures}</div>"


def _in_notebook() -> bool:
    shell: Any = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None and type(shell).__name__ == "ZMQInteractiveShell"


def watch(executor: Executor, interval: float) -> None:
    """Shows progress until every call has ended."""
    handle: Any = None
    if _in_notebook():
        import importlib

        handle = importlib.import_module("IPython.display").display(executor, display_id=True)
    last = ""
    while True:
        left = [future for future in executor.futures if not future.done()]
        if left:
            concurrent.futures.wait(left, timeout=interval)
        if handle is not None:
            handle.update(executor)
        else:
            text = str(executor.progress())
            if text != last and (sys.stderr.isatty() or not left):
                print(f"{time.strftime('%H:%M:%S')} {executor.name}: {text}", file=sys.stderr)
                last = text
        if not left:
            return
