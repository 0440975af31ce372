"""`@task`: a function that knows what it asks for."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any, Callable, Generic, Iterable, Iterator, Optional, TypeVar, Union, overload

if TYPE_CHECKING:
    if sys.version_info >= (3, 10):
        from typing import ParamSpec
    else:
        from typing_extensions import ParamSpec
    P = ParamSpec("P")
    T = TypeVar("T")

    class _Base(Generic[P, T]):
        pass
else:

    class _Base:
        """Python 3.9 has no `ParamSpec`; only type checkers need it."""

        def __class_getitem__(cls, _):
            return cls


if TYPE_CHECKING:
    from ._executor import Executor
    from ._future import Future

_executors: dict[Any, Any] = {}


def _default_executor() -> Executor:
    """The executor of tasks that name none: `default`, made once per directory."""
    import os

    from ._executor import Executor, default_directory

    place = os.path.abspath(default_directory())
    found = _executors.get(place)
    if found is None or found._core.closed:
        found = _executors[place] = Executor("default")
    executor: Executor = found
    return executor


class Task(_Base["P", "T"]):
    """A function with its wishes. Called, it runs here like any function."""

    def __init__(self, function: Callable[P, T], executor: Optional[Executor], options: dict[str, Any]) -> None:
        from ._options import Options

        Options().changed(options)  # mistakes are told where they are made
        functools.update_wrapper(self, function)
        self.__wrapped_call__ = function
        self._executor = executor
        self._wishes = options

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.__wrapped_call__(*args, **kwargs)

    def local(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs the call here, in this process."""
        return self.__wrapped_call__(*args, **kwargs)

    def on(self, executor: Executor) -> Task[P, T]:
        """The same task on another executor."""
        return Task(self.__wrapped_call__, executor, self._wishes)

    def options(self, **wishes: Any) -> Task[P, T]:
        """The same task with other wishes."""
        return Task(self.__wrapped_call__, self._executor, {**self._wishes, **wishes})

    def _where(self) -> Executor:
        return (self._executor or _default_executor()).options(**self._wishes)

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Schedules a call."""
        return self._where().submit(self.__wrapped_call__, *args, **kwargs)

    def map(
        self,
        *iterables: Iterable[Any],
        timeout: Optional[float] = None,
        chunksize: Union[int, str, None] = None,
        return_exceptions: bool = False,
        ordered: bool = True,
    ) -> Iterator[T]:
        """Schedules one call for each item; see `Executor.map`."""
        return self._where().map(
            self.__wrapped_call__,
            *iterables,
            timeout=timeout,
            chunksize=chunksize,
            return_exceptions=return_exceptions,
            ordered=ordered,
        )

    def __reduce__(self) -> Any:
        # An executor belongs to its process; the function and its wishes travel.
        return (Task, (self.__wrapped_call__, None, self._wishes))

    def __repr__(self) -> str:
        return f"<torcflow.Task {self.__wrapped_call__.__qualname__}>"


@overload
def task(function: Callable[P, T]) -> Task[P, T]: ...


@overload
def task(*, executor: Optional[Executor] = None, **options: Any) -> Callable[[Callable[P, T]], Task[P, T]]: ...


def task(function: Any = None, *, executor: Optional[Executor] = None, **options: Any) -> Any:
    """Makes a task of a function: `@task` or `@task(cpus=2, memory="4g", cache=True)`."""
    if function is not None:
        return Task(function, executor, options)
    return lambda wrapped: Task(wrapped, executor, options)
