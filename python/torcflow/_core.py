"""What all views of one executor share: the calls, the store, and the processes that work for them.

Threads of the user add calls and ask about them. One thread per executor (the *monitor*) does everything that blocks.
Everything it needs after a crash is on disk before the server hears of a batch, so a client that starts again goes on
where the last one stopped.
"""

from __future__ import annotations

import concurrent.futures
import os
import pickle
import re
import socket
import threading
import time
import weakref
from typing import Any, Callable, Optional

from . import _naming, _segment
from ._arguments import bad_argument, dump, fill, has_future, strip
from ._batch import Batch
from ._engine import Engine, program
from ._errors import Canceled, JobError, NotPicklable, TorcError
from ._future import Attempt, Call, Function, Future, went_badly
from ._http import ApiError, Connection
from ._options import Options
from ._store import Known, Store, parse_bytes

# A script that ends without `shutdown` waits this long for the server to hear of its last jobs.
LEAVE_SECONDS = 3.0
# ... and this long for the calls to be sent that it submitted last.
SEND_SECONDS = 30.0
# A client of another host that gave no sign of life for so long is dead; it gives one every `LIFE_SECONDS`.
DEAD_SECONDS = 600.0
LIFE_SECONDS = 60.0
# Flags of code, as the module `inspect` has them, which takes long to import.
_GENERATOR = 0x20 | 0x200
_COROUTINE = 0x80


class Core:
    """What all views of one executor share."""

    def __init__(
        self, name: str, directory: str, backend: str, limit: Any, slurm: dict[str, Any], grace_seconds: float
    ) -> None:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name):
            raise ValueError(f"{name!r} is no name of an executor: letters, digits, '.', '_' and '-' only")
        self.name = name
        self.backend = backend
        self.slurm = slurm
        self.grace_seconds = grace_seconds
        self.root = os.path.join(os.path.abspath(directory), name)
        self.lock = threading.RLock()
        self.futures: dict[bytes, Future[Any]] = {}
        # Calls that wait for others before they are sent together, since when, and until when.
        self.queue: list[Future[Any]] = []
        self.first_at = 0.0
        self.last_at = 0.0
        # Calls whose arguments are calls of a batch that has not ended.
        self.held: list[Future[Any]] = []
        self.batches: dict[str, Batch] = {}
        # `shutdown` was called: nothing new is taken.
        self.refusing = False
        # ... and waited for: the monitor ends with the last batch.
        self.closed = False
        self.broken: Optional[BaseException] = None
        self.functions: dict[Any, tuple[Any, Function]] = {}
        self.by_value: set[str] = set()
        self.known_before = 0
        self.thread: Optional[threading.Thread] = None
        self.left = False
        if backend == "debug":
            return
        program()  # a missing program is told here and not by the monitor
        self.store = Store(self.root, None if limit is None else parse_bytes(limit))
        self.engine = Engine(self.root, backend == "slurm")
        self._open_socket()
        self.store.clean()
        for id, spec, slurm_batch, recover in self.store.batches():
            self.adopt(id, spec, slurm_batch, recover)
        from ._monitor import Monitor

        self.thread = threading.Thread(target=Monitor(self).run, name=f"torcflow {self.name}", daemon=True)
        self.thread.start()
        _alive.add(self)

    def _open_socket(self) -> None:
        """The socket for news of workers, and the pipe by which other threads wake the monitor."""
        self.news = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.news.setblocking(False)
        handle = os.open(os.path.join(self.root, "clients"), os.O_RDONLY)
        self.news_name = f"{os.getpid()}-{os.urandom(4).hex()}-{socket.gethostname()}"
        try:
            # A path through the directory's handle, because addresses of sockets are short.
            self.news.bind(f"/proc/self/fd/{handle}/{self.news_name}")
        finally:
            os.close(handle)
        self.wake_read, self.wake_write = os.pipe()
        os.set_blocking(self.wake_write, False)
        os.set_blocking(self.wake_read, False)

    # --- Calls come in

    def wake(self) -> None:
        """Lets the monitor look."""
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

    def enqueue(self, futures: list[Future[Any]]) -> None:
        """Calls that were held or come back are sent with the monitor's next turn."""
        if futures:
            with self.lock:
                self.queue += futures
                self.first_at = self.last_at = -1.0
            self.wake()

    def _any_unknown(self, futures: list[Future[Any]]) -> bool:
        """Whether a call has neither a value nor a batch that it is in."""
        names = [future._torcflow_name for future in futures]
        return not set(names) <= self.store.known(names).keys() | self.store.pending(names).keys()

    def submit(self, futures: list[Future[Any]], at_once: bool = False) -> None:
        """Takes new calls."""
        with self.lock:
            if self.refusing:
                raise RuntimeError("cannot schedule new futures after shutdown")
            if self.broken is not None:
                raise TorcError(f"the executor's thread has ended: {self.broken}") from self.broken
            if self.backend == "slurm" and not self.slurm["account"] and self._any_unknown(futures):
                raise ValueError(
                    "the calls would go to Slurm, and no account was named that pays: give the executor `account=...` or "
                    "set SBATCH_ACCOUNT; `backend='local'` runs them on this machine"
                )
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

    def function(self, function: Callable[..., Any]) -> Function:
        """The function as it travels; looked at once per executor."""
        function = getattr(function, "__wrapped_call__", function)
        found = self.functions.get(id(function))
        if found is not None and found[0] is function:
            return found[1]
        import cloudpickle

        title = getattr(function, "__name__", type(function).__name__)
        path = [f"function {getattr(function, '__qualname__', title)!r}"]
        _refuse_lazy(function, path[0])
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
        made = Function(name, title, pickled, files)
        self.functions[id(function)] = (function, made)
        return made

    def future(
        self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any], options: Options
    ) -> tuple[Future[Any], bool]:
        """The future of a call, and whether it is new here."""
        needs: list[Future[Any]] = []
        if has_future(args) or has_future(kwargs):
            args = strip(args, needs)
            kwargs = strip(kwargs, needs)
        try:
            name = _naming.call_name(function.name, args, kwargs, options.key)
            pickled = dump((args, kwargs))
        except Exception as error:
            if isinstance(error, NotPicklable):
                raise
            path, value = bad_argument(args, kwargs)
            raise _naming.explain(error, "the argument", value, path) from error
        if not options.cache:
            name = os.urandom(_segment.NAME_BYTES)
        with self.lock:
            known = self.futures.get(name)
            if known is not None and not (known.done() and (options.fresh or went_badly(known))):
                return known, False
            new: Future[Any] = Future(self, name, function.title)
            new._call = Call(function, pickled, needs, options)
            self.futures[name] = new
        return new, True

    def cancel(self, future: Future[Any]) -> bool:
        """Cancels a call, where that is still possible."""
        with self.lock:
            if future.done():
                return future.cancelled()
            if future in self.queue or future in self.held:
                return self._cancel_unsent({id(future)})
            alone = None
            for batch in self.batches.values():
                call = batch.calls.get(future._torcflow_name)
                if call is not None and len(batch.unanswered(call.job)) == 1 and batch.workflow is not None:
                    alone = (batch.workflow, call.job)
        if alone is not None:
            connection = self.connection()
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
                self.fail(future, Canceled("canceled by `Future.cancel`", alone[1] if alone else None))
                return True
            return future._cancel_here()

    def _cancel_unsent(self, chosen: set[int]) -> bool:
        """Cancels calls that the server has not heard of; whether there were any. Called with the lock held."""
        mine = [one for one in self.queue + self.held if id(one) in chosen]
        self.queue = [one for one in self.queue if id(one) not in chosen]
        self.held = [one for one in self.held if id(one) not in chosen]
        return [one._cancel_here() for one in mine].count(True) > 0

    # --- Answers

    def adopt(self, id: str, spec: str, slurm: bool, recover: bool) -> Batch:
        """Looks after a batch that is written down."""
        batch = Batch(self.root, id, spec, slurm, recover, self.store.pending_of(id))
        with self.lock:
            self.batches[id] = batch
        return batch

    def resolve(self, future: Future[Any], known: Known) -> None:
        """Ends a call with its value."""
        try:
            value = pickle.loads(self.store.bytes_of(known))
        except Exception as error:
            self.fail(future, JobError(f"the result cannot be read: {type(error).__name__}: {error}"))
            return
        if not future.done():
            future._call = None
            future.set_result(value)

    def fail(self, future: Future[Any], error: BaseException) -> None:
        """Ends a call with an exception."""
        if not future.done():
            future.set_exception(error)

    # --- What futures ask

    def connection(self) -> Connection:
        """The server, for questions of threads of the user. One that is started after `shutdown` ends with the process."""
        found = self.engine.server()
        if self.left:
            _asked_later.add(self)
        return found

    def _job_id(self, connection: Connection, place: tuple[int, str]) -> int:
        page = connection.request("GET", "/jobs", {"workflow_id": place[0], "name": place[1]})["items"]
        if not page:
            raise TorcError(f"job {place[1]} of workflow {place[0]} is not there any more")
        return int(page[0]["id"])

    def attempts(self, place: tuple[int, str]) -> list[Attempt]:
        """The attempts of a job, oldest first."""
        connection = self.connection()
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
        """What the server says of a job."""
        connection = self.connection()
        view = connection.request("GET", f"/jobs/{self._job_id(connection, place)}/why")
        lines = [f"{place[1]} (workflow {place[0]}): {view['summary']}"]
        if (view.get("diagnosis") or {}).get("summary"):
            lines.append(view["diagnosis"]["summary"])
        for change in view.get("adjustments") or []:
            lines.append(f"{change['field']} {change.get('from')} -> {change['to']}: {change['why']}")
        return "\n".join(lines + view["details"] + view["hints"])

    def logs(self, place: tuple[int, str], stream: str) -> str:
        """What the last attempt of a job wrote."""
        connection = self.connection()
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
        return function, fill(args, values), fill(kwargs, values)

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
        """Until every call has ended."""
        self.hurry()
        while True:
            with self.lock:
                left = [future for future in self.futures.values() if not future.done()]
            if not left:
                return
            concurrent.futures.wait(left)

    def shutdown(self, wait: bool, cancel_futures: bool) -> None:
        """Takes no more calls; with `wait`, ends with the last one and stops the server."""
        with self.lock:
            self.refusing = True
        if cancel_futures:
            with self.lock:
                self._cancel_unsent({id(future) for future in self.queue + self.held})
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
        self.remove_socket()
        self.stop_server()

    def stop_server(self) -> None:
        """Stops the server unless it has something to do, or another client uses it."""
        if not self.store.batches() and not self.others():
            self.engine.stop_server()

    def remove_socket(self) -> None:
        """Workers have no news for this process any more."""
        self.left = True
        self.news.close()
        try:
            os.unlink(os.path.join(self.root, "clients", self.news_name))
        except FileNotFoundError:
            pass

    def others(self) -> bool:
        """Another client lives. Sockets of dead ones are removed."""
        directory = os.path.join(self.root, "clients")
        for name in os.listdir(directory):
            if name == self.news_name:
                continue
            pid, _, host = name.split("-", 2)
            path = os.path.join(directory, name)
            try:
                # Of a client on another host only its last sign of life is known.
                here = host == socket.gethostname()
                if os.path.exists(f"/proc/{pid}") if here else time.time() - os.stat(path).st_mtime < DEAD_SECONDS:
                    return True
                os.unlink(path)
            except FileNotFoundError:
                continue
        return False

    def sign_of_life(self) -> None:
        """Tells clients on other hosts that this one lives."""
        os.utime(os.path.join(self.root, "clients", self.news_name))


_alive: weakref.WeakSet[Core] = weakref.WeakSet()
# Executors that are over and whose futures were asked about their jobs.
_asked_later: set[Core] = set()


def _refuse_lazy(function: Any, path: str) -> None:
    """Refuses functions whose calls return something that still has to be run: it cannot be sent back."""
    flags = getattr(getattr(function, "__code__", None), "co_flags", 0)
    if flags & (_GENERATOR):
        raise NotPicklable(path, "it is a generator, which cannot be sent to another process; return a list")
    if flags & _COROUTINE:
        raise NotPicklable(path, "it is a coroutine, which cannot be sent to another process; call `asyncio.run` in it")


def _at_exit() -> None:
    """Sends what was submitted and not sent yet: the script ends, the calls do not."""
    for core in list(_alive):
        deadline = time.monotonic() + SEND_SECONDS
        core.hurry()
        while core.unsent() and core.broken is None and time.monotonic() < deadline:
            time.sleep(0.01)
        if all(future.done() for future in core.futures.values()):
            core.refusing = core.closed = True
            core.leave(LEAVE_SECONDS)  # nothing is left to do: the server ends as well
        else:
            core.remove_socket()
    for core in _asked_later:
        core.stop_server()


def _register_exit() -> None:
    import atexit

    atexit.register(_at_exit)


_register_exit()
