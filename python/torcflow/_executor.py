"""The executor: calls become jobs of Torc, and their results come back as futures.

One thread per executor (the *monitor*) does everything that blocks: it collects submitted calls for a moment,
packs them into jobs, creates one workflow for the batch, reads results from segments, asks the server about jobs
that ended, and starts server and runners again when they died. Everything it needs after a crash is on disk
before the server hears of a batch, so a client that starts again goes on where the last one stopped.
"""

from __future__ import annotations

import concurrent.futures
import os
import pickle
import re
import select
import shlex
import socket
import sys
import threading
import time
import uuid
import weakref
from concurrent.futures import CancelledError
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Generator,
    Generic,
    Iterable,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    TypeVar,
    Union,
    cast,
)

from . import _naming, _segment
from ._engine import Engine, program, python_command
from ._errors import (
    Canceled,
    Changed,
    DependencyFailed,
    JobError,
    Lost,
    NotPicklable,
    OutOfMemory,
    RemoteTraceback,
    TimeLimit,
    TorcError,
    add_note,
)
from ._http import ApiError, Connection
from ._store import Known, Pending, Store, parse_bytes, parse_seconds, read_new

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
# Submitted calls wait this long for others, so that a loop becomes one workflow...
WINDOW_SECONDS = 0.02
# ... but not longer than this while new ones keep coming.
WINDOW_MOST_SECONDS = 2.0
# Server and runners are looked after this often; results come by messages of the workers.
TICK_SECONDS = 1.0
# Jobs of short calls are made about this long.
JOB_SECONDS = 20.0
# A job of calls whose time is unknown gives the rest back after this long.
PROBE_SECONDS = 2.0
# Jobs per slot, so that the last ones end together.
JOBS_PER_SLOT = 4
# Where the size of the machine is not known.
SLURM_SLOTS = 64
# Rounds of recovery (more memory, the same again) that a job gets.
RECOVERIES = 3
# A call that came back this often without an end is given up.
REQUEUES = 20
# What the watchdog of the worker does not end, the runner ends this much later.
GRACE_SECONDS = 60
DEFAULT_STORE = "10g"
# Workflows that are over stay for `why` and `logs`; beyond this many the oldest go, with their logs.
KEPT_WORKFLOWS = 100
# After so many turns without success the monitor gives up and tells every future why.
TROUBLES = 5
# How long after a failed call its job's end is asked for.
SOON_SECONDS = 0.15
# A script that ends without `shutdown` waits this long for the server to hear of its last jobs.
LEAVE_SECONDS = 3.0


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


# One condition for all futures: a condition of its own for each costs a kilobyte.
_condition = threading.Condition()


class Future(concurrent.futures.Future, Generic[T]):  # type: ignore[type-arg]
    """A call, by its name. A `concurrent.futures.Future`, and awaitable."""

    def __init__(self, core: Optional[_Core] = None, name: bytes = b"", title: str = "") -> None:
        super().__init__()
        self._condition = _condition
        self._core = core
        self._torcflow_name = name
        self._title = title
        self._call: Optional[_Call] = None
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


class _Call:
    """What is sent of a call; dropped once it is in a batch, which can be read again."""

    __slots__ = ("function", "arguments", "needs", "options", "requeues")

    def __init__(
        self, function: _Function, arguments: bytes, needs: list[Future[Any]], options: Options, requeues: int = 0
    ) -> None:
        self.function = function
        self.arguments = arguments
        self.needs = needs
        self.options = options
        self.requeues = requeues


class _Function(NamedTuple):
    """A function as it travels."""

    name: bytes
    title: str
    pickled: bytes
    modules: dict[str, tuple[str, str]]


class _Batch:
    """A workflow whose results are not all here yet."""

    def __init__(self, id: str, spec: str, slurm: bool, recover: bool, calls: dict[bytes, Pending]) -> None:
        self.id = id
        self.spec = spec
        self.slurm = slurm
        self.recover = recover
        self.calls = calls
        self.jobs: dict[str, list[bytes]] = {}
        for name, call in sorted(calls.items(), key=lambda item: item[1].place):
            self.jobs.setdefault(call.job, []).append(name)
        self.workflow: Optional[int] = None
        # Sent by this process.
        self.mine = False
        self.offsets: dict[str, int] = {}
        # The last record of each call that has not returned.
        self.last: dict[bytes, _segment.Record] = {}
        self.refused: dict[str, bytes] = {}
        self.returned: set[bytes] = set()
        self.open: set[str] = set(self.jobs)
        self.requeues: dict[bytes, int] = {}

    def unanswered(self, job: str) -> list[bytes]:
        return [name for name in self.jobs[job] if name not in self.returned]


class _Core:
    """What all views of one executor share."""

    def __init__(self, name: str, directory: str, backend: str, limit: Any, slurm: dict[str, Any]) -> None:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name):
            raise ValueError(f"{name!r} is no name of an executor: letters, digits, '.', '_' and '-' only")
        self.name = name
        self.backend = backend
        self.slurm = slurm
        self.root = os.path.join(os.path.abspath(directory), name)
        self.lock = threading.RLock()
        self.futures: dict[bytes, Future[Any]] = {}
        self.queue: list[Future[Any]] = []
        self.first_at = 0.0
        self.last_at = 0.0
        self.held: list[Future[Any]] = []
        self.batches: dict[str, _Batch] = {}
        self.closed = False
        self.broken: Optional[BaseException] = None
        self.functions: dict[Any, tuple[Any, _Function]] = {}
        self.by_value: set[str] = set()
        self.known_before = 0
        self.last_job: Any = None
        self.thread: Optional[threading.Thread] = None
        self.last_check = 0.0
        self.check_at = 0.0
        self.left = False
        if backend == "debug":
            return
        program()  # a missing program is told here and not by the monitor
        self.store = Store(self.root, None if limit is None else parse_bytes(limit))
        self.engine = Engine(self.root, backend == "slurm")
        self.news = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.news.setblocking(False)
        handle = os.open(os.path.join(self.root, "clients"), os.O_RDONLY)
        self.news_name = f"{os.getpid()}-{uuid.uuid4().hex[:8]}"
        try:
            self.news.bind(f"/proc/self/fd/{handle}/{self.news_name}")
        finally:
            os.close(handle)
        self.wake_read, self.wake_write = os.pipe()
        os.set_blocking(self.wake_write, False)
        os.set_blocking(self.wake_read, False)
        self.store.clean()
        for id, spec, slurm_batch, recover in self.store.batches():
            self._adopt(id, spec, slurm_batch, recover)
        self._start()
        _alive.add(self)

    # --- What other threads call

    def _start(self) -> None:
        self.thread = threading.Thread(target=self._run, name=f"torcflow {self.name}", daemon=True)
        self.thread.start()

    def wake(self) -> None:
        try:
            os.write(self.wake_write, b".")
        except BlockingIOError:
            pass  # the monitor will wake anyway

    def hurry(self) -> None:
        """A thread waits for a result: what is queued is sent without waiting for more."""
        with self.lock:
            if self.queue and self.first_at > 0:
                self.first_at = -1.0
                self.wake()

    def submit(self, futures: list[Future[Any]], at_once: bool = False) -> None:
        with self.lock:
            if self.closed:
                raise RuntimeError("cannot schedule new futures after shutdown")
            if self.broken is not None:
                raise TorcError(f"the executor's thread has ended: {self.broken}") from self.broken
            now = time.monotonic()
            was_empty = not self.queue
            if was_empty:
                self.first_at = now
            self.last_at = now
            self.queue += futures
            if at_once:
                self.first_at = -1.0
        if was_empty or at_once:
            self.wake()

    def function(self, function: Callable[..., Any]) -> _Function:
        """The function as it travels; looked at once per executor."""
        function = getattr(function, "__wrapped_call__", function)
        found = self.functions.get(id(function))
        if found is not None and found[0] is function:
            return found[1]
        import cloudpickle

        title = getattr(function, "__name__", type(function).__name__)
        path = [f"function {getattr(function, '__qualname__', title)!r}"]
        try:
            name, modules = _naming.function_name(function)
            pickled = cloudpickle.dumps(function)
        except Exception as error:
            raise _naming.explain(error, "the function", function, path) from error
        files = {}
        for module, digest in modules.items():
            file = _naming.project_file(module)
            if file is not None and module.split(".")[0] not in self.by_value:
                files[module] = (file, digest)
        made = _Function(name, title, pickled, files)
        self.functions[id(function)] = (function, made)
        return made

    def future(
        self, function: _Function, args: tuple[Any, ...], kwargs: dict[str, Any], options: Options
    ) -> tuple[Future[Any], bool]:
        """The future of a call, and whether it is new here."""
        needs: list[Future[Any]] = []
        if _has_future(args) or _has_future(kwargs):
            args = _strip(args, needs)
            kwargs = _strip(kwargs, needs)
        try:
            name = _naming.call_name(function.name, args, kwargs, options.key)
            pickled = _dump((args, kwargs))
        except Exception as error:
            if isinstance(error, NotPicklable):
                raise
            path, value = _bad_argument(args, kwargs)
            raise _naming.explain(error, "the argument", value, path) from error
        if not options.cache:
            name = uuid.uuid4().bytes + bytes(4)
        with self.lock:
            known = self.futures.get(name)
            if known is not None and not (known.done() and (options.fresh or _went_badly(known))):
                return known, False
            new: Future[Any] = Future(self, name, function.title)
            new._call = _Call(function, pickled, needs, options)
            self.futures[name] = new
        return new, True

    def cancel(self, future: Future[Any]) -> bool:
        with self.lock:
            if future.done():
                return future.cancelled()
            if future in self.queue or future in self.held:
                self.queue = [one for one in self.queue if one is not future]
                self.held = [one for one in self.held if one is not future]
                return future._cancel_here()
            alone = None
            for batch in self.batches.values():
                call = batch.calls.get(future._torcflow_name)
                if call is not None and len(batch.unanswered(call.job)) == 1 and batch.workflow is not None:
                    alone = (batch.workflow, call.job)
        if alone is not None:
            connection = self.engine.server()
            try:
                connection.request("POST", "/jobs/cancel", body={"job_ids": [self._job_id(connection, alone)]})
            except ApiError as error:
                if error.unreachable:
                    raise
                return False  # it has just ended
        elif future.running():
            return False
        with self.lock:
            if future.running():
                self._fail(future, Canceled("canceled by `Future.cancel`", alone[1] if alone else None))
                return True
            return future._cancel_here()

    # --- The monitor

    def _run(self) -> None:
        troubles = 0
        try:
            while True:
                self._sleep()
                with self.lock:
                    if self.closed and not self.queue and not self.batches and not self.held:
                        return
                try:
                    self._turn()
                    troubles = 0
                except ApiError as error:
                    if not error.unreachable:
                        raise
                    # The server died: the next turn starts it again.
                except TorcError:
                    troubles += 1
                    if troubles >= TROUBLES:
                        raise
        except BaseException as error:
            if self.left:
                return  # the process ends
            with self.lock:
                self.broken = error
                left = [future for future in self.futures.values() if not future.done()]
            for future in left:
                self._fail(future, TorcError(f"the executor's thread has ended: {error!r}"))
            if not isinstance(error, TorcError):
                raise

    def _sleep(self) -> None:
        """Until a message comes, the window closes, or it is time to look after the processes."""
        with self.lock:
            if self.queue:
                now = time.monotonic()
                end = min(self.last_at + WINDOW_SECONDS, self.first_at + WINDOW_MOST_SECONDS)
                timeout = max(0.0, end - now)
            else:
                timeout = TICK_SECONDS
                if self.check_at:
                    timeout = min(timeout, max(0.0, self.check_at - time.monotonic()))
        select.select([self.news.fileno(), self.wake_read], [], [], timeout)
        for source in (self.news.fileno(), self.wake_read):
            try:
                while os.read(source, 4096):
                    continue
            except BlockingIOError:
                continue

    def _turn(self) -> None:
        now = time.monotonic()
        with self.lock:
            due = self.queue and (
                now >= self.last_at + WINDOW_SECONDS or now >= self.first_at + WINDOW_MOST_SECONDS
            )
            calls: list[Future[Any]] = []
            if due:
                calls, self.queue = self.queue, []
        if calls:
            try:
                self._flush(calls)
            except (ApiError, TorcError):
                with self.lock:  # not sent: again with the next turn
                    self.queue = [one for one in calls if not one.done() and one._place is None] + self.queue
                    self.first_at = self.last_at = time.monotonic() + TICK_SECONDS
                raise
        for batch in list(self.batches.values()):
            self._read(batch)
        soon = self.check_at and now >= self.check_at
        if soon or now - self.last_check >= TICK_SECONDS or self.closed or self._any_idle():
            self.last_check = now
            self.check_at = 0.0
            for batch in list(self.batches.values()):
                self._check(batch)
        self._release()

    def _any_idle(self) -> bool:
        """A job ended with calls left over, as far as its segment says: no call of it has begun and not ended."""
        return any(not batch.last and len(batch.returned) == len(batch.calls) for batch in self.batches.values())

    def _release(self) -> None:
        """Queues held calls whose arguments are there, and ends those whose arguments failed."""
        with self.lock:
            held, self.held = self.held, []
            ready = []
            for future in held:
                needs = future._call.needs if future._call is not None else []
                if all(need.done() for need in needs):
                    ready.append(future)
                else:
                    self.held.append(future)
            if ready:
                self.queue += ready
                self.first_at = self.last_at = -1.0
        if ready:
            self.wake()

    # --- Sending

    def _flush(self, calls: list[Future[Any]]) -> None:
        """Answers what is known, joins what runs, and sends the rest as one workflow."""
        calls = [future for future in calls if not future.done()]
        fresh = [one._torcflow_name for one in calls if one._call is not None and one._call.options.fresh]
        if fresh:
            self.store.forget(fresh)
        names = [future._torcflow_name for future in calls]
        known = self.store.known(names)
        pending = self.store.pending(names)
        rest: list[Future[Any]] = []
        for future in calls:
            value = known.get(future._torcflow_name)
            waits = pending.get(future._torcflow_name)
            if value is not None:
                future._known = True
                self.known_before += 1
                self._resolve(future, value)
            elif waits is not None and self._join(future, waits):
                continue
            else:
                rest.append(future)
        if known:
            self.store.touch(list(known))
        sendable = self._without_waiting(rest)
        while sendable:
            # One workflow has one way to be run: with recovery or without.
            recover = sendable[0]._call is None or sendable[0]._call.options.on_oom == "more"
            part = [one for one in sendable if (_options(one).on_oom == "more") == recover]
            taken = {id(one) for one in part}
            sendable = [one for one in sendable if id(one) not in taken]
            if not self._send(part, recover):
                with self.lock:  # another client was faster with one of them: look again
                    self.queue = part + self.queue
                    self.first_at = self.last_at = -1.0
                self.wake()

    def _without_waiting(self, calls: list[Future[Any]]) -> list[Future[Any]]:
        """Calls that can be sent now: their arguments are there, or are calls of the same batch."""
        here = {id(future) for future in calls}
        sendable = []
        for future in calls:
            assert future._call is not None
            bad = next((need for need in future._call.needs if need.done() and _went_badly(need)), None)
            if bad is not None:
                here.discard(id(future))
                self._fail(future, _dependency_failed(bad))
                continue
            same = future._call.options.on_oom
            if all(
                need.done() or (id(need) in here and _options(need).on_oom == same) for need in future._call.needs
            ):
                sendable.append(future)
            else:
                here.discard(id(future))
                with self.lock:
                    self.held.append(future)
        return sendable

    def _slots(self, cpus: int) -> int:
        return SLURM_SLOTS if self.backend == "slurm" else max(1, _cpus() // cpus)

    def _chunks(self, calls: list[Future[Any]]) -> list[tuple[list[Future[Any]], Optional[float]]]:
        """Calls in groups that become jobs, each with the time after which it gives the rest back."""
        groups: dict[Any, list[Future[Any]]] = {}
        jobs: list[tuple[list[Future[Any]], Optional[float]]] = []
        for future in calls:
            call = future._call
            assert call is not None
            if call.needs:
                jobs.append(([future], None))
            else:
                kind = (call.function.name, call.options.of_job(), call.options.chunksize)
                groups.setdefault(kind, []).append(future)
        for group in groups.values():
            options = _options(group[0])
            function = group[0]._call.function.name if group[0]._call else b""
            slots = self._slots(options.cpus)
            even = -(-len(group) // (slots * JOBS_PER_SLOT))
            budget = None
            if options.chunksize != "auto":
                size = int(options.chunksize)
            else:
                seconds = self.store.mean_seconds(function.hex())
                if seconds is not None:
                    size = min(even, max(1, int(JOB_SECONDS / max(seconds, 1e-6))))
                elif options.time is not None and options.time >= JOB_SECONDS and self.backend == "slurm":
                    size = 1
                else:
                    size = even
                    budget = PROBE_SECONDS if size > 1 else None
            jobs += [(group[at : at + size], budget) for at in range(0, len(group), size)]
        return jobs

    def _send(self, calls: list[Future[Any]], recover: bool) -> bool:
        """Writes a batch down and creates its workflow. False if another client holds one of its calls."""
        id = uuid.uuid4().hex
        jobs = self._chunks(calls)
        functions: dict[bytes, int] = {}
        made: list[_Function] = []
        modules: dict[str, tuple[str, str]] = {}
        job_of: dict[bytes, str] = {}
        payloads: list[bytes] = []
        rows: list[tuple[bytes, str, int, str, str]] = []
        specs: list[dict[str, Any]] = []
        requirements: dict[Any, dict[str, Any]] = {}
        handlers: dict[int, dict[str, Any]] = {}
        limits: dict[str, int] = {}
        for index, (members, _) in enumerate(jobs):
            for future in members:
                job_of[future._torcflow_name] = f"{_safe(members[0]._title)}-{index:05d}"
        for index, (members, budget) in enumerate(jobs):
            first = members[0]._call
            assert first is not None
            job = job_of[members[0]._torcflow_name]
            listed = []
            values: dict[bytes, tuple[str, Any]] = {}
            after: set[str] = set()
            for place, future in enumerate(members):
                call = future._call
                assert call is not None
                if call.function.name not in functions:
                    functions[call.function.name] = len(made)
                    made.append(call.function)
                    modules.update(call.function.modules)
                for need in call.needs:
                    if need._torcflow_name in job_of:
                        values[need._torcflow_name] = ("job", job_of[need._torcflow_name])
                        after.add(job_of[need._torcflow_name])
                    else:
                        values[need._torcflow_name] = self._source(need)
                listed.append((future._torcflow_name, functions[call.function.name], call.arguments))
                rows.append((future._torcflow_name, job, place, call.function.name.hex(), call.function.title))
            options = first.options
            payloads.append(
                pickle.dumps(
                    {
                        "name": job,
                        "calls": listed,
                        "values": values,
                        "time": options.time,
                        "budget": budget,
                        "options": tuple(options._replace(key=None)),
                    },
                    protocol=4,
                )
            )
            specs.append(self._job(id, index, job, len(members), options, after, requirements, handlers, limits))
        header = {
            "python": "%d.%d" % sys.version_info[:2],
            "sys_path": [os.path.abspath(place) if place else os.getcwd() for place in sys.path],
            "modules": modules,
            "functions": [_segment.write_blob(self.root, function.pickled) for function in made],
            "titles": [(function.name, function.title) for function in made],
        }
        _segment.write_batch(os.path.join(self.root, "batches", id), header, payloads)
        spec: dict[str, Any] = {"name": self.name, "jobs": specs}
        if requirements:
            spec["resource_requirements"] = list(requirements.values())
        if handlers:
            spec["failure_handlers"] = list(handlers.values())
        if limits:
            spec["limits"] = limits
        import json

        request = json.dumps({"spec": spec, "key": id, "initialize": True, "directory": os.getcwd()})
        if not self.store.add_batch(id, request, self.backend == "slurm", recover, rows):
            os.unlink(os.path.join(self.root, "batches", id))
            return False
        for function in made:  # again: another client may have cleaned up before the batch was known
            _segment.write_blob(self.root, function.pickled)
        batch = self._adopt(id, request, self.backend == "slurm", recover)
        batch.mine = True
        for future in calls:
            assert future._call is not None
            batch.requeues[future._torcflow_name] = future._call.requeues
            future._call = None
        self._create(batch)
        return True

    def _job(
        self,
        batch: str,
        index: int,
        name: str,
        calls: int,
        options: Options,
        after: set[str],
        requirements: dict[Any, dict[str, Any]],
        handlers: dict[int, dict[str, Any]],
        limits: dict[str, int],
    ) -> dict[str, Any]:
        """One job of the spec."""
        command = " ".join(shlex.quote(word) for word in [*python_command(), self.root, batch, str(index)])
        # Braces around a name would be a placeholder of the spec.
        command = re.sub(r"\{(\w[^{}]*)\}", r"{{\1}}", command)
        if options.setup:
            command = f"{options.setup}\nexec {command}"
        job: dict[str, Any] = {"name": name, "command": command}
        seconds = None if options.time is None else int(options.time * calls) + 1
        kind = (options.cpus, options.memory, options.gpus, seconds)
        if kind not in requirements:
            needs: dict[str, Any] = {"name": f"r{len(requirements)}", "num_cpus": options.cpus}
            if options.memory is not None:
                needs["memory"] = options.memory
            if options.gpus:
                needs["num_gpus"] = options.gpus
            if seconds is not None:
                needs["runtime"] = f"{seconds}s"
            requirements[kind] = needs
        job["resource_requirements"] = requirements[kind]["name"]
        if seconds is not None:
            job["timeout"] = f"{seconds + GRACE_SECONDS}s"
        if options.retries:
            if options.retries not in handlers:
                rule = {"match_all_exit_codes": True, "max_retries": options.retries + 1}
                handlers[options.retries] = {"name": f"retry{options.retries}", "rules": [rule]}
            job["failure_handler"] = handlers[options.retries]["name"]
        if options.priority:
            job["priority"] = options.priority
        if after:
            job["depends_on"] = sorted(after)
        if self.backend == "local":
            # Every batch has a runner of its own; the limit keeps all of them together within this machine.
            limit = f"cpus-{options.cpus}"
            limits[limit] = self._slots(options.cpus)
            job["uses"] = [limit]
        return job

    def _source(self, future: Future[Any]) -> tuple[str, Any]:
        """Where a worker finds the value of a call that has ended."""
        known = self.store.known([future._torcflow_name]).get(future._torcflow_name)
        if known is None:  # a result that was forgotten meanwhile, or one of the debug backend
            pickled = _dump(future.result(0))
            if len(pickled) > 32 << 10:
                return ("blob", _segment.write_blob(self.root, pickled))
            return ("inline", pickled)
        if known.blob is not None:
            return ("blob", known.blob)
        return ("inline", bytes(known.value or b""))

    def _adopt(self, id: str, spec: str, slurm: bool, recover: bool) -> _Batch:
        """Looks after a batch that is written down."""
        batch = _Batch(id, spec, slurm, recover, self.store.pending_of(id))
        with self.lock:
            self.batches[id] = batch
        return batch

    def _create(self, batch: _Batch) -> Optional[Connection]:
        """Creates the workflow of a batch, or finds it, and sees to it that it is run. None if it is refused."""
        import json

        if batch.workflow is None and batch.slurm:
            batch.workflow = self._submit_slurm(batch)
        connection = self.engine.server()
        if batch.workflow is None:
            # The key makes a repeat harmless: the server answers with the same workflow.
            try:
                answer = connection.request("POST", "/workflows", body=json.loads(batch.spec))
            except ApiError as error:
                if error.status is None or error.status >= 500:
                    raise
                self._drop(batch, TorcError(f"the server refuses the calls: {error}"))
                return None
            batch.workflow = int(answer["id"])
            if batch.mine:  # whether another client's batch has a runner is seen by its status
                self.engine.runner(batch.workflow, batch.recover, batch.slurm, [])
        with self.lock:
            for name, call in batch.calls.items():
                future = self.futures.get(name)
                if future is not None:
                    future._place = (batch.workflow, call.job)
        return connection

    def _submit_slurm(self, batch: _Batch) -> int:
        from ._slurm import submit

        return submit(self, batch.id, batch.spec)

    def _join(self, future: Future[Any], waits: Pending) -> bool:
        """Attaches a future to a batch that an earlier or another process sent."""
        batch = self.batches.get(waits.batch)
        if batch is None:
            for id, spec, slurm, recover in self.store.batches():
                if id == waits.batch:
                    batch = self._adopt(id, spec, slurm, recover)
        if batch is None:
            # It ended between two looks: its value is in the store now, or the call is free.
            value = self.store.known([future._torcflow_name]).get(future._torcflow_name)
            if value is not None:
                self._resolve(future, value)
            return value is not None
        if future._torcflow_name in batch.returned:
            value = self.store.known([future._torcflow_name]).get(future._torcflow_name)
            if value is not None:
                self._resolve(future, value)
                return True
        if waits.job not in batch.open:
            # It failed, as this process knows already: it runs again.
            self.store.drop_pending([future._torcflow_name])
            batch.calls.pop(future._torcflow_name, None)
            return False
        future._call = None
        if batch.workflow is not None:
            future._place = (batch.workflow, waits.job)
        return True

    # --- Reading results

    def _read(self, batch: _Batch) -> None:
        """Takes over what workers have written since the last look."""
        directory = os.path.join(self.root, "segments", batch.id)
        try:
            names = sorted(os.listdir(directory), key=_attempt_order)
        except FileNotFoundError:
            return
        values: list[tuple[bytes, Optional[bytes], Optional[str], int, float, str, str]] = []
        answers: list[tuple[Future[Any], Known]] = []
        for file in names:
            path = os.path.join(directory, file)
            offset = batch.offsets.get(file, 0)
            if os.stat(path).st_size <= offset:
                continue
            found, batch.offsets[file] = read_new(path, offset)
            for record in found:
                if record.state == _segment.REFUSED:
                    batch.refused[file.rpartition(".")[0]] = record.payload
                    continue
                call = batch.calls.get(record.name)
                if call is None or record.name in batch.returned:
                    continue
                future = self.futures.get(record.name)
                if record.state in (_segment.DONE, _segment.STORED):
                    value, blob, size = record.payload, None, len(record.payload)
                    if record.state == _segment.STORED:
                        blob = record.payload.decode()
                        size = os.stat(_segment.blob_path(self.root, blob)).st_size
                    values.append(
                        (record.name, value if blob is None else None, blob, size, record.seconds, call.function, call.title)
                    )
                    batch.returned.add(record.name)
                    batch.last.pop(record.name, None)
                    if future is not None and not future.done():
                        answers.append((future, Known(value, blob, size, record.seconds, call.title)))
                else:
                    batch.last[record.name] = record
                    if record.state != _segment.BEGUN and not self.check_at:
                        self.check_at = time.monotonic() + SOON_SECONDS
                    if record.state == _segment.BEGUN and future is not None:
                        with _condition:
                            if not future.running() and not future.done():
                                future.set_running_or_notify_cancel()
        self.store.add_values(values)
        for future, known in answers:
            self._resolve(future, known)

    def _resolve(self, future: Future[Any], known: Known) -> None:
        try:
            value = pickle.loads(self.store.bytes_of(known))
        except Exception as error:
            self._fail(future, JobError(f"the result cannot be read: {type(error).__name__}: {error}"))
            return
        if not future.done():
            future._call = None
            future.set_result(value)

    def _fail(self, future: Future[Any], error: BaseException) -> None:
        if not future.done():
            future.set_exception(error)

    # --- Looking after jobs

    def _check(self, batch: _Batch) -> None:
        """Asks the server about the jobs of a batch: what failed is recovered or told, what died is started again."""
        connection = self._create(batch)
        if connection is None:
            return
        assert batch.workflow is not None
        try:
            status = connection.request("GET", f"/workflows/{batch.workflow}/status")
        except ApiError as error:
            if error.status == 404:
                self._drop(batch, Canceled("its workflow was deleted"))
                return
            raise
        self.engine.reap()
        if not status["is_complete"] and batch.workflow not in self.engine.runners:
            if status["active_runners"] == 0 or batch.slurm:
                self.engine.runner(batch.workflow, batch.recover, batch.slurm, [])
        # Results that were there when the server answered are read before they are judged.
        self._read(batch)
        counts = status["counts"]
        ended = {name: counts.get(name, 0) for name in ("completed", "failed", "canceled", "terminated", "disabled")}
        # Jobs that ended and are not settled here yet; a recovered one may end again.
        if sum(ended.values()) > len(batch.jobs) - len(batch.open):
            self._judge(batch, connection, ended)
        if not batch.open and status["is_complete"]:
            with self.lock:
                self.store.end_batch(batch.id)
                self.batches.pop(batch.id, None)
            self._clean(connection, batch.workflow)

    def _drop(self, batch: _Batch, error: TorcError) -> None:
        """Ends a batch that cannot go on."""
        for name in batch.calls:
            future = self.futures.get(name)
            if future is not None and name not in batch.returned:
                self._fail(future, error)
        with self.lock:
            self.store.end_batch(batch.id)
            self.batches.pop(batch.id, None)

    def _clean(self, connection: Connection, newest: int) -> None:
        """Deletes the workflow that is the oldest beyond those that are kept, and its logs."""
        oldest = newest - KEPT_WORKFLOWS
        if oldest < 1 or any(batch.workflow == oldest for batch in self.batches.values()):
            return
        try:
            connection.request("DELETE", f"/workflows/{oldest}")
        except ApiError as error:
            if error.unreachable:
                raise
            return  # it is gone, or it runs again because a person wanted it
        logs = os.path.join(self.root, "output", "job_stdio")
        for name in os.listdir(logs) if os.path.isdir(logs) else ():
            if name.startswith(f"job_wf{oldest}_"):
                os.unlink(os.path.join(logs, name))

    def _judge(self, batch: _Batch, connection: Connection, ended: dict[str, int]) -> None:
        """Ends the calls of jobs that ended."""
        bad: list[dict[str, Any]] = []
        for state in ("completed", "failed", "terminated", "canceled", "disabled"):
            if not ended[state]:
                continue
            after = 0
            while True:
                query = {"workflow_id": batch.workflow, "status": state, "after": after, "limit": 5000}
                page = connection.request("GET", "/jobs", query)["items"]
                for job in page:
                    if job["name"] not in batch.open:
                        continue
                    if state == "completed":
                        self._completed(batch, job["name"])
                    else:
                        bad.append(job)
                if len(page) < 5000:
                    break
                after = page[-1]["id"]
        again: set[int] = set()
        tried = [job for job in bad if batch.recover and job["attempt_id"] <= RECOVERIES]
        tried = [job for job in tried if job["status"] in ("failed", "terminated")]
        tried = [job for job in tried if job["name"] not in batch.refused]
        if tried:
            body = {"job_ids": [job["id"] for job in tried], "by": "torcflow"}
            try:
                answer = connection.request("POST", f"/workflows/{batch.workflow}/recover", body=body)
            except ApiError as error:
                if error.code != "nothing_to_recover":
                    raise
                answer = {"jobs_to_retry": [], "reopened": [], "jobs": []}
            again = set(answer["jobs_to_retry"]) | set(answer["reopened"])
            # A job that is not in the answer has been recovered by `torc watch` meanwhile.
            looked_at = {job["job_id"] for job in answer["jobs"]}
            again |= {job["id"] for job in tried if job["id"] not in looked_at}
        for job in bad:
            if job["id"] not in again:
                self._failed(batch, connection, job)

    def _completed(self, batch: _Batch, job: str) -> None:
        batch.open.discard(job)
        left = batch.unanswered(job)
        if left:
            self._requeue(batch, left, "its job completed without a result of the call")

    def _failed(self, batch: _Batch, connection: Connection, job: dict[str, Any]) -> None:
        """A job that stays as it is: calls that raised or were running end, those that never began run again."""
        name = job["name"]
        left = batch.unanswered(name)
        batch.open.discard(name)
        if not left:
            return
        why = connection.request("GET", f"/jobs/{job['id']}/why")
        attempt = why.get("attempt") or {}
        over: list[bytes] = []
        for call in left:
            record = batch.last.get(call)
            future = self.futures.get(call)
            error: Optional[BaseException] = None
            if name in batch.refused:
                error = pickle.loads(batch.refused[name])
            elif record is not None and record.state == _segment.RAISED:
                error = _remote_error(record.payload)
            elif record is not None and record.state == _segment.TIMED_OUT:
                error = TimeLimit(f"it ran longer than its limit of {record.seconds:g} s", name, record.seconds)
            elif record is not None:
                error = _cause_error(name, why, attempt)
            if error is not None:
                over.append(call)
                if future is not None:  # for `reproduce`, which outlives the batch
                    future._call = self._call_again(batch, call, 0)
                _annotate(error, name, job["id"], attempt, why)
                if future is not None:
                    self._fail(future, error)
        waiting = [call for call in left if call not in set(over)]
        if waiting and job["status"] == "canceled":
            rest = []
            for call in waiting:
                future = self.futures.get(call)
                bad = self._failed_need(batch, call)
                if bad is None and job.get("status_reason") is not None and self._needs(batch, call):
                    rest.append(call)  # its own arguments are well: another call of that job failed
                    continue
                over.append(call)
                if future is not None:
                    self._fail(future, _dependency_failed(bad) if bad is not None else _cause_error(name, why, attempt))
            waiting = rest
        elif waiting and not over:
            # Nothing ever began: the job itself cannot run.
            for call in waiting:
                future = self.futures.get(call)
                over.append(call)
                if future is not None:
                    error = _cause_error(name, why, attempt)
                    _annotate(error, name, job["id"], attempt, why)
                    self._fail(future, error)
            waiting = []
        if over:
            self.store.drop_pending(over)
            for call in over:
                batch.calls.pop(call, None)
                batch.last.pop(call, None)
        if waiting:
            self._requeue(batch, waiting, "its job ended before the call began")

    def _read_job(self, batch: _Batch, call: bytes) -> tuple[dict[str, Any], dict[str, Any], Any]:
        """Header, job and entry of a call in its batch."""
        job = batch.calls[call].job
        if self.last_job is not None and self.last_job[0] == (batch.id, job):
            header, payload = self.last_job[1:]
            return header, payload, payload["calls"][batch.calls[call].place]
        with open(os.path.join(self.root, "batches", batch.id), "rb") as file:
            header, start = _segment.read_batch(file)
            payload = _segment.read_job(file, header, start, int(job.rpartition("-")[2]))
        self.last_job = ((batch.id, job), header, payload)
        return header, payload, payload["calls"][batch.calls[call].place]

    def _needs(self, batch: _Batch, call: bytes) -> list[bytes]:
        return list(self._read_job(batch, call)[1]["values"])

    def _failed_need(self, batch: _Batch, call: bytes) -> Optional[Future[Any]]:
        for name in self._needs(batch, call):
            future = self.futures.get(name)
            if future is not None and future.done() and _went_badly(future):
                return future
        return None

    def _requeue(self, batch: _Batch, names: list[bytes], why: str) -> None:
        """Calls of a job that is over which have not run: they go into another batch."""
        again: list[Future[Any]] = []
        for name in names:
            future = self.futures.get(name)
            count = batch.requeues.get(name, 0) + 1
            if future is not None and not future.done():
                if count > REQUEUES:
                    self._fail(future, Lost(f"{why}, {count} times", batch.calls[name].job))
                else:
                    future._call = self._call_again(batch, name, count)
                    future._place = None
                    again.append(future)
        self.store.drop_pending(names)
        for name in names:
            batch.calls.pop(name, None)
        if again:
            with self.lock:
                self.queue += again
                self.first_at = self.last_at = -1.0
            self.wake()

    def _call_again(self, batch: _Batch, name: bytes, requeues: int) -> _Call:
        header, job, (_, index, arguments) = self._read_job(batch, name)
        with open(_segment.blob_path(self.root, header["functions"][index]), "rb") as file:
            pickled = file.read()
        function_name, title = header["titles"][index]
        function = _Function(function_name, title, pickled, header["modules"])
        needs = []
        for need in job["values"]:
            future = self.futures.get(need)
            if future is None:  # an argument of a call that an earlier process submitted
                future = self.futures[need] = Future(self, need, "call")
                known = self.store.known([need]).get(need)
                if known is None:
                    self._fail(future, Lost("the value of the call was forgotten"))
                else:
                    self._resolve(future, known)
            needs.append(future)
        return _Call(function, arguments, needs, Options(*job["options"])._replace(fresh=False), requeues)

    # --- What futures ask

    def _job_id(self, connection: Connection, place: tuple[int, str]) -> int:
        page = connection.request("GET", "/jobs", {"workflow_id": place[0], "name": place[1]})["items"]
        if not page:
            raise TorcError(f"job {place[1]} of workflow {place[0]} is not there any more")
        return int(page[0]["id"])

    def attempts(self, place: tuple[int, str]) -> list[Attempt]:
        connection = self.engine.server()
        rows = connection.request("GET", f"/jobs/{self._job_id(connection, place)}/attempts")["items"]
        return [
            Attempt(
                row["attempt_id"],
                row["state"],
                row.get("cause"),
                row.get("return_code"),
                row.get("hostname"),
                row.get("memory_bytes"),
                row.get("peak_memory_bytes"),
                row.get("exec_seconds"),
                row.get("decision"),
                row.get("error"),
            )
            for row in sorted(rows, key=lambda row: int(row["id"]))
        ]

    def why(self, place: tuple[int, str]) -> str:
        connection = self.engine.server()
        view = connection.request("GET", f"/jobs/{self._job_id(connection, place)}/why")
        lines = [f"{place[1]} (workflow {place[0]}): {view['summary']}"]
        if (view.get("diagnosis") or {}).get("summary"):
            lines.append(view["diagnosis"]["summary"])
        for change in view.get("adjustments") or []:
            lines.append(f"{change['field']} {change.get('from')} -> {change['to']}: {change['why']}")
        return "\n".join(lines + view["details"] + view["hints"])

    def logs(self, place: tuple[int, str], stream: str) -> str:
        connection = self.engine.server()
        view = connection.request("GET", f"/jobs/{self._job_id(connection, place)}/why")
        path = (view.get("attempt") or {}).get(f"{stream}_path")
        if not path or not os.path.exists(path):
            return ""
        with open(path, errors="replace") as file:
            return file.read()

    def recall(self, future: Future[Any]) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        """Function and arguments of a call."""
        if future._call is not None:
            call = future._call
            args, kwargs = pickle.loads(call.arguments)
            function = pickle.loads(call.function.pickled)
            values = {need._torcflow_name: need for need in call.needs}
        else:
            raise TorcError("the arguments of the call are not kept any more")
        return function, _fill(args, values), _fill(kwargs, values)

    # --- The end

    def unsent(self) -> bool:
        """Calls are on their way to the server."""
        with self.lock:
            held = {id(future) for future in self.held}
            return any(
                future._place is None and not future.done() and id(future) not in held
                for future in self.futures.values()
            )

    def wait_all(self) -> None:
        self.hurry()
        while True:
            with self.lock:
                left = [future for future in self.futures.values() if not future.done()]
            if not left:
                return
            concurrent.futures.wait(left)

    def shutdown(self, wait: bool, cancel_futures: bool) -> None:
        if cancel_futures:
            for future in list(self.futures.values()):
                if not future.done():
                    future.cancel()
        if not wait:
            return  # jobs and their server go on; the next client of the directory finds them
        self.wait_all()
        with self.lock:
            if self.closed:
                return
            self.closed = True
        self.wake()
        self.leave()

    def leave(self, seconds: Optional[float] = None) -> None:
        """Ends the monitor when every batch is over, stops the server, and removes our socket."""
        if self.thread is None:
            return
        end = None if seconds is None else time.monotonic() + seconds
        while self.thread.is_alive() and (end is None or time.monotonic() < end):
            self.wake()
            self.thread.join(0.05)
        _alive.discard(self)
        self._remove_socket()
        if not self.store.batches() and not self._others():
            self.engine.stop_server()

    def _remove_socket(self) -> None:
        self.left = True
        self.news.close()
        try:
            os.unlink(os.path.join(self.root, "clients", self.news_name))
        except FileNotFoundError:
            pass

    def _others(self) -> bool:
        """Another client lives. Sockets of dead ones are removed."""
        directory = os.path.join(self.root, "clients")
        for name in os.listdir(directory):
            pid = name.partition("-")[0]
            if pid.isdigit() and os.path.exists(f"/proc/{pid}"):
                return True
            try:
                os.unlink(os.path.join(directory, name))
            except FileNotFoundError:
                continue
        return False


_alive: weakref.WeakSet[_Core] = weakref.WeakSet()


def _at_exit() -> None:
    """Sends what was submitted and not sent yet: the script ends, the calls do not."""
    for core in list(_alive):
        deadline = time.monotonic() + 30.0
        core.hurry()
        while core.unsent() and core.broken is None and time.monotonic() < deadline:
            time.sleep(0.01)
        if all(future.done() for future in core.futures.values()):
            core.closed = True
            core.leave(LEAVE_SECONDS)  # nothing is left to do: the server ends as well
        else:
            core._remove_socket()


def _register_exit() -> None:
    import atexit

    atexit.register(_at_exit)


_register_exit()


def _cpus() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def _options(future: Future[Any]) -> Options:
    return future._call.options if future._call is not None else Options()


def _went_badly(future: Future[Any]) -> bool:
    return future.cancelled() or concurrent.futures.Future.exception(future, 0) is not None


def _dependency_failed(need: Future[Any]) -> DependencyFailed:
    if need.cancelled():
        reason: Any = "it was canceled"
    else:
        error = concurrent.futures.Future.exception(need, 0)
        reason = f"{type(error).__name__}: {error}"
    failed = DependencyFailed(f"its argument, the call of {need._title}, ended badly: {reason}", None, need)
    if not need.cancelled():
        failed.__cause__ = concurrent.futures.Future.exception(need, 0)
    return failed


def _remote_error(payload: bytes) -> BaseException:
    pickled, text = pickle.loads(payload)
    try:
        read = pickle.loads(pickled)
    except Exception as broken:
        read = JobError(f"it raised an exception that cannot be read here: {broken}")
    error: BaseException = read if isinstance(read, BaseException) else JobError(f"it raised {read!r}")
    error.__cause__ = RemoteTraceback(text)
    return error


def _cause_error(job: str, why: dict[str, Any], attempt: dict[str, Any]) -> JobError:
    """The error of a job that ended without a word of the call."""
    summary = attempt.get("error") or why["summary"]
    tail = attempt.get("stderr_tail")
    cause = attempt.get("cause")
    if cause == "oom":
        return OutOfMemory(summary, job, attempt.get("peak_memory_bytes"), attempt.get("memory_bytes"))
    if cause == "timeout":
        return TimeLimit(summary, job, attempt.get("time_limit_seconds"))
    if cause in ("lost", "preempted", "node_fail", "walltime", "stopped"):
        return Lost(summary, job)
    if cause == "canceled" or why["job"]["status"] == "canceled":
        return Canceled(summary, job)
    return JobError(f"{summary}\n{tail.strip()}" if tail else summary, job)


def _annotate(error: BaseException, job: str, job_id: int, attempt: dict[str, Any], why: dict[str, Any]) -> None:
    where = f" on {attempt['hostname']}" if attempt.get("hostname") else ""
    add_note(error, f"torc: job {job} (id {job_id}), attempt {attempt.get('attempt_id', 1)}{where}")
    if attempt.get("stderr_path"):
        add_note(error, f"torc: log {attempt['stderr_path']}")
    diagnosis = why.get("diagnosis") or {}
    sentence = diagnosis.get("summary") or why["summary"]
    if isinstance(sentence, str):
        add_note(error, f"torc: {sentence}")


def _attempt_order(file: str) -> tuple[str, list[int]]:
    job, _, attempt = file.rpartition(".")
    return job, [int(part) for part in attempt.split("-") if part.isdigit()]


def _safe(title: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]+", "", title)[:80] or "call"


_FAST = frozenset({int, float, str, bool, type(None), bytes})


def _dump(value: Any) -> bytes:
    """Pickled; what plain pickle takes by reference to `__main__` goes by value."""
    args, kwargs = value if type(value) is tuple and len(value) == 2 else ((value,), {})
    if type(args) is tuple and not kwargs and all(type(item) in _FAST for item in args):
        return pickle.dumps(value, protocol=4)
    import cloudpickle

    pickled: bytes = cloudpickle.dumps(value, protocol=5)
    return pickled


def _has_future(value: Any) -> bool:
    kind = type(value)
    if kind is Future:
        return True
    if kind is list or kind is tuple:
        return any(_has_future(item) for item in value if type(item) not in _FAST)
    if kind is dict:
        return any(_has_future(item) for item in value.values() if type(item) not in _FAST)
    return False


def _strip(value: Any, needs: list[Future[Any]]) -> Any:
    """`value` with references in the place of futures, which are collected."""
    kind = type(value)
    if kind is Future:
        if value not in needs:
            needs.append(value)
        return _segment.Reference(value._torcflow_name)
    if kind is list:
        return [_strip(item, needs) for item in value]
    if kind is tuple:
        return tuple(_strip(item, needs) for item in value)
    if kind is dict:
        return {key: _strip(item, needs) for key, item in value.items()}
    return value


def _fill(value: Any, futures: Mapping[bytes, Future[Any]]) -> Any:
    kind = type(value)
    if kind is _segment.Reference:
        return futures[value.name].result()
    if kind is list:
        return [_fill(item, futures) for item in value]
    if kind is tuple:
        return tuple(_fill(item, futures) for item in value)
    if kind is dict:
        return {key: _fill(item, futures) for key, item in value.items()}
    return value


def _resolved(value: Any) -> Any:
    """`value` with the results of futures in their place."""
    kind = type(value)
    if kind is Future:
        return value.result()
    if kind is list:
        return [_resolved(item) for item in value]
    if kind is tuple:
        return tuple(_resolved(item) for item in value)
    if kind is dict:
        return {key: _resolved(item) for key, item in value.items()}
    return value


def _bad_argument(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[str], Any]:
    named = [([f"argument {place + 1}"], item) for place, item in enumerate(args)]
    named += [([f"argument {name!r}"], item) for name, item in kwargs.items()]
    for path, item in named:
        try:
            _dump(((item,), {}))
        except Exception:
            return path, item
    return ["argument"], (args, kwargs)


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
        by_value: Iterable[Any] = (),
        **options: Any,
    ) -> None:
        if backend not in BACKENDS:
            raise ValueError(f"`backend` is {backend!r}; it is one of {', '.join(BACKENDS)}")
        wishes = Options().changed(options)
        if backend == "auto":
            import shutil

            backend = "slurm" if shutil.which("sbatch") else "local"
        slurm = {"account": account, "partition": partition}
        self._core = _Core(name, directory or default_directory(), backend, max_store, slurm)
        self._options = wishes
        self._owner = True
        for module in by_value:
            import cloudpickle

            cloudpickle.register_pickle_by_value(module)
            self._core.by_value.add(module.__name__.split(".")[0])

    @classmethod
    def _view(cls, core: _Core, options: Options) -> Executor:
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
        return None if self._core.backend == "debug" else self._core.engine.server().url

    def client(self) -> Client:
        """A `torcflow.Client` of its server."""
        from ._api import Client

        return Client(connection=self._core.engine.server())

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
        except BaseException:
            with core.lock:
                for future in new:
                    core.futures.pop(future._torcflow_name, None)
            raise
        if new:
            core.submit(new, at_once)
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
        rows = frame.to_dict("records")
        futures = self._submit(fn, [((), {str(name): value for name, value in row.items()}) for row in rows], True)
        concurrent.futures.wait(futures)
        values, states, errors = [], [], []
        for future in futures:
            error = None if future.cancelled() else future.exception()
            values.append(None if future.cancelled() or error is not None else future.result())
            states.append("canceled" if future.cancelled() else "failed" if error is not None else "done")
            errors.append(None if error is None else f"{type(error).__name__}: {error}")
        new: pandas.DataFrame = frame.copy()
        new[result] = values
        new["torc_status"] = states
        new["torc_error"] = errors
        return new

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
                bad = _went_badly(future)
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
            if future.done() and _went_badly(future):
                error: Any = None if future.cancelled() else future.exception()
                lines = str(error).splitlines() or [""]
                title = "canceled" if error is None else f"{type(error).__name__}: {lines[0]}".rstrip(": ")
                groups.setdefault(title, []).append(future)
        return groups

    def dataframe(self) -> pandas.DataFrame:
        """Calls as a frame: function, status, result, error, and the time they took."""
        import pandas

        rows = []
        for future in self.futures:
            bad = future.done() and _went_badly(future)
            error = future.exception() if bad and not future.cancelled() else None
            state = "waiting" if not future.done() else "canceled" if future.cancelled() else "failed" if bad else "done"
            if state == "waiting" and future.running():
                state = "running"
            rows.append(
                {
                    "name": future.name,
                    "function": future._title,
                    "status": state,
                    "result": future.result() if state == "done" else None,
                    "error": None if error is None else f"{type(error).__name__}: {error}",
                    "workflow": future.job[0] if future.job else None,
                    "job": future.job[1] if future.job else None,
                }
            )
        if self._core.backend != "debug":
            known = self._core.store.known([future._torcflow_name for future in self.futures])
            for row, future in zip(rows, self.futures):
                value = known.get(future._torcflow_name)
                row["seconds"] = None if value is None else value.seconds
        frame: pandas.DataFrame = pandas.DataFrame(rows)
        return frame

    def forget(self) -> int:
        """Deletes the stored results; how many there were."""
        return 0 if self._core.backend == "debug" else self._core.store.forget()

    def watch(self, interval: float = 0.5) -> None:
        """Shows progress until every call has ended: one live display in a notebook, plain lines elsewhere."""
        from ._display import watch

        self._core.hurry()
        watch(self, interval)

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


def _debug(core: _Core, fn: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Future[T]:
    """Runs a call here and now."""
    function = getattr(fn, "__wrapped_call__", fn)
    future: Future[T] = Future(None, uuid.uuid4().bytes + bytes(4), getattr(function, "__name__", "call"))
    core.futures[future._torcflow_name] = future
    future.set_running_or_notify_cancel()
    future._recall = lambda: cast(T, function(*_resolved(args), **_resolved(kwargs)))
    try:
        for need in _futures_in((args, kwargs)):
            if need.done() and _went_badly(need):
                raise _dependency_failed(need)
        future.set_result(future._recall())
    except Exception as error:
        future.set_exception(error)
    return future


def _futures_in(value: Any) -> list[Future[Any]]:
    needs: list[Future[Any]] = []
    _strip(value, needs)
    return needs


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
