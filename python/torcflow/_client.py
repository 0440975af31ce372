"""What the generated client is made on: the connection, paging, waiting and frames."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Callable, Iterator, Optional, TypeVar
from urllib.parse import quote

from ._errors import TorcError
from ._http import ApiError, Connection, find_connection

if TYPE_CHECKING:
    import pandas

_C = TypeVar("_C", bound="ClientBase")

PAGE = 5000
# A stream that broke off is taken up again after this long.
_RECONNECT_SECONDS = 0.5


def _quote(value: Any) -> str:
    return quote(str(value), safe="")


class ClientBase:
    """A connection to a server: `url` and `token`, the environment, or the nearest local state, as `torc` finds it."""

    def __init__(
        self,
        url: Optional[str] = None,
        token: Optional[str] = None,
        *,
        directory: Optional[str] = None,
        connection: Optional[Connection] = None,
    ) -> None:
        self._connection = connection or find_connection(url, token, directory)

    @property
    def url(self) -> str:
        """The address of the server."""
        return self._connection.url

    def __enter__(self: _C) -> _C:
        return self

    def __exit__(self, *_: Any) -> None:
        return None

    def _pages(self, ask: Callable[[int], Any], by_id: bool) -> Iterator[Any]:
        start = 0
        while True:
            page = ask(start)
            items = page["items"]
            yield from items
            if not items or not page["has_more"]:
                return
            start = items[-1]["id"] if by_id else start + len(items)

    def follow(self, workflow_id: int, after: int = 0) -> Iterator[Any]:
        """Events of a workflow after the one with this id, those that were and those to come, without a gap.

        A stream that broke off is taken up again where it ended.
        """
        while True:
            try:
                for event in self._connection.stream(f"/workflows/{workflow_id}/events/stream", {"after": after}):
                    after = event.get("id", after)
                    yield event
            except ApiError as error:
                if not error.unreachable:
                    raise
            time.sleep(_RECONNECT_SECONDS)

    def wait(self, workflow_id: int, timeout: Optional[float] = None) -> Any:
        """Waits until every job of a workflow is final; its status. Wakes by events, not by asking again and again."""
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            status = self._connection.request("GET", f"/workflows/{workflow_id}/status")
            if status["is_complete"]:
                return status
            left = 60.0 if end is None else end - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"workflow {workflow_id} is not complete after {timeout:g} s")
            self._next_end(workflow_id, min(left, 60.0))

    def _next_end(self, workflow_id: int, seconds: float) -> None:
        """Until an event comes that may have completed the workflow, or the time is over."""
        newest = self._connection.request(
            "GET", f"/workflows/{workflow_id}/events", {"limit": 1, "sort_by": "id", "reverse_sort": True}
        )["items"]
        status = self._connection.request("GET", f"/workflows/{workflow_id}/status")
        if status["is_complete"]:
            return
        path = f"/workflows/{workflow_id}/events/stream"
        try:
            query = {"after": newest[0]["id"] if newest else 0}
            for event in self._connection.stream(path, query, seconds):
                if event["kind"] == "workflow_completed":
                    return
        except ApiError as error:
            if not error.unreachable:
                raise

    def results_frame(self, workflow_id: int) -> pandas.DataFrame:
        """How the attempts of a workflow ended, as a frame of pandas."""
        return self._frame(getattr(self, "iter_results")(workflow_id=workflow_id))

    def events_frame(self, workflow_id: int) -> pandas.DataFrame:
        """What happened in a workflow, as a frame of pandas."""
        return self._frame(getattr(self, "iter_events")(workflow_id))

    def _frame(self, rows: Iterator[Any]) -> pandas.DataFrame:
        try:
            import pandas
        except ImportError as error:
            raise TorcError("frames need pandas: `pip install pandas`") from error
        frame: pandas.DataFrame = pandas.DataFrame(list(rows))
        for name in [column for column in frame.columns if str(column).endswith("_ms")]:
            frame[name[:-3]] = pandas.to_datetime(frame[name], unit="ms", utc=True)
        return frame
