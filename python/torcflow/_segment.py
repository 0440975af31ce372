"""The two kinds of files that travel between client and worker. Imports only what is cheap to import.

A *batch* holds the calls of one workflow; the client writes it once, before the workflow is created. A *segment*
holds what one attempt of a job did, one record per event, appended as it happens: an attempt that is killed
leaves every record that it completed, and a torn last record is recognized by its checksum.
"""

from __future__ import annotations

import os
import pickle
import struct
import zlib
from typing import Any, BinaryIO, Iterator, NamedTuple

NAME_BYTES = 20
NO_CALL = bytes(NAME_BYTES)

BEGUN = 1  # a call has begun
DONE = 2  # its pickled value follows
RAISED = 3  # its pickled exception and traceback follow
STORED = 4  # its pickled value is in the blob whose name follows
TIMED_OUT = 5  # it ran longer than its limit, which follows
REFUSED = 6  # the job starts no call; the pickled reason follows

# A worker that ends with this code has saved its state: the server queues its job again at no cost.
EXIT_CHECKPOINT = 85

_HEAD = struct.Struct("<4sB20sdQI")
_MAGIC = b"TCF1"


class Record(NamedTuple):
    """One event of an attempt."""

    state: int
    name: bytes
    seconds: float
    payload: bytes
    end: int


def pack(state: int, name: bytes, seconds: float = 0.0, payload: bytes = b"") -> bytes:
    """One record as bytes."""
    head = _HEAD.pack(_MAGIC, state, name, seconds, len(payload), 0)[:-4]
    return head + struct.pack("<I", zlib.crc32(payload, zlib.crc32(head))) + payload


def records(data: bytes) -> Iterator[Record]:
    """The complete records at the beginning of `data`."""
    at = 0
    while at + _HEAD.size <= len(data):
        magic, state, name, seconds, length, crc = _HEAD.unpack_from(data, at)
        end = at + _HEAD.size + length
        if magic != _MAGIC or end > len(data):
            return
        payload = data[at + _HEAD.size : end]
        if zlib.crc32(payload, zlib.crc32(data[at : at + _HEAD.size - 4])) != crc:
            return
        yield Record(state, name, seconds, payload, end)
        at = end


def write_batch(path: str, header: dict[str, Any], jobs: list[bytes]) -> None:
    """Writes a batch and waits until it is on disk."""
    offsets = []
    at = 0
    for job in jobs:
        offsets.append((at, len(job)))
        at += len(job)
    head = pickle.dumps(dict(header, jobs=offsets), protocol=4)
    draft = f"{path}.{os.getpid()}"
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(struct.pack("<Q", len(head)))
        file.write(head)
        file.writelines(jobs)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, path)
    sync_directory(os.path.dirname(path))


def read_batch(file: BinaryIO) -> tuple[dict[str, Any], int]:
    """The header of a batch, and where its jobs begin."""
    (length,) = struct.unpack("<Q", file.read(8))
    header: dict[str, Any] = pickle.loads(file.read(length))
    return header, 8 + length


def read_job(file: BinaryIO, header: dict[str, Any], start: int, index: int) -> Any:
    """One job of a batch."""
    offset, length = header["jobs"][index]
    file.seek(start + offset)
    return pickle.loads(file.read(length))


def sync_directory(path: str) -> None:
    """Makes a rename in this directory last."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def blob_path(root: str, digest: str) -> str:
    """Where a blob lies."""
    return os.path.join(root, "blobs", digest[:2], digest)


def write_blob(root: str, content: bytes) -> str:
    """Keeps bytes under the name of their content, and waits until they are on disk."""
    import hashlib

    digest = hashlib.sha256(content).hexdigest()
    path = blob_path(root, digest)
    if not os.path.exists(path):
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        draft = f"{path}.{os.getpid()}"
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
        sync_directory(os.path.dirname(path))
    return digest


class Reference:
    """Stands in the arguments of a call for the value of another call."""

    __slots__ = ("name",)

    def __init__(self, name: bytes) -> None:
        self.name = name

    def __reduce__(self) -> Any:
        return (Reference, (self.name,))
