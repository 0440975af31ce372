"""The results of an executor: an index in SQLite, which only clients write, and blobs.

Workers never open the index: they append to segments, which clients read into the index. A batch that a dead
client left is read by the next one.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from typing import Any, Iterable, NamedTuple, Optional

from . import _segment
from ._errors import TorcError

_SCHEMA = """
CREATE TABLE IF NOT EXISTS calls (          -- values of calls that returned
    name BLOB PRIMARY KEY,
    value BLOB,                             -- the pickled value, if it is small
    blob TEXT,                              -- else the blob that holds it
    bytes INTEGER NOT NULL,
    seconds REAL NOT NULL,
    function TEXT NOT NULL,
    title TEXT NOT NULL,
    used_at REAL NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS calls_by_use ON calls (used_at);
CREATE TABLE IF NOT EXISTS batches (        -- workflows whose results are not all in `calls` yet
    id TEXT PRIMARY KEY,
    spec TEXT NOT NULL,                     -- what is sent to the server
    slurm INTEGER NOT NULL,
    recover INTEGER NOT NULL,
    created_at REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS pending (        -- the calls of these
    name BLOB PRIMARY KEY,
    batch TEXT NOT NULL,
    job TEXT NOT NULL,
    place INTEGER NOT NULL,                 -- in its job
    function TEXT NOT NULL,
    title TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS pending_by_batch ON pending (batch);
CREATE TABLE IF NOT EXISTS times (          -- how long calls of a function take
    function TEXT PRIMARY KEY,
    calls INTEGER NOT NULL,
    seconds REAL NOT NULL
) WITHOUT ROWID;
"""
_VERSION = 1
# A batch is in the index moments after its file was written.
_ABANDONED_SECONDS = 3600.0
# SQLite takes this many variables in one statement in every version that Python is built with.
_MANY = 900


class Known(NamedTuple):
    """A value in the store."""

    value: Optional[bytes]
    blob: Optional[str]
    bytes: int
    seconds: float
    title: str


class Pending(NamedTuple):
    """A call that is part of a batch."""

    batch: str
    job: str
    place: int
    function: str
    title: str


class Store:
    """The directory of one executor."""

    def __init__(self, root: str, limit_bytes: Optional[int] = None) -> None:
        self.root = os.path.abspath(root)
        self.limit_bytes = limit_bytes
        for name in ("", "batches", "segments", "blobs", "clients", "checkpoints", "output"):
            path = os.path.join(self.root, name)
            os.makedirs(path, mode=0o700, exist_ok=True)
            if os.stat(path).st_uid != os.getuid():
                raise TorcError(f"{path} belongs to another user; results are unpickled, so that is refused")
            os.chmod(path, 0o700)
        self.lock = threading.RLock()
        # A rollback journal and not a write-ahead log: the directory may be on a network file system.
        self.database = sqlite3.connect(
            os.path.join(self.root, "index.db"), timeout=60.0, isolation_level=None, check_same_thread=False
        )
        self.database.execute("PRAGMA synchronous=FULL")
        version = self.database.execute("PRAGMA user_version").fetchone()[0]
        if version not in (0, _VERSION):
            raise TorcError(f"{self.root} was written by another version of torcflow (layout {version})")
        if version == 0:
            self.database.executescript(_SCHEMA + f"PRAGMA user_version={_VERSION};")

    def close(self) -> None:
        with self.lock:
            self.database.close()

    def known(self, names: Iterable[bytes]) -> dict[bytes, Known]:
        """The values of these calls, as far as they are there."""
        found: dict[bytes, Known] = {}
        wanted = list(names)
        with self.lock:
            for start in range(0, len(wanted), _MANY):
                part = wanted[start : start + _MANY]
                marks = ",".join("?" * len(part))
                for row in self.database.execute(
                    f"SELECT name, value, blob, bytes, seconds, title FROM calls WHERE name IN ({marks})", part
                ):
                    if row[2] is None or os.path.exists(_segment.blob_path(self.root, row[2])):
                        found[bytes(row[0])] = Known(*row[1:])
        return found

    def bytes_of(self, known: Known) -> bytes:
        """The pickled value."""
        if known.blob is None:
            return bytes(known.value or b"")
        with open(_segment.blob_path(self.root, known.blob), "rb") as file:
            return file.read()

    def pending(self, names: Iterable[bytes]) -> dict[bytes, Pending]:
        """Which of these calls are part of a batch already."""
        found: dict[bytes, Pending] = {}
        wanted = list(names)
        with self.lock:
            for start in range(0, len(wanted), _MANY):
                part = wanted[start : start + _MANY]
                marks = ",".join("?" * len(part))
                for row in self.database.execute(
                    f"SELECT name, batch, job, place, function, title FROM pending WHERE name IN ({marks})", part
                ):
                    found[bytes(row[0])] = Pending(*row[1:])
        return found

    def pending_of(self, batch: str) -> dict[bytes, Pending]:
        """The calls of a batch."""
        with self.lock:
            rows = self.database.execute(
                "SELECT name, batch, job, place, function, title FROM pending WHERE batch=?", (batch,)
            )
            return {bytes(row[0]): Pending(*row[1:]) for row in rows}

    def batches(self) -> list[tuple[str, str, bool, bool]]:
        """Batches that are not over: id, spec, slurm, recover."""
        with self.lock:
            rows = self.database.execute("SELECT id, spec, slurm, recover FROM batches ORDER BY created_at")
            return [(row[0], row[1], bool(row[2]), bool(row[3])) for row in rows]

    def has_batch(self, id: str) -> bool:
        """Whether a batch is not over."""
        with self.lock:
            return self.database.execute("SELECT 1 FROM batches WHERE id=?", (id,)).fetchone() is not None

    def add_batch(
        self, batch: str, spec: str, slurm: bool, recover: bool, calls: list[tuple[bytes, str, int, str, str]]
    ) -> bool:
        """Writes a batch down before it is sent. False if another client has one of its calls in a batch of its own."""
        with self.lock:
            self.database.execute("BEGIN IMMEDIATE")
            try:
                self.database.execute(
                    "INSERT INTO batches VALUES (?, ?, ?, ?, ?)", (batch, spec, slurm, recover, time.time())
                )
                self.database.executemany(
                    "INSERT INTO pending VALUES (?, ?, ?, ?, ?, ?)",
                    [(name, batch, job, place, function, title) for name, job, place, function, title in calls],
                )
            except sqlite3.IntegrityError:
                self.database.execute("ROLLBACK")
                return False
            except BaseException:
                self.database.execute("ROLLBACK")
                raise
            self.database.execute("COMMIT")
        return True

    def add_values(self, values: list[tuple[bytes, Optional[bytes], Optional[str], int, float, str, str]]) -> None:
        """Takes values over from segments. The same value may come twice."""
        if not values:
            return
        now = time.time()
        sums: dict[str, tuple[int, float]] = {}
        for _, _, _, _, seconds, function, _ in values:
            calls, total = sums.get(function, (0, 0.0))
            sums[function] = (calls + 1, total + seconds)
        with self.lock:
            self.database.execute("BEGIN IMMEDIATE")
            try:
                self.database.executemany(
                    "INSERT OR IGNORE INTO calls VALUES (?, ?, ?, ?, ?, ?, ?, ?)", [(*value, now) for value in values]
                )
                self.database.executemany(
                    "INSERT INTO times VALUES (?, ?, ?) ON CONFLICT (function)"
                    " DO UPDATE SET calls = calls + excluded.calls, seconds = seconds + excluded.seconds",
                    [(function, calls, total) for function, (calls, total) in sums.items()],
                )
            except BaseException:
                self.database.execute("ROLLBACK")
                raise
            self.database.execute("COMMIT")

    def drop_pending(self, names: list[bytes]) -> None:
        """Calls that are over without a value, or that go into another batch."""
        with self.lock:
            self.database.execute("BEGIN IMMEDIATE")
            self.database.executemany("DELETE FROM pending WHERE name=?", [(name,) for name in names])
            self.database.execute("COMMIT")

    def end_batch(self, batch: str) -> None:
        """Forgets a batch whose values are all in the index, and deletes its files."""
        with self.lock:
            self.database.execute("BEGIN IMMEDIATE")
            self.database.execute("DELETE FROM pending WHERE batch=?", (batch,))
            self.database.execute("DELETE FROM batches WHERE id=?", (batch,))
            self.database.execute("COMMIT")
        import shutil

        shutil.rmtree(os.path.join(self.root, "segments", batch), ignore_errors=True)
        try:
            os.unlink(os.path.join(self.root, "batches", batch))
        except FileNotFoundError:
            pass
        self.shrink()

    def clean(self) -> None:
        """Deletes files of batches that a client wrote and never sent, because it was killed in between."""
        known = {batch[0] for batch in self.batches()}
        directory = os.path.join(self.root, "batches")
        for name in os.listdir(directory):
            path = os.path.join(directory, name)
            try:
                if name.partition(".")[0] not in known and time.time() - os.stat(path).st_mtime > _ABANDONED_SECONDS:
                    os.unlink(path)
            except FileNotFoundError:
                continue

    def mean_seconds(self, function: str) -> Optional[float]:
        """How long a call of the function takes, if some have been seen."""
        with self.lock:
            row = self.database.execute("SELECT calls, seconds FROM times WHERE function=?", (function,)).fetchone()
        return row[1] / row[0] if row else None

    def touch(self, names: list[bytes]) -> None:
        """Values that were used again are the last ones to be dropped."""
        with self.lock:
            self.database.execute("BEGIN IMMEDIATE")
            self.database.executemany(
                "UPDATE calls SET used_at=? WHERE name=?", [(time.time(), name) for name in names]
            )
            self.database.execute("COMMIT")

    def forget(self, names: Optional[list[bytes]] = None) -> int:
        """Deletes values, all unless named; how many."""
        with self.lock:
            self.database.execute("BEGIN IMMEDIATE")
            if names is None:
                count = self.database.execute("DELETE FROM calls").rowcount
            else:
                count = 0
                for name in names:
                    count += self.database.execute("DELETE FROM calls WHERE name=?", (name,)).rowcount
            self.database.execute("COMMIT")
            if count:
                self._drop_blobs()
        return count

    def size(self) -> tuple[int, int]:
        """Number of values, and their bytes."""
        with self.lock:
            row = self.database.execute("SELECT count(*), coalesce(sum(bytes), 0) FROM calls").fetchone()
        return int(row[0]), int(row[1])

    def shrink(self) -> int:
        """Drops the values that were not used for the longest time, down to the limit; how many."""
        if self.limit_bytes is None:
            return 0
        with self.lock:
            excess = self.size()[1] - self.limit_bytes
            if excess <= 0:
                return 0
            dropped: list[bytes] = []
            for name, size in self.database.execute("SELECT name, bytes FROM calls ORDER BY used_at"):
                dropped.append(bytes(name))
                excess -= size
                if excess <= 0:
                    break
            return self.forget(dropped)

    def _drop_blobs(self) -> None:
        """Deletes blobs that no value and no batch names any more."""
        kept = {row[0] for row in self.database.execute("SELECT blob FROM calls WHERE blob IS NOT NULL")}
        if self.database.execute("SELECT 1 FROM batches LIMIT 1").fetchone():
            return  # jobs that wait may name blobs in their payload
        blobs = os.path.join(self.root, "blobs")
        for part in os.listdir(blobs):
            for name in os.listdir(os.path.join(blobs, part)):
                if name not in kept:
                    os.unlink(os.path.join(blobs, part, name))


def read_new(path: str, offset: int) -> tuple[list[_segment.Record], int]:
    """Complete records of a segment after `offset`, and where they end."""
    with open(path, "rb") as file:
        file.seek(offset)
        data = file.read()
    found = list(_segment.records(data))
    return found, offset + (found[-1].end if found else 0)


def parse_bytes(text: Any) -> int:
    """`8g`, `512m`, or a number of bytes."""
    if isinstance(text, (int, float)):
        return int(text)
    units = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
    clean = str(text).strip().lower().rstrip("b").rstrip("i")
    try:
        return int(float(clean[:-1]) * units[clean[-1]]) if clean and clean[-1] in units else int(clean)
    except ValueError:
        raise ValueError(f"{text!r} is no size, such as '512m' or '8g'") from None


def parse_seconds(value: Any) -> Optional[float]:
    """`90`, `'90s'`, `'1h30m'`, `'01:30:00'` or a timedelta as seconds."""
    import re

    if value is None:
        return None
    if isinstance(value, (int, float)):
        return float(value)
    total = getattr(value, "total_seconds", None)
    if total is not None:
        return float(total())
    text = str(value).strip().lower()
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return float(text)
    if re.fullmatch(r"\d+:\d\d(:\d\d)?", text):
        parts = [int(part) for part in text.split(":")]
        while len(parts) < 3:
            parts.append(0)
        return float(parts[0] * 3600 + parts[1] * 60 + parts[2])
    units = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
    found = re.findall(r"(\d+(?:\.\d+)?)(ms|[dhms])", text)
    if not found or "".join(number + unit for number, unit in found) != text:
        raise ValueError(f"{value!r} is no duration, such as 90, '90s', '1h30m' or '01:30:00'")
    return float(sum(float(number) * units[unit] for number, unit in found))
