"""How far an executor is, in numbers."""

from __future__ import annotations

from typing import NamedTuple


class Progress(NamedTuple):
    """How far an executor is."""

    total: int
    done: int
    failed: int
    running: int
    waiting: int
    known: int
    stored: int
    stored_bytes: int

    def __str__(self) -> str:
        parts = [f"{self.done} of {self.total} done"]
        if self.known:
            parts.append(f"{self.known} known before")
        for number, word in ((self.failed, "failed"), (self.running, "running"), (self.waiting, "waiting")):
            if number:
                parts.append(f"{number} {word}")
        return ", ".join(parts) + f"; {self.stored} results stored, {_size(self.stored_bytes)}"

    def _repr_html_(self) -> str:
        from ._display import progress_html

        return progress_html(self)


def _size(number: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024 or unit == "GiB":
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    raise AssertionError


