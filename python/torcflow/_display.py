"""How far an executor is, for notebooks and terminals.

One display, whichever can be had: an HTML display of the notebook that is updated in place, a live bar of `rich` in a
terminal, plain lines in a terminal without `rich`, and one line at the end where no terminal is.
"""

from __future__ import annotations

import concurrent.futures
import html
import importlib
import importlib.util
import os
import sys
import time
from typing import TYPE_CHECKING, Any, Optional

if TYPE_CHECKING:
    from ._executor import Executor
    from ._progress import Progress

# Groups of failures that are shown.
_GROUPS = 10
# A plain line at most this often.
_LINE_SECONDS = 1.0


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
    """Bar, counts, groups of failures, and how to open the page.

    The command and not its link: the link holds a key, and outputs of notebooks are kept and shared.
    """
    groups = "".join(
        f"<li>{len(futures)} × {html.escape(title)}</li>"
        for title, futures in list(executor.failures().items())[:_GROUPS]
    )
    name = html.escape(f"{executor.name} ({executor.backend})")
    failures = f"<ul>{groups}</ul>" if groups else ""
    page = ""
    if executor.backend != "debug":
        state = html.escape(os.path.join(executor.directory, "torc"))
        page = f'<div style="color:#777">page: <code>torc --dir {state} ui</code></div>'
    return f"<div><b>{name}</b>{progress_html(executor.progress())}{failures}{page}</div>"


class _Notebook:
    """One output of the cell, updated in place."""

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self.shown = executor._repr_html_()
        self.handle: Any = importlib.import_module("IPython.display").display(executor, display_id=True)

    def show(self, progress: Progress, last: bool) -> None:
        text = self.executor._repr_html_()
        if text != self.shown:  # every update is a message to the browser
            self.shown = text
            self.handle.update(self.executor)

    def close(self) -> None:
        return


class _Rich:
    """A bar of `rich`."""

    def __init__(self, executor: Executor) -> None:
        bars = importlib.import_module("rich.progress")
        console = importlib.import_module("rich.console").Console(stderr=True)
        columns = (bars.TextColumn("{task.description}", markup=False), bars.BarColumn())
        self.live: Any = bars.Progress(*columns, console=console)
        self.name = executor.name
        self.bar = self.live.add_task(executor.name, total=1)
        self.live.start()

    def show(self, progress: Progress, last: bool) -> None:
        ended = progress.done + progress.failed
        text = f"{self.name}: {progress}"
        self.live.update(self.bar, description=text, total=max(1, progress.total), completed=ended, refresh=last)

    def close(self) -> None:
        self.live.stop()


class _Lines:
    """Lines on standard error."""

    def __init__(self, executor: Executor) -> None:
        self.name = executor.name
        self.last = ""
        self.last_at = 0.0

    def show(self, progress: Progress, last: bool) -> None:
        text = str(progress)
        now = time.monotonic()
        due = sys.stderr.isatty() and now - self.last_at >= _LINE_SECONDS
        if text != self.last and (due or last):
            print(f"{time.strftime('%H:%M:%S')} {self.name}: {text}", file=sys.stderr)
            self.last, self.last_at = text, now

    def close(self) -> None:
        return


def _in_notebook() -> bool:
    shell: Any = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None and type(shell).__name__ == "ZMQInteractiveShell"


def _display(executor: Executor) -> Any:
    if _in_notebook():
        return _Notebook(executor)
    if sys.stderr.isatty() and importlib.util.find_spec("rich") is not None:
        return _Rich(executor)
    return _Lines(executor)


def watch(executor: Executor, interval: float, timeout: Optional[float]) -> bool:
    """Shows progress until every call has ended, or the time is over; whether they have."""
    end = None if timeout is None else time.monotonic() + timeout
    display = _display(executor)
    try:
        while True:
            left = [future for future in executor.futures if not future.done()]
            over = end is not None and time.monotonic() >= end
            display.show(executor.progress(), not left or over)
            if not left or over:
                return not left
            concurrent.futures.wait(left, timeout=interval)
    finally:
        display.close()
