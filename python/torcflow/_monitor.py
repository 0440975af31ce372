"""The monitor: the thread of an executor that does everything that blocks.

It collects submitted calls for a moment, sends them as one workflow, takes results over as workers write them, asks the
server about jobs that ended, and starts server and runners again when they died.
"""

from __future__ import annotations

import os
import select
import time
from typing import TYPE_CHECKING, Any

from ._core import LIFE_SECONDS
from ._errors import TorcError
from ._future import Future
from ._http import ApiError
from ._send import Sender
from ._settle import Settler

if TYPE_CHECKING:
    from ._core import Core

# Submitted calls wait this long for others, so that a loop becomes one workflow...
WINDOW_SECONDS = 0.02
# ... but not longer than this while new ones keep coming.
WINDOW_MOST_SECONDS = 2.0
# Server and runners are looked after this often; results come by messages of the workers.
TICK_SECONDS = 1.0
# After so many turns without success the monitor gives up and tells every future why.
TROUBLES = 5


class Monitor:
    """The thread's work."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.sender = Sender(core)
        self.settler = Settler(core, self.sender)
        self.last_check = 0.0
        self.last_life = time.monotonic()

    def run(self) -> None:
        """Until the executor is closed and every batch is over."""
        troubles = 0
        try:
            while True:
                self._sleep()
                with self.core.lock:
                    if self.core.closed and not self.core.queue and not self.core.batches and not self.core.held:
                        return
                try:
                    self._turn()
                    troubles = 0
                except ApiError as error:
                    # An unreachable server died: the next turn starts it again.
                    troubles += not error.unreachable
                    if (error.status is not None and error.status < 500) or troubles >= TROUBLES:
                        raise
                except TorcError:
                    troubles += 1
                    if troubles >= TROUBLES:
                        raise
        except BaseException as error:
            if self.core.left:
                return  # the process ends
            with self.core.lock:
                self.core.broken = error
                left = [future for future in self.core.futures.values() if not future.done()]
            why = str(error) if isinstance(error, TorcError) else repr(error)
            for future in left:
                self.core.fail(future, TorcError(f"the executor's thread has ended: {why}"))
            if not isinstance(error, TorcError):
                raise

    def _sleep(self) -> None:
        """Until a message comes, the window closes, or it is time to look after the processes."""
        with self.core.lock:
            if self.core.queue:
                now = time.monotonic()
                end = min(self.core.last_at + WINDOW_SECONDS, self.core.first_at + WINDOW_MOST_SECONDS)
                timeout = max(0.0, end - now)
            else:
                timeout = TICK_SECONDS
                if self.settler.check_at:
                    timeout = min(timeout, max(0.0, self.settler.check_at - time.monotonic()))
        select.select([self.core.news.fileno(), self.core.wake_read], [], [], timeout)
        for source in (self.core.news.fileno(), self.core.wake_read):
            try:
                while os.read(source, 4096):
                    continue
            except BlockingIOError:
                continue

    def _turn(self) -> None:
        now = time.monotonic()
        with self.core.lock:
            due = self.core.queue and (
                now >= self.core.last_at + WINDOW_SECONDS or now >= self.core.first_at + WINDOW_MOST_SECONDS
            )
            calls: list[Future[Any]] = []
            if due:
                calls, self.core.queue = self.core.queue, []
        if calls:
            try:
                self.sender.flush(calls)
            except (ApiError, TorcError):
                with self.core.lock:  # not sent: again with the next turn
                    self.core.queue = [one for one in calls if not one.done() and one._place is None] + self.core.queue
                    self.core.first_at = self.core.last_at = time.monotonic() + TICK_SECONDS
                raise
        for batch in list(self.core.batches.values()):
            self.settler.read(batch)
        soon = self.settler.check_at and now >= self.settler.check_at
        if soon or now - self.last_check >= TICK_SECONDS or self.core.closed or self._any_idle():
            self.last_check = now
            if now - self.last_life >= LIFE_SECONDS:
                self.last_life = now
                self.core.sign_of_life()
            self.settler.check_at = 0.0
            for batch in list(self.core.batches.values()):
                self.settler.check(batch)
        self._release()

    def _any_idle(self) -> bool:
        """A job ended with calls left over, as far as its segment says: no call of it has begun and not ended."""
        return any(not batch.last and len(batch.returned) == len(batch.calls) for batch in self.core.batches.values())

    def _release(self) -> None:
        """Queues held calls whose arguments are there, and ends those whose arguments failed."""
        with self.core.lock:
            held, self.core.held = self.core.held, []
            ready = []
            for future in held:
                needs = future._call.needs if future._call is not None else []
                if all(need.done() for need in needs):
                    ready.append(future)
                else:
                    self.core.held.append(future)
        self.core.enqueue(ready)
