#!/usr/bin/env python3
"""Writes `torcflow/_api.py` and `torcflow/_api_types.pyi` from `docs/openapi.json`.

`python3 python/generate_client.py` writes them; `--check` only tells whether they are current (exit code 1: they are not).
"""

from __future__ import annotations

import json
import keyword
import re
import sys
import textwrap
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
BASE = "/torc-service/v1"
HEAD = '# Written by generate_client.py from docs/openapi.json; do not edit.\n'


def type_name(name: str) -> str:
    return re.sub(r"\W", "_", name)


def type_of(schema: Any, prefix: str) -> str:
    """A schema as a type expression."""
    if not isinstance(schema, dict) or not schema:
        return "Any"
    if "$ref" in schema:
        return prefix + type_name(schema["$ref"].rsplit("/", 1)[1])
    if "enum" in schema:
        return f"Literal[{', '.join(repr(value) for value in schema['enum'])}]"
    if "const" in schema:
        return f"Literal[{schema['const']!r}]"
    for word in ("oneOf", "anyOf"):
        if word in schema:
            return union([type_of(part, prefix) for part in schema[word]])
    if "allOf" in schema:
        return type_of(schema["allOf"][0], prefix) if len(schema["allOf"]) == 1 else "dict[str, Any]"
    kinds = schema.get("type")
    if isinstance(kinds, list):
        return union([type_of(dict(schema, type=kind), prefix) for kind in kinds])
    if kinds == "array":
        if "prefixItems" in schema:
            return f"list[{union([type_of(part, prefix) for part in schema['prefixItems']])}]"
        return f"list[{type_of(schema.get('items'), prefix)}]"
    if kinds == "object":
        inner = schema.get("additionalProperties")
        return f"dict[str, {type_of(inner, prefix)}]" if isinstance(inner, dict) else "dict[str, Any]"
    return {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}.get(str(kinds), "Any")


def union(parts: list[str]) -> str:
    different = list(dict.fromkeys(parts))
    return "Any" if "Any" in different else " | ".join(different)


def types_text(schemas: dict[str, Any]) -> str:
    lines = [HEAD + '"""The types of the API. For type checkers only: answers are plain dictionaries."""\n']
    lines.append("from typing import Any, Literal\n\nfrom typing_extensions import NotRequired, TypedDict\n")
    for name in sorted(schemas):
        schema = schemas[name]
        if "properties" not in schema:
            lines.append(f"{type_name(name)} = {type_of(schema, '')}")
            continue
        required = set(schema.get("required", []))
        fields = []
        for field, inner in schema["properties"].items():
            kind = type_of(inner, "")
            fields.append((field, kind if field in required else f"NotRequired[{kind}]"))
        if any(keyword.iskeyword(field) or not field.isidentifier() for field, _ in fields):
            inside = ", ".join(f"{field!r}: {kind}" for field, kind in fields)
            lines.append(f"{type_name(name)} = TypedDict({type_name(name)!r}, {{{inside}}})")
            continue
        body = "".join(f"    {field}: {kind}\n" for field, kind in fields) or "    pass\n"
        lines.append(f"class {type_name(name)}(TypedDict):\n{body.rstrip()}")
    return "\n".join(lines) + "\n"


def sentence(operation: dict[str, Any]) -> str:
    text = " ".join((operation.get("summary") or operation["operationId"].replace("_", " ")).split())
    text = text.replace("\\", "\\\\").replace('"""', "'''")
    return "\n".join(textwrap.wrap(text, 100, subsequent_indent="        "))


def method(path: str, verb: str, operation: dict[str, Any], schemas: dict[str, Any]) -> str:
    """One operation as a method, and as an iterator where it is a list in pages."""
    name = operation["operationId"]
    parameters = operation.get("parameters", [])
    in_path = [one for one in parameters if one["in"] == "path"]
    in_query = [one for one in parameters if one["in"] == "query"]
    content = operation.get("requestBody", {}).get("content", {}).get("application/json")
    answer = next(value for code, value in operation["responses"].items() if code.startswith("2"))
    kinds = answer.get("content", {})
    positional = "".join(f", {python_name(one['name'])}: {type_of(one.get('schema'), 'types.')}" for one in in_path)
    if content is not None:
        kind = type_of(content.get("schema"), "types.")
        optional = "None" in kind.split(" | ") or not operation["requestBody"].get("required", True)
        default = " = None" if optional else ""
        positional += f", body: {union(kind.split(' | ') + ['None']) if optional else kind}{default}"
    named = ""
    if in_query:
        named = ", *" + "".join(query_parameter(one) for one in in_query)
    target = path[len(BASE):] if path.startswith(BASE) else path
    text = 'f"' + re.sub(r"\{(\w+)\}", lambda found: "{_quote(" + python_name(found[1]) + ")}", target) + '"'
    if "{" not in target:
        text = f'"{target}"'
    query = "{" + ", ".join(f'"{one["name"]}": {python_name(one["name"])}' for one in in_query) + "}"
    arguments = [f'"{verb.upper()}"', text]
    if in_query:
        arguments.append(query)
    if content is not None:
        arguments.append("body=body, has_body=True" if "None" not in positional.rpartition("body:")[2] else "body=body")
    doc = f'        """{sentence(operation)}"""\n'
    if "text/event-stream" in kinds:
        extra = f", {query}" if in_query else ""
        return (
            f"    def {name}(self{positional}{named}) -> Iterator[Any]:\n{doc}"
            f"        return self._connection.stream({text}{extra})\n"
        )
    if "application/json" in kinds:
        result = type_of(kinds["application/json"].get("schema"), "types.")
    else:
        result = "bytes"
    out = (
        f"    def {name}(self{positional}{named}) -> {result}:\n{doc}"
        f"        return cast({result!r}, self._connection.request({', '.join(arguments)}))\n"
    )
    names = {one["name"] for one in in_query}
    if result.startswith("types.Page_") and {"offset", "limit"} <= names and name.startswith("list_"):
        item = "types." + type_name(page_schema(kinds)[len("Page_"):])
        kept = [one for one in in_query if one["name"] not in ("offset", "limit", "after")]
        by_id = "after" in names and name == "list_jobs"
        if by_id:  # pages in the order of ids cost the same everywhere in a list
            kept = [one for one in kept if one["name"] not in ("sort_by", "reverse_sort")]
        inner = ", ".join(
            [python_name(one["name"]) for one in in_path]
            + [f"{python_name(one['name'])}={python_name(one['name'])}" for one in kept]
        )
        star = ", *" + "".join(query_parameter(one) for one in kept) if kept else ""
        turn = "after=start" if by_id else "offset=start"
        paths = "".join(f", {python_name(one['name'])}: {type_of(one.get('schema'), 'types.')}" for one in in_path)
        out += (
            f"\n    def iter_{name[5:]}(self{paths}{star}) -> Iterator[{item}]:\n"
            f'        """Every item of `{name}`, page after page."""\n'
            f"        return self._pages(lambda start: self.{name}({inner + ', ' if inner else ''}{turn}, limit=PAGE),"
            f" {by_id})\n"
        )
    return out


def page_schema(kinds: dict[str, Any]) -> str:
    return str(kinds["application/json"]["schema"]["$ref"]).rsplit("/", 1)[1]


def python_name(name: str) -> str:
    return name + "_" if keyword.iskeyword(name) else name


def query_parameter(one: dict[str, Any]) -> str:
    kind = type_of(one.get("schema"), "types.")
    if one.get("required"):
        return f", {python_name(one['name'])}: {kind}"
    return f", {python_name(one['name'])}: {union(kind.split(' | ') + ['None'])} = None"


def client_text(document: dict[str, Any]) -> str:
    schemas = document["components"]["schemas"]
    lines = [
        HEAD + '"""The client: one method for every operation of the API."""\n',
        "from __future__ import annotations\n",
        "from typing import TYPE_CHECKING, Any, Iterator, Literal, cast\n",
        "from ._client import PAGE, ClientBase, _quote\n",
        "if TYPE_CHECKING:\n    from . import _api_types as types\n\n",
        "class Client(ClientBase):",
        '    """Speaks to a server. Answers are dictionaries as the API describes them (`docs/openapi.json`)."""\n',
    ]
    # What lies outside of the base path is for programs that watch servers.
    for path in sorted(path for path in document["paths"] if path.startswith(BASE)):
        for verb in sorted(document["paths"][path]):
            lines.append(method(path, verb, document["paths"][path][verb], schemas))
    return "\n".join(lines).rstrip() + "\n"


def main() -> int:
    document = json.loads((HERE.parent / "docs" / "openapi.json").read_text())
    files = {
        HERE / "torcflow" / "_api.py": client_text(document),
        HERE / "torcflow" / "_api_types.pyi": types_text(document["components"]["schemas"]),
    }
    if "--check" in sys.argv:
        old = [path.name for path, text in files.items() if not path.exists() or path.read_text() != text]
        if old:
            print(f"not current: {', '.join(old)}; run `python3 python/generate_client.py`", file=sys.stderr)
        return 1 if old else 0
    for path, text in files.items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
