"""The executor: calls become jobs of Torc, and their results come back as futures."""

from __future__ import annotations

import concurrent.futures
import os
import sys
import time
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any, Callable, Iterable, Iterator, List, Optional, TypeVar, Union, cast

from . import _segment
from ._arguments import futures_in, resolved
from ._core import Core
from ._engine import Engine
from ._errors import TorcError
from ._future import Future, dependency_failed, went_badly
from ._options import Options
from ._progress import Progress
from ._store import Store, parse_seconds

if TYPE_CHECKING:
    if sys.version_info >= (3, 10):
        from typing import ParamSpec
    else:
        from typing_extensions import ParamSpec
    import pandas

    from ._api import Client

    P = ParamSpec("P")

T = TypeVar("T")

BACKENDS = ("auto", "local", "slurm", "debug")
DEFAULT_STORE = "10g"
# Between SIGTERM, which lets a call save its state, and SIGKILL.
DEFAULT_GRACE = 10.0


def default_directory() -> str:
    """Where executors keep their state: `TORCFLOW_DIR`, or `.torcflow` here."""
    return os.environ.get("TORCFLOW_DIR") or ".torcflow"


class Executor(concurrent.futures.Executor):
    """Runs calls as jobs of Torc. The name says which results belong together; see `docs/python.md`."""

    def __init__(
        self,
        name: str = "default",
        *,
        backend: str = "auto",
        directory: Optional[str] = None,
        max_store: Any = DEFAULT_STORE,
        account: Optional[str] = None,
        partition: Optional[str] = None,
        grace: Any = DEFAULT_GRACE,
        by_value: Iterable[Any] = (),
        **options: Any,
    ) -> None:
        if backend not in BACKENDS:
            raise ValueError(f"`backend` is {backend!r}; it is one of {', '.join(BACKENDS)}")
        wishes = Options().changed(options)
        if backend == "auto":
            import shutil

            backend = "slurm" if shutil.which("sbatch") else "local"
        account = account or os.environ.get("SBATCH_ACCOUNT") or os.environ.get("SLURM_ACCOUNT")
        slurm = {"account": account, "partition": partition}
        grace_seconds = parse_seconds(grace)
        if grace_seconds is None or grace_seconds < 0:
            raise ValueError(f"`grace` is {grace!r}; it is a duration, such as 30 or '1m'")
        self._core = Core(name, directory or default_directory(), backend, max_store, slurm, grace_seconds)
        self._options = wishes
        self._owner = True
        for module in by_value:
            import cloudpickle

            cloudpickle.register_pickle_by_value(module)
            self._core.by_value.add(module.__name__.split(".")[0])

    @classmethod
    def _view(cls, core: Core, options: Options) -> Executor:
        view = cls.__new__(cls)
        view._core = core
        view._options = options
        view._owner = False
        return view

    def options(self, **wishes: Any) -> Executor:
        """The same executor with other wishes: `ex.options(memory="16g", retries=3).submit(f)`."""
        return self._view(self._core, self._options.changed(wishes))

    @property
    def name(self) -> str:
        """Its name."""
        return self._core.name

    @property
    def backend(self) -> str:
        """`local`, `slurm` or `debug`."""
        return self._core.backend

    @property
    def directory(self) -> str:
        """Where its results, logs and server are."""
        return self._core.root

    @property
    def url(self) -> Optional[str]:
        """The address of its server."""
        return None if self._core.backend == "debug" else self._core.connection().url

    def page(self) -> str:
        """A link to the server's page, with a key in it: for you, not for a notebook that you share."""
        from ._engine import run

        self._core.connection()
        return run(["--dir", self._core.engine.state, "ui", "--no-browser"]).strip()

    def client(self) -> Client:
        """A `torcflow.Client` of its server."""
        from ._api import Client

        return Client(connection=self._core.connection())

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Schedules `fn(*args, **kwargs)`. A future among the arguments is a dependency."""
        return self._submit(fn, [(args, kwargs)], False)[0]

    def submit_batch(self, fn: Callable[..., T], arguments: Iterable[tuple[Any, ...]]) -> list[Future[T]]:
        """Schedules many calls of one function, as one workflow."""
        return self._submit(fn, [(tuple(args), {}) for args in arguments], True)

    def _submit(
        self, fn: Callable[..., T], calls: list[tuple[tuple[Any, ...], Any]], at_once: bool, options: Optional[Options] = None
    ) -> list[Future[T]]:
        wishes = self._options if options is None else options
        core = self._core
        if core.backend == "debug":
            return [_debug(core, fn, args, kwargs) for args, kwargs in calls]
        function = core.function(fn)
        futures: list[Future[T]] = []
        new: list[Future[Any]] = []
        try:
            for args, kwargs in calls:
                future, is_new = core.future(function, args, kwargs, wishes)
                futures.append(future)
                if is_new:
                    new.append(future)
            if new:
                core.submit(new, at_once)
        except BaseException:
            with core.lock:
                for future in new:
                    core.futures.pop(future._torcflow_name, None)
            raise
        return futures

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: Optional[float] = None,
        chunksize: Union[int, str, None] = None,
        return_exceptions: bool = False,
        ordered: bool = True,
    ) -> Iterator[T]:
        """Calls `fn` with one item of each iterable; an iterator over results, in order unless `ordered=False`.

        With `return_exceptions=True` the exception of a call stands in the place of its result.
        """
        return self.starmap(
            fn,
            zip(*iterables),
            timeout=timeout,
            chunksize=chunksize,
            return_exceptions=return_exceptions,
            ordered=ordered,
        )

    def starmap(
        self,
        fn: Callable[..., T],
        arguments: Iterable[tuple[Any, ...]],
        *,
        timeout: Optional[float] = None,
        chunksize: Union[int, str, None] = None,
        return_exceptions: bool = False,
        ordered: bool = True,
    ) -> Iterator[T]:
        """`map` for arguments that are already tuples."""
        options = self._options if chunksize is None else self._options.changed({"chunksize": chunksize})
        futures = self._submit(fn, [(tuple(args), {}) for args in arguments], True, options)
        return _results(futures, timeout, return_exceptions, ordered)

    def map_frame(self, fn: Callable[..., Any], frame: pandas.DataFrame, result: str = "result") -> pandas.DataFrame:
        """One row, one call, with the columns as keyword arguments.

        Returns the frame with `result`, `torc_status` and `torc_error`; a call that failed raises nothing.
        """
        from ._frame import with_results

        rows = frame.to_dict("records")
        futures = self._submit(fn, [((), {str(name): value for name, value in row.items()}) for row in rows], True)
        concurrent.futures.wait(futures)
        return with_results(frame, futures, result)

    @property
    def futures(self) -> list[Future[Any]]:
        """The calls of this process, in the order in which they were submitted."""
        with self._core.lock:
            return list(self._core.futures.values())

    def progress(self) -> Progress:
        """How far it is."""
        done = failed = running = waiting = 0
        for future in self.futures:
            if future.done():
                bad = went_badly(future)
                failed += bad
                done += not bad
            elif future.running():
                running += 1
            else:
                waiting += 1
        stored, size = (0, 0) if self._core.backend == "debug" else self._core.store.size()
        return Progress(len(self.futures), done, failed, running, waiting, self._core.known_before, stored, size)

    def failures(self) -> dict[str, list[Future[Any]]]:
        """Calls that failed, in groups by type and first line of the exception."""
        groups: dict[str, list[Future[Any]]] = {}
        for future in self.futures:
            if future.done() and went_badly(future):
                error: Any = None if future.cancelled() else future.exception()
                lines = str(error).splitlines() or [""]
                title = "canceled" if error is None else f"{type(error).__name__}: {lines[0]}".rstrip(": ")
                groups.setdefault(title, []).append(future)
        return groups

    def dataframe(self) -> pandas.DataFrame:
        """Calls as a frame: function, status, result, error, the time they took, and what their jobs used."""
        from ._frame import calls_frame

        return calls_frame(self)

    def forget(self) -> int:
        """Deletes the stored results; how many there were."""
        return 0 if self._core.backend == "debug" else self._core.store.forget()

    def watch(self, interval: float = 0.5, timeout: Optional[float] = None) -> bool:
        """Shows progress until every call has ended, or for `timeout` seconds; whether they have ended.

        One display that is kept current: HTML in a notebook, a bar of `rich` in a terminal, plain lines elsewhere.
        """
        from ._display import watch

        self._core.hurry()
        return watch(self, interval, timeout)

    def _repr_html_(self) -> str:
        from ._display import executor_html

        return executor_html(self)

    def __repr__(self) -> str:
        return f"<torcflow.Executor {self.name!r} ({self.backend}): {self.progress()}>"

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """With `wait`, waits for every call, and stops the server. Without, everything goes on by itself."""
        if self._core.backend == "debug":
            return
        if not self._owner:
            if wait:
                self._core.wait_all()
            return
        self._core.shutdown(wait, cancel_futures)

    def __exit__(self, kind: Any, value: Any, trace: Any) -> Optional[bool]:
        # After an error of the script the calls go on: the next run finds them.
        self.shutdown(wait=kind is None)
        return None


def _results(
    futures: List[Future[T]], timeout: Optional[float], return_exceptions: bool, ordered: bool
) -> Iterator[T]:
    end = None if timeout is None else time.monotonic() + timeout

    def left() -> Optional[float]:
        return None if end is None else max(0.0, end - time.monotonic())

    def one(future: Future[T]) -> T:
        try:
            return future.result(left())
        except concurrent.futures.TimeoutError:
            if not future.done():
                raise
            if return_exceptions:
                return cast(T, future.exception())
            raise
        except (Exception, CancelledError) as error:
            if return_exceptions:
                return cast(T, error)
            raise

    if ordered:
        for future in futures:
            yield one(future)
        return
    for ended in concurrent.futures.as_completed(futures, timeout):
        yield one(cast("Future[T]", ended))


def _debug(core: Core, fn: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Future[T]:
    """Runs a call here and now."""
    function = getattr(fn, "__wrapped_call__", fn)
    future: Future[T] = Future(None, os.urandom(_segment.NAME_BYTES), getattr(function, "__name__", "call"))
    core.futures[future._torcflow_name] = future
    future.set_running_or_notify_cancel()
    future._recall = lambda: cast(T, function(*resolved(args), **resolved(kwargs)))
    try:
        for need in futures_in((args, kwargs)):
            if need.done() and went_badly(need):
                raise dependency_failed(need)
        future.set_result(future._recall())
    except Exception as error:
        future.set_exception(error)
    return future


def attach(name: str, *, directory: Optional[str] = None, **options: Any) -> Executor:
    """The executor of an earlier process: `futures` are its calls that have not ended, and they go on."""
    root = os.path.join(directory or default_directory(), name)
    if not os.path.exists(os.path.join(root, "index.db")):
        raise TorcError(f"there is no executor {name!r} in {os.path.abspath(directory or default_directory())}")
    executor = Executor(name, directory=directory, **options)
    core = executor._core
    with core.lock:
        for batch in core.batches.values():
            for call_name, call in batch.calls.items():
                if call_name not in core.futures and call_name not in batch.returned:
                    core.futures[call_name] = Future(core, call_name, call.title)
    core.wake()
    return executor


def forget(name: str, *, directory: Optional[str] = None) -> None:
    """Deletes an executor with everything in it. Refused while its calls run."""
    root = os.path.join(os.path.abspath(directory or default_directory()), name)
    if not os.path.exists(os.path.join(root, "index.db")):
        return
    store = Store(root)
    try:
        if store.batches():
            raise TorcError(f"calls of {name!r} have not ended; `torcflow.attach({name!r})` shows them")
    finally:
        store.close()
    Engine(root).stop_server()
    import shutil

    shutil.rmtree(root)
