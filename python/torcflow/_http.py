"""JSON over HTTP to a Torc server, with the standard library only."""

from __future__ import annotations

import json
import os
import time
from typing import Any, Iterator, Mapping, Optional

from ._errors import TorcError

BASE = "/torc-service/v1"
# One request may take as long as the server allows, and a little more.
TIMEOUT_SECONDS = 75.0


class ApiError(TorcError):
    """The server refused a request, or did not answer."""

    def __init__(
        self,
        message: str,
        status: Optional[int] = None,
        code: Optional[str] = None,
        hint: Optional[str] = None,
        field: Optional[str] = None,
    ) -> None:
        super().__init__(message, status, code, hint, field)
        self.message = message
        self.status = status
        self.code = code
        self.hint = hint
        self.field = field

    def __str__(self) -> str:
        text = self.message if self.status is None else f"{self.message} ({self.status}, {self.code})"
        return f"{text}\nhint: {self.hint}" if self.hint else text

    @property
    def unreachable(self) -> bool:
        """The server did not answer at all."""
        return self.status is None


class Connection:
    """Where a server is, and how to ask it. Safe to use from several threads: each request connects by itself."""

    def __init__(self, url: str, token: str, tls_ca: Optional[str] = None) -> None:
        from urllib.parse import urlsplit

        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is not the address of a server, such as 'http://127.0.0.1:8080'")
        self.url = url
        self.host = parts.hostname
        self.secure = parts.scheme == "https"
        self.port = parts.port or (443 if self.secure else 80)
        self.prefix = parts.path.rstrip("/")
        self.token = token
        self.tls_ca = tls_ca

    def request(
        self,
        method: str,
        path: str,
        query: Optional[Mapping[str, Any]] = None,
        body: Any = None,
        has_body: bool = False,
        timeout: float = TIMEOUT_SECONDS,
    ) -> Any:
        """One request; the answer's JSON."""
        response, connection = self._open(method, path, query, body, has_body, timeout)
        try:
            data = response.read()
        except OSError as error:
            raise ApiError(f"the answer of {self.url} broke off: {error}") from error
        finally:
            connection.close()
        if response.headers.get_content_type() != "application/json":
            return data
        return json.loads(data) if data else None

    def _open(
        self, method: str, path: str, query: Optional[Mapping[str, Any]], body: Any, has_body: bool, timeout: float
    ) -> tuple[Any, Any]:
        import http.client
        from urllib.parse import urlencode

        connection: http.client.HTTPConnection
        if self.secure:
            import ssl

            connection = http.client.HTTPSConnection(
                self.host, self.port, timeout=timeout, context=ssl.create_default_context(cafile=self.tls_ca)
            )
        else:
            connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        target = self.prefix + BASE + path
        chosen = {name: _text(value) for name, value in (query or {}).items() if value is not None}
        if chosen:
            target += "?" + urlencode(chosen)
        headers = {"Authorization": f"Bearer {self.token}"}
        content = None
        if has_body or body is not None:
            content = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        try:
            connection.request(method, target, body=content, headers=headers)
            response = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise ApiError(f"no answer from the server at {self.url}: {error}") from error
        if response.status >= 400:
            data = response.read()
            connection.close()
            raise _refusal(response.status, data)
        return response, connection

    def stream(
        self, path: str, query: Optional[Mapping[str, Any]] = None, seconds: Optional[float] = None
    ) -> Iterator[Any]:
        """Server-sent events as JSON. Ends when the server closes, or after `seconds`."""
        end = None if seconds is None else time.monotonic() + seconds
        # The server sends a sign of life at least this often.
        timeout = TIMEOUT_SECONDS if seconds is None else max(0.05, seconds)
        response, connection = self._open("GET", path, query, None, False, timeout)
        try:
            lines: list[str] = []
            for raw in response:
                if end is not None and time.monotonic() > end:
                    return
                line = raw.decode("utf-8", "replace").rstrip("\r\n")
                if line.startswith("data:"):
                    lines.append(line[5:].lstrip())
                elif not line and lines:
                    yield json.loads("\n".join(lines))
                    lines = []
        except OSError as error:
            if end is not None and time.monotonic() > end - 0.01:
                return
            raise ApiError(f"the stream of {self.url} broke off: {error}") from error
        finally:
            connection.close()


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _refusal(status: int, data: bytes) -> ApiError:
    try:
        error = json.loads(data)["error"]
        return ApiError(error["message"], status, error["code"], error.get("hint"), error.get("field"))
    except (ValueError, KeyError, TypeError):
        return ApiError(data[:500].decode("utf-8", "replace") or "refused", status, "unknown")


def local_connection(state: str) -> Optional[Connection]:
    """The server of a state directory, if its record is there; it may be gone."""
    try:
        with open(os.path.join(state, "server.json"), encoding="utf-8") as file:
            record = json.load(file)
    except (OSError, ValueError):
        return None
    ca = os.path.join(state, "tls-cert.pem")
    return Connection(record["url"], record["token"], ca if os.path.exists(ca) else None)


def find_connection(url: Optional[str], token: Optional[str], directory: Optional[str]) -> Connection:
    """The server that `torc` itself would speak to: address, environment, then the nearest local state."""
    if url is None and directory is None:
        url = os.environ.get("TORC_API_URL")
    if url is not None:
        if token is None:
            token = os.environ.get("TORC_TOKEN")
        if token is None and "TORC_TOKEN_FILE" in os.environ:
            with open(os.environ["TORC_TOKEN_FILE"], encoding="utf-8") as file:
                token = file.read().strip()
        if token is None:
            raise ApiError(f"no token for {url}: give `token`, or set TORC_TOKEN or TORC_TOKEN_FILE")
        return Connection(url, token, os.environ.get("TORC_TLS_CA"))
    directory = directory or os.environ.get("TORC_DIR")
    places = [directory] if directory else _upwards(os.getcwd())
    for place in places:
        found = local_connection(place)
        if found is not None:
            return found
    raise ApiError(
        "no server runs for the local state" + (f" in {directory}" if directory else ""),
        hint="`torc server run` starts one; `url` and `token` name another",
    )


def _upwards(start: str) -> list[str]:
    places = []
    while True:
        places.append(os.path.join(start, ".torc"))
        parent = os.path.dirname(start)
        if parent == start:
            return places
        start = parent


def wait_until(check: Any, seconds: float, step: float = 0.02) -> bool:
    """Whether `check()` becomes true in time. For things of other processes that send no event."""
    end = time.monotonic() + seconds
    while not check():
        if time.monotonic() > end:
            return False
        time.sleep(step)
    return True
