#!/usr/bin/env python3
"""A small MCP server that knows one thing about a site: when its services were down.

A template for servers of your own. It needs nothing but Python 3. An agent that judges failed jobs can ask it whether
the storage was down when a job failed. Outages are read from a file with lines such as

    storage 2026-03-01T10:00 2026-03-01T11:30

named by SITE_OUTAGES (default: outages.txt beside this file). Answers are built from these fields only: a server for
agents must not hand on text that another user can write.
"""

import datetime
import json
import os
import re
import sys

TOOLS = [
    {
        "name": "was_service_down",
        "description": "Tells whether a service of this site was down at a time, and from when to when.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "service": {"type": "string", "description": "Such as `storage` or `licences`."},
                "time": {"type": "string", "description": "Local time, as 2026-03-01T10:15."},
            },
            "required": ["service", "time"],
            "additionalProperties": False,
        },
        "annotations": {"readOnlyHint": True},
    }
]


def outages():
    """(service, begin, end) of each outage; lines that are none are left out."""
    default = os.path.join(os.path.dirname(os.path.abspath(__file__)), "outages.txt")
    with open(os.environ.get("SITE_OUTAGES", default), encoding="utf-8") as file:
        for line in file:
            words = line.split()
            if len(words) == 3 and re.fullmatch(r"[a-z][a-z0-9_-]{0,30}", words[0]):
                yield words[0], *(datetime.datetime.fromisoformat(word) for word in words[1:])


def was_service_down(service, time):
    """The tool."""
    at = datetime.datetime.fromisoformat(time)
    known = list(outages())
    if service not in {name for name, _, _ in known}:
        return {"service": "unknown", "known_services": sorted({name for name, _, _ in known})}
    for name, begin, end in known:
        if name == service and begin <= at <= end:
            return {"service": name, "down": True, "from": begin.isoformat(), "to": end.isoformat()}
    return {"service": service, "down": False}


def call(params):
    """One call of a tool; mistakes of the caller come back as text that it can read."""
    try:
        if params.get("name") != "was_service_down":
            raise ValueError("there is only the tool was_service_down")
        arguments = params.get("arguments") or {}
        answer = was_service_down(str(arguments["service"]), str(arguments["time"]))
        return {"content": [{"type": "text", "text": json.dumps(answer)}], "isError": False}
    except (KeyError, ValueError, OSError) as error:
        return {"content": [{"type": "text", "text": f"{type(error).__name__}: {error}"}], "isError": True}


def answer(method, params):
    """The result of a request, or None for a method that there is not."""
    if method == "initialize":
        return {
            "protocolVersion": params.get("protocolVersion", "2025-06-18"),
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "site-status", "version": "1"},
        }
    if method == "ping":
        return {}
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        return call(params)
    return None


def main():
    """One JSON message per line in and out; notifications get no answer."""
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        reply = {"jsonrpc": "2.0", "id": request["id"]}
        result = answer(request.get("method"), request.get("params") or {})
        if result is None:
            reply["error"] = {"code": -32601, "message": "method not found"}
        else:
            reply["result"] = result
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
