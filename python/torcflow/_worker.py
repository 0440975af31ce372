"""Runs the calls of one job, inside the job: `python _worker.py DIRECTORY BATCH INDEX`.

Each result is appended to the attempt's segment as it ends; an attempt that follows a killed one runs only the
calls that have no value yet. The exit code is 0 when every call that was run returned.
"""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":
    # The directory of this file is first on the path of a script; its modules are not top-level ones.
    del sys.path[0]
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import pickle
import signal
import socket
import threading
import time
from typing import Any, Optional

from torcflow import _context, _segment

# Larger values become files of their own, named by their content.
INLINE_BYTES = 32 << 10
# Results of calls that took at least this long are forced to disk one by one, others with the end of the job.
SYNC_SECONDS = 1.0
# A client is told of new results at most this often.
NEWS_SECONDS = 0.02
EXIT_RAISED = 1
EXIT_REFUSED = 3
EXIT_TIME = 124
# What the watchdog cannot end, because it does not get the interpreter's lock, the kernel ends this much later.
ALARM_SECONDS = 1.0


class News:
    """Tells clients on this host that a segment has grown. A message that gets lost costs them a second."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.setblocking(False)
        self.last = 0.0

    def tell(self, now: float, urgent: bool = False) -> bool:
        """Sends the news; whether any client lives."""
        if not urgent and now - self.last < NEWS_SECONDS:
            return True
        self.last = now
        heard = False
        try:
            names = os.listdir(self.directory)
        except OSError:
            return False
        for name in names:
            try:
                # A path relative to the directory, because addresses of sockets are short.
                self.socket.sendto(b".", f"/proc/self/fd/{self._handle()}/{name}")
                heard = True
            except BlockingIOError:
                heard = True  # its buffer is full of news
            except OSError:
                continue
        return heard

    def _handle(self) -> int:
        handle = getattr(self, "_fd", None)
        if handle is None:
            handle = os.open(self.directory, os.O_RDONLY)
            self._fd = handle
        return int(handle)


class Watchdog(threading.Thread):
    """Ends the process when a call runs longer than its limit, with a record that says so.

    A call that saves its state (`on_stop`) is told to and has the grace period for it; its job is queued again then.
    This thread needs the interpreter's lock, which a call in native code may hold; then the kernel's timer ends the process
    `ALARM_SECONDS` later, by SIGALRM.
    """

    def __init__(self, segment: int, limit: float, grace: float, news: News) -> None:
        super().__init__(daemon=True)
        self.grace = grace
        self.segment = segment
        self.limit = limit
        self.news = news
        self.changed = threading.Condition()
        self.call: Optional[bytes] = None
        self.deadline = 0.0

    def begin(self, name: bytes) -> None:
        with self.changed:
            self.call = name
            self.deadline = time.monotonic() + self.limit
            self.changed.notify()
        signal.setitimer(signal.ITIMER_REAL, self.limit + self.grace + ALARM_SECONDS)

    def end(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        with self.changed:
            self.call = None
            self.changed.notify()

    def run(self) -> None:
        with self.changed:
            while True:
                left = self.deadline - time.monotonic() if self.call is not None else None
                if left is None or left > 0:
                    self.changed.wait(left)
                    continue
                if _context.saves():
                    # To the main thread: a system call that it waits in must end, so that the handler can run.
                    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
                    call, end = self.call, time.monotonic() + self.grace
                    while self.call == call and time.monotonic() < end:
                        self.changed.wait(end - time.monotonic())
                    if self.call != call:
                        continue  # it returned in the last moment
                import faulthandler

                print(f"torcflow: the call ran longer than its limit of {self.limit:g} s; it was here:", file=sys.stderr)
                sys.stderr.flush()
                faulthandler.dump_traceback(all_threads=True)
                assert self.call is not None
                record = _segment.pack(_segment.TIMED_OUT, self.call, self.limit, pickle.dumps(self.limit))
                os.write(self.segment, record)
                os.fsync(self.segment)
                self.news.tell(time.monotonic(), urgent=True)
                os._exit(EXIT_TIME)


def _refuse(segment: int, error: BaseException) -> int:
    print(f"torcflow: {error}", file=sys.stderr)
    os.write(segment, _segment.pack(_segment.REFUSED, _segment.NO_CALL, 0.0, pickle.dumps(error)))
    os.fsync(segment)
    return EXIT_REFUSED


def _changed(header: dict[str, Any]) -> Optional[str]:
    """What is not as it was when the calls were submitted."""
    here = "%d.%d" % sys.version_info[:2]
    if header["python"] != here:
        return f"the calls were submitted with Python {header['python']}, but {sys.executable} is Python {here}"
    from torcflow._naming import source_digest

    for name, (file, digest) in header["modules"].items():
        try:
            same = source_digest(file) == digest
        except OSError as error:
            return f"module {name!r} cannot be read any more: {error}"
        if not same:
            return f"module {name!r} ({file}) has changed since the calls were submitted; submit them again"
    return None


def _raised(error: BaseException) -> bytes:
    """The exception and its traceback, whatever of it can be pickled."""
    import traceback

    trace = error.__traceback__
    # The first frame is the worker's own.
    text = "".join(traceback.format_exception(type(error), error, trace.tb_next if trace else None))
    try:
        import cloudpickle

        pickled = cloudpickle.dumps(error)
        pickle.loads(pickled)  # some exceptions can be written but not read
    except Exception:
        from torcflow._errors import JobError

        pickled = pickle.dumps(JobError(f"{type(error).__module__}.{type(error).__qualname__}: {error}"))
    return pickle.dumps((pickled, text))


class Values:
    """Values of other calls that are arguments of ours."""

    def __init__(self, root: str, segments: str, sources: dict[bytes, tuple[str, Any]]) -> None:
        self.root = root
        self.segments = segments
        self.sources = sources

    def get(self, name: bytes) -> Any:
        kind, what = self.sources[name]
        if kind == "inline":
            return pickle.loads(what)
        if kind == "blob":
            return pickle.loads(self._blob(what))
        for record in done_records(self.segments, what):
            if record.name == name:
                return pickle.loads(
                    record.payload if record.state == _segment.DONE else self._blob(record.payload.decode())
                )
        raise LookupError(f"the value of call {name.hex()} is not there although its job {what} has completed")

    def _blob(self, digest: str) -> bytes:
        with open(_segment.blob_path(self.root, digest), "rb") as file:
            return file.read()

    def fill(self, value: Any) -> Any:
        """`value` with values in the place of references, inside plain collections."""
        kind = type(value)
        if kind is _segment.Reference:
            return self.get(value.name)
        if kind is list:
            return [self.fill(item) for item in value]
        if kind is tuple:
            return tuple(self.fill(item) for item in value)
        if kind is dict:
            return {key: self.fill(item) for key, item in value.items()}
        return value


def done_records(segments: str, job: str) -> list[_segment.Record]:
    """The values that earlier attempts of a job left."""
    found = []
    for name in sorted(os.listdir(segments)):
        if name.rpartition(".")[0] == job:
            with open(os.path.join(segments, name), "rb") as file:
                found += [
                    record
                    for record in _segment.records(file.read())
                    if record.state in (_segment.DONE, _segment.STORED)
                ]
    return found


def main(root: str, batch: str, index: int) -> int:
    with open(os.path.join(root, "batches", batch), "rb") as file:
        header, start = _segment.read_batch(file)
        job = _segment.read_job(file, header, start, index)
    segments = os.path.join(root, "segments", batch)
    os.makedirs(segments, mode=0o700, exist_ok=True)
    done = {record.name for record in done_records(segments, job["name"])}
    # A new file for every attempt: a torn record at the end of an older one stays alone.
    attempt = f"{os.environ.get('TORC_RUN_ID', '1')}-{os.environ.get('TORC_ATTEMPT_ID', '1')}-{os.getpid()}"
    path = os.path.join(segments, f"{job['name']}.{attempt}")
    segment = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    news = News(os.path.join(root, "clients"))

    sys.path[:] = header["sys_path"]
    difference = _changed(header)
    if difference is not None:
        from torcflow._errors import Changed

        return _refuse(segment, Changed(difference))
    functions: dict[int, Any] = {}
    watchdog: Optional[Watchdog] = None
    if job["time"] is not None:
        watchdog = Watchdog(segment, job["time"], header["grace"], news)
        watchdog.start()
    code = 0
    began = time.monotonic()
    values = Values(root, segments, job["values"])
    for name, function_index, arguments in job["calls"]:
        if name in done:
            continue
        now = time.monotonic()
        if job["budget"] is not None and now - began > job["budget"] and news.tell(now, urgent=True):
            break  # a client lives: it makes jobs of a better size of the rest
        deadline = None if watchdog is None else time.monotonic() + watchdog.limit
        _context.begin_call(os.path.join(root, "checkpoints", name.hex()), deadline)
        os.write(segment, _segment.pack(_segment.BEGUN, name))
        started = time.perf_counter()
        if watchdog is not None:
            watchdog.begin(name)
        try:
            function = functions.get(function_index)
            if function is None:
                with open(_segment.blob_path(root, header["functions"][function_index]), "rb") as file:
                    function = functions[function_index] = pickle.load(file)
            args, kwargs = pickle.loads(arguments)
            if job["values"]:
                args, kwargs = values.fill(args), values.fill(kwargs)
            value = function(*args, **kwargs)
            try:
                payload = pickle.dumps(value, protocol=5) if _plain(value) else _cloud(value)
            except Exception as error:
                from torcflow._naming import explain

                raise explain(error, "the result", value, ["result"]) from error
            state = _segment.DONE
        except (Exception, SystemExit) as error:
            state, payload, code = _segment.RAISED, _raised(error), EXIT_RAISED
            print(pickle.loads(payload)[1], file=sys.stderr, end="")
        if watchdog is not None:
            watchdog.end()
        seconds = time.perf_counter() - started
        if state == _segment.DONE and len(payload) > INLINE_BYTES:
            state, payload = _segment.STORED, _segment.write_blob(root, payload).encode()
        os.write(segment, _segment.pack(state, name, seconds, payload))
        if seconds >= SYNC_SECONDS:
            os.fsync(segment)
        _context.end_call(state != _segment.RAISED)
        news.tell(time.monotonic())
    sys.stdout.flush()
    sys.stderr.flush()
    os.fsync(segment)
    news.tell(time.monotonic(), urgent=True)
    return code


def _plain(value: Any) -> bool:
    return type(value) in (int, float, str, bool, type(None), bytes)


def _cloud(value: Any) -> bytes:
    import cloudpickle

    pickled: bytes = cloudpickle.dumps(value, protocol=5)
    return pickled


if __name__ == "__main__":
    try:
        end = main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    except KeyboardInterrupt:
        end = 130
    # Threads that a call left behind do not keep the job.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(end)
