"""What a call asks for."""

from __future__ import annotations

from typing import Any, Mapping, NamedTuple, Optional, Union

from ._store import parse_bytes, parse_seconds


class Options(NamedTuple):
    """What a call asks for."""

    cpus: int = 1
    memory: Optional[str] = None
    time: Optional[float] = None
    gpus: int = 0
    retries: int = 0
    priority: int = 0
    on_oom: str = "more"
    chunksize: Union[int, str] = "auto"
    key: Any = None
    cache: bool = True
    fresh: bool = False
    setup: Optional[str] = None

    def changed(self, wishes: Mapping[str, Any]) -> Options:
        """These with some of them changed."""
        for name in wishes:
            if name not in self._fields:
                import difflib

                near = difflib.get_close_matches(name, self._fields, 1)
                hint = f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(self._fields)}"
                raise TypeError(f"unknown option {name!r}{hint}")
        values = dict(wishes)
        if "time" in values:
            values["time"] = parse_seconds(values["time"])
        if values.get("memory") is not None:
            size = values["memory"]
            parse_bytes(size)
            values["memory"] = f"{-(-int(size) // (1 << 20))}m" if isinstance(size, (int, float)) else str(size)
        new = self._replace(**values)
        if new.cpus < 1 or new.gpus < 0 or new.retries < 0:
            raise ValueError("`cpus` is at least 1, `gpus` and `retries` at least 0")
        if new.on_oom not in ("more", "fail"):
            raise ValueError(f"`on_oom` is {new.on_oom!r}; it is 'more' or 'fail'")
        if new.chunksize != "auto" and not (isinstance(new.chunksize, int) and new.chunksize >= 1):
            raise ValueError(f"`chunksize` is {new.chunksize!r}; it is 'auto' or a number from 1")
        return new

    def of_job(self) -> tuple[Any, ...]:
        """What calls of one job must have in common."""
        return (self.cpus, self.memory, self.time, self.gpus, self.retries, self.priority, self.on_oom, self.setup)


