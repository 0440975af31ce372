"""Futures, and what is known of the calls behind them."""

from __future__ import annotations

import concurrent.futures
import threading
import time
from typing import TYPE_CHECKING, Any, Callable, Generator, Generic, NamedTuple, Optional, TypeVar, cast

from ._errors import DependencyFailed, TorcError
from ._options import Options

if TYPE_CHECKING:
    from ._core import Core

T = TypeVar("T")


class Attempt(NamedTuple):
    """One try of the job of a call."""

    number: int
    state: str
    cause: Optional[str]
    return_code: Optional[int]
    host: Optional[str]
    memory: Optional[int]
    peak_memory: Optional[int]
    seconds: Optional[float]
    decision: Optional[str]
    error: Optional[str]



# One condition for all futures: a condition of its own for each costs a kilobyte.
condition = threading.Condition()


class Future(concurrent.futures.Future, Generic[T]):  # type: ignore[type-arg]
    """A call, by its name. A `concurrent.futures.Future`, and awaitable."""

    def __init__(self, core: Optional[Core] = None, name: bytes = b"", title: str = "") -> None:
        super().__init__()
        self._condition = condition
        self._core = core
        self._torcflow_name = name
        self._title = title
        self._call: Optional[Call] = None
        self._place: Optional[tuple[int, str]] = None
        self._recall: Optional[Callable[[], T]] = None
        self._known = False

    def __reduce__(self) -> Any:
        raise TypeError("a future cannot be pickled; give it as an argument, or in a list, tuple or dict of one")

    def result(self, timeout: Optional[float] = None) -> T:
        """The value, or the exception that the call ended with."""
        self._wait(timeout)
        return cast(T, super().result(0))

    def exception(self, timeout: Optional[float] = None) -> Optional[BaseException]:
        """The exception that the call ended with, or None."""
        self._wait(timeout)
        return super().exception(0)

    def _wait(self, timeout: Optional[float]) -> None:
        if self._core is not None and not self.done():
            self._core.hurry()
        end = None if timeout is None else time.monotonic() + timeout
        with self._condition:
            while not self.done():
                left = None if end is None else end - time.monotonic()
                if left is not None and left <= 0:
                    raise concurrent.futures.TimeoutError()
                self._condition.wait(left)

    def __await__(self) -> Generator[Any, None, T]:
        import asyncio

        if self._core is not None:
            self._core.hurry()
        return cast("asyncio.Future[T]", asyncio.wrap_future(self)).__await__()

    def cancel(self) -> bool:
        """Cancels the call. One that runs is ended when its job holds no other call."""
        return self._core.cancel(self) if self._core is not None else super().cancel()

    def _cancel_here(self) -> bool:
        done = super().cancel()
        if done:
            self.set_running_or_notify_cancel()
        return done

    @property
    def name(self) -> str:
        """The name of the call: a hash of code, arguments and key."""
        return self._torcflow_name.hex()

    @property
    def job(self) -> Optional[tuple[int, str]]:
        """Workflow and job, once there is one; None for results that were known."""
        return self._place

    @property
    def attempts(self) -> list[Attempt]:
        """Every try of the job, oldest first."""
        if self._place is None or self._core is None:
            return []
        return self._core.attempts(self._place)

    def why(self) -> str:
        """Why the call is where it is, in Torc's words."""
        if self._known:
            return "its result was known from an earlier call of the same function with the same arguments"
        if self._place is None or self._core is None:
            return "it has not been sent to Torc yet"
        return self._core.why(self._place)

    def logs(self, stream: str = "stdout") -> str:
        """What the last attempt of the job wrote: `stdout` or `stderr`."""
        if stream not in ("stdout", "stderr"):
            raise ValueError(f"`stream` is {stream!r}; it is 'stdout' or 'stderr'")
        if self._place is None or self._core is None:
            return ""
        return self._core.logs(self._place, stream)

    def reproduce(self) -> T:
        """Runs the call here, in this process, with the same arguments."""
        if self._recall is not None:
            return self._recall()
        if self._core is None:
            raise TorcError("the call is not known here")
        function, args, kwargs = self._core.recall(self)
        return cast(T, function(*args, **kwargs))

    def __repr__(self) -> str:
        state = "finished" if self.done() else "running" if self.running() else "waiting"
        if self.done() and not self.cancelled() and super().exception(0) is not None:
            state = f"raised {type(super().exception(0)).__name__}"
        return f"<torcflow.Future {self._title} {self.name[:8]} {state}>"


class Call:
    """What is sent of a call; dropped once it is in a batch, which can be read again."""

    __slots__ = ("function", "arguments", "needs", "options", "requeues")

    def __init__(
        self, function: Function, arguments: bytes, needs: list[Future[Any]], options: Options, requeues: int = 0
    ) -> None:
        self.function = function
        self.arguments = arguments
        self.needs = needs
        self.options = options
        self.requeues = requeues


class Function(NamedTuple):
    """A function as it travels."""

    name: bytes
    title: str
    pickled: bytes
    modules: dict[str, tuple[str, str]]


def options_of(future: Future[Any]) -> Options:
    return future._call.options if future._call is not None else Options()


def went_badly(future: Future[Any]) -> bool:
    return future.cancelled() or concurrent.futures.Future.exception(future, 0) is not None


def dependency_failed(need: Future[Any]) -> DependencyFailed:
    if need.cancelled():
        reason: Any = "it was canceled"
    else:
        error = concurrent.futures.Future.exception(need, 0)
        reason = f"{type(error).__name__}: {error}"
    failed = DependencyFailed(f"its argument, the call of {need._title}, ended badly: {reason}", None, need)
    if not need.cancelled():
        failed.__cause__ = concurrent.futures.Future.exception(need, 0)
    return failed


def state_of(future: Future[Any]) -> str:
    """`waiting`, `running`, `done`, `failed` or `canceled`."""
    if not future.done():
        return "running" if future.running() else "waiting"
    return "canceled" if future.cancelled() else "failed" if went_badly(future) else "done"
