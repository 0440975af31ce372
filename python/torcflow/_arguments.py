"""Arguments of calls: pickled, with references in the place of futures."""

from __future__ import annotations

import pickle
from typing import Any, Mapping

from . import _segment
from ._future import Future

_FAST = frozenset({int, float, str, bool, type(None), bytes})


def dump(value: Any) -> bytes:
    """Pickled; what plain pickle takes by reference to `__main__` goes by value."""
    args, kwargs = value if type(value) is tuple and len(value) == 2 else ((value,), {})
    if type(args) is tuple and not kwargs and all(type(item) in _FAST for item in args):
        return pickle.dumps(value, protocol=4)
    import cloudpickle

    pickled: bytes = cloudpickle.dumps(value, protocol=5)
    return pickled


def has_future(value: Any) -> bool:
    kind = type(value)
    if kind is Future:
        return True
    if kind is list or kind is tuple:
        return any(has_future(item) for item in value if type(item) not in _FAST)
    if kind is dict:
        return any(has_future(item) for item in value.values() if type(item) not in _FAST)
    return False


def strip(value: Any, needs: list[Future[Any]]) -> Any:
    """`value` with references in the place of futures, which are collected."""
    kind = type(value)
    if kind is Future:
        if value not in needs:
            needs.append(value)
        return _segment.Reference(value._torcflow_name)
    if kind is list:
        return [strip(item, needs) for item in value]
    if kind is tuple:
        return tuple(strip(item, needs) for item in value)
    if kind is dict:
        return {key: strip(item, needs) for key, item in value.items()}
    return value


def fill(value: Any, futures: Mapping[bytes, Future[Any]]) -> Any:
    kind = type(value)
    if kind is _segment.Reference:
        return futures[value.name].result()
    if kind is list:
        return [fill(item, futures) for item in value]
    if kind is tuple:
        return tuple(fill(item, futures) for item in value)
    if kind is dict:
        return {key: fill(item, futures) for key, item in value.items()}
    return value


def resolved(value: Any) -> Any:
    """`value` with the results of futures in their place."""
    kind = type(value)
    if kind is Future:
        return value.result()
    if kind is list:
        return [resolved(item) for item in value]
    if kind is tuple:
        return tuple(resolved(item) for item in value)
    if kind is dict:
        return {key: resolved(item) for key, item in value.items()}
    return value


def futures_in(value: Any) -> list[Future[Any]]:
    needs: list[Future[Any]] = []
    strip(value, needs)
    return needs


def bad_argument(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[str], Any]:
    named = [([f"argument {place + 1}"], item) for place, item in enumerate(args)]
    named += [([f"argument {name!r}"], item) for name, item in kwargs.items()]
    for path, item in named:
        try:
            dump(((item,), {}))
        except Exception:
            return path, item
    return ["argument"], (args, kwargs)


