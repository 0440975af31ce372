"""Names of calls: one hash of the function's code, its arguments and a key.

The name must be the same in every process, so it cannot be made of pickled bytes: these depend on object
identity, on the order of sets (hash randomization) and on line numbers. Values are walked instead.
"""

from __future__ import annotations

import functools
import hashlib
import os
import sys
import sysconfig
import types
from typing import Any, Callable, Optional

from ._errors import NotPicklable

_PLAIN = (int, float, str, bool, type(None))
# Longer lists of plain values are hashed by their `repr`, which is as exact and much faster.
_LONG = 64


class _Unnamed(Exception):
    """An object that cannot be taken apart; carries the path to it."""

    def __init__(self, path: list[str], reason: str) -> None:
        super().__init__(reason)
        self.path = path
        self.reason = reason


def call_name(function_name: bytes, args: tuple[Any, ...], kwargs: dict[str, Any], key: Any) -> bytes:
    """The name of a call, 20 bytes."""
    digest = hashlib.blake2b(function_name, digest_size=20)
    walk = Walk(digest.update)
    walk.value(args, ["argument"])
    for name in sorted(kwargs):
        digest.update(name.encode() + b"=")
        walk.value(kwargs[name], [f"argument {name!r}"])
    if key is not None:
        digest.update(b"key")
        walk.value(key, ["key"])
    return digest.digest()


def function_name(function: Callable[..., Any]) -> tuple[bytes, dict[str, str]]:
    """The name of a function's code, and the project modules it uses with the digest of their source."""
    digest = hashlib.blake2b(digest_size=20)
    digest.update(f"python {sys.version_info[0]}.{sys.version_info[1]}".encode())
    walk = Walk(digest.update)
    walk.value(function, [_title(function)])
    return digest.digest(), walk.modules


def _title(function: Any) -> str:
    return f"function {getattr(function, '__qualname__', type(function).__name__)!r}"


class Walk:
    """Feeds a canonical form of values to a hash."""

    def __init__(self, update: Callable[[Any], None]) -> None:
        self.update = update
        self.modules: dict[str, str] = {}
        # Objects that are being walked, by id: a cycle is fed as the distance to its beginning.
        self.path_ids: dict[int, int] = {}
        # Functions and classes that were fed before: a second time their name does.
        self.seen: set[int] = set()

    def value(self, value: Any, path: list[str]) -> None:
        kind = type(value)
        if kind in _PLAIN:
            self.update(f"{kind.__name__}:{value!r};".encode("utf-8", "surrogatepass"))
            return
        if kind is bytes or kind is bytearray:
            self.update(f"{kind.__name__}{len(value)}:".encode() + value)
            return
        known = self.path_ids.get(id(value))
        if known is not None:
            self.update(f"cycle{len(self.path_ids) - known};".encode())
            return
        name = getattr(value, "_torcflow_name", None)
        if type(name) is bytes:  # a future: named by its call
            self.update(b"call:" + name)
            return
        self.path_ids[id(value)] = len(self.path_ids)
        try:
            self._inner(value, kind, path)
        finally:
            del self.path_ids[id(value)]

    def _inner(self, value: Any, kind: type, path: list[str]) -> None:
        if kind is tuple or kind is list:
            self.update(f"{kind.__name__}{len(value)}(".encode())
            if len(value) > _LONG and all(type(item) in _PLAIN for item in value):
                self.update(repr(value).encode("utf-8", "surrogatepass"))
                return
            for place, item in enumerate(value):
                self.value(item, path + [f"[{place}]"])
        elif kind is dict:
            self.update(f"dict{len(value)}(".encode())
            for key, item in value.items():
                self.value(key, path + ["key"])
                self.value(item, path + [f"[{key!r}]"])
        elif kind is set or kind is frozenset:
            self.update(f"{kind.__name__}{len(value)}(".encode())
            for one in sorted(self._apart(item, path) for item in value):
                self.update(one)
        elif kind is types.FunctionType:
            self._function(value, path)
        elif kind is types.ModuleType:
            self._module(value)
        elif isinstance(value, type):
            self._class(value, path)
        elif kind is types.BuiltinFunctionType and (
            value.__self__ is None or isinstance(value.__self__, types.ModuleType)
        ):
            self.update(f"builtin {value.__module__}.{value.__qualname__};".encode())
        elif kind is types.CodeType:
            self._code(value, path)
        elif kind is types.MethodType:
            self.update(b"method(")
            self.value(value.__func__, path)
            self.value(value.__self__, path + ["self"])
        elif isinstance(value, functools.partial):
            self.update(b"partial(")
            self.value(value.func, path + ["partial"])
            self.value(value.args, path + ["partial"])
            self.value(value.keywords, path + ["partial"])
        elif kind.__module__ == "numpy" and kind.__name__ == "ndarray" and not value.dtype.hasobject:
            import numpy

            self.update(f"ndarray {value.dtype.str} {value.shape}:".encode())
            array: Any = numpy.ascontiguousarray(value)
            # Times and the like have no buffer of their own.
            self.update(memoryview(array.view("u1").reshape(-1)) if value.size else b"")
        elif isinstance(getattr(value, "__wrapped_call__", None), types.FunctionType):
            self.value(value.__wrapped_call__, path)  # a `@task`
        else:
            self._reduced(value, kind, path)

    def _apart(self, value: Any, path: list[str]) -> bytes:
        """The hash of one value by itself, for collections without an order."""
        digest = hashlib.blake2b(digest_size=20)
        inner = Walk(digest.update)
        inner.path_ids = dict(self.path_ids)
        inner.value(value, path)
        self.modules.update(inner.modules)
        return digest.digest()

    def _reduced(self, value: Any, kind: type, path: list[str]) -> None:
        """Any other object, by what pickle would write of it."""
        import copyreg

        try:
            reducer = copyreg.dispatch_table.get(kind)
            parts: Any = reducer(value) if reducer is not None else value.__reduce_ex__(4)
        except Exception as error:
            raise _Unnamed(path, _reason(value, error)) from error
        self.update(f"object {kind.__module__}.{kind.__qualname__}(".encode())
        if isinstance(parts, str):
            self.update(parts.encode())
            return
        if project_file(kind.__module__) or kind.__module__ == "__main__":
            self.value(kind, path)
        for place, part in enumerate(parts):
            if part is None:
                continue
            if place == 0:
                self.update(f"{getattr(part, '__module__', '')}.{getattr(part, '__qualname__', '')}".encode())
            elif place == 2 and isinstance(part, dict):
                self.update(b"state")
                for key in part:
                    self.value(part[key], path + [f".{key}"])
                    self.update(str(key).encode())
            elif place in (3, 4):
                self.value(list(part), path)
            else:
                for item in part if isinstance(part, tuple) else (part,):
                    if item is not kind:
                        self.value(item, path)

    def _module(self, module: types.ModuleType) -> None:
        self.update(f"module {module.__name__};".encode())
        file = project_file(module.__name__)
        if file is None or module.__name__ in self.modules:
            return
        digest = source_digest(file)
        self.modules[module.__name__] = digest
        self.update(digest.encode())
        # What a project module imports from the project belongs to its code as well.
        for name in sorted(vars(module)):
            value = vars(module)[name]
            other = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", None)
            if isinstance(other, str) and other != module.__name__ and project_file(other):
                found = sys.modules.get(other)
                if found is not None:
                    self._module(found)

    def _class(self, value: type, path: list[str]) -> None:
        self.update(f"class {value.__module__}.{value.__qualname__};".encode())
        if id(value) in self.seen:
            return
        self.seen.add(id(value))
        if project_file(value.__module__):
            module = sys.modules.get(value.__module__)
            if module is not None:
                self._module(module)
            return
        if value.__module__ != "__main__":
            return
        for name in sorted(vars(value)):
            if name in ("__dict__", "__weakref__", "__doc__", "__module__", "__firstlineno__"):
                continue
            item = vars(value)[name]
            self.update(name.encode())
            if isinstance(item, (staticmethod, classmethod)):
                item = item.__func__
            if isinstance(item, property):
                item = (item.fget, item.fset)
            if isinstance(item, (types.FunctionType, tuple, str, int, float, dict, list)):
                try:
                    self.value(item, path + [f"class {value.__name__!r}", name])
                except _Unnamed:
                    continue  # an attribute that pickle would take by the class's name as well

    def _function(self, function: types.FunctionType, path: list[str]) -> None:
        module = function.__module__
        self.update(f"def {function.__qualname__};".encode())
        if id(function) in self.seen:
            return
        self.seen.add(id(function))
        if module != "__main__" and not project_file(module):
            self.update(f"of {module};".encode())  # installed or of the standard library: named by it
            if module in sys.modules:
                return
        if module != "__main__" and module in sys.modules and project_file(module):
            self._module(sys.modules[module])
            if "<locals>" not in function.__qualname__ and "<lambda>" not in function.__qualname__:
                return
        self._code(function.__code__, path)
        self.value(function.__defaults__, path + ["default"])
        self.value(function.__kwdefaults__, path + ["default"])
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
            try:
                content = cell.cell_contents
            except ValueError:
                continue  # not assigned yet: a function that refers to itself before it is bound
            self.value(content, path + [f"closure {name!r}"])
        for name in sorted(_global_names(function.__code__)):
            if name in function.__globals__:
                self.update(name.encode())
                self.value(function.__globals__[name], path + [f"global {name!r}"])

    def _code(self, code: types.CodeType, path: list[str]) -> None:
        self.update(b"code" + code.co_code)
        self.update(repr((code.co_names, code.co_varnames, code.co_argcount, code.co_kwonlyargcount)).encode())
        for constant in code.co_consts:
            self.value(constant, path)


def _global_names(code: types.CodeType) -> set[str]:
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _global_names(constant)
    return names


def _reason(value: Any, error: BaseException) -> str:
    kind = type(value)
    if kind is types.GeneratorType:
        return "a generator cannot be sent to another process; give a list"
    return f"{kind.__module__}.{kind.__qualname__} cannot be pickled ({error})"


@functools.lru_cache(maxsize=None)
def _installed() -> tuple[str, ...]:
    places = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    import site

    places.add(site.getusersitepackages())
    own = os.path.dirname(os.path.abspath(__file__))
    return tuple(os.path.realpath(place) + os.sep for place in places if place) + (own + os.sep,)


@functools.lru_cache(maxsize=None)
def _project_file(name: str, file: Optional[str]) -> Optional[str]:
    if not file or not file.endswith(".py"):
        return None
    real = os.path.realpath(file)
    return None if real.startswith(_installed()) or not os.path.exists(real) else real


def project_file(module: Optional[str]) -> Optional[str]:
    """The source of a module that belongs to the user's project: not installed, not of Python, not `__main__`."""
    if module is None or module in ("__main__", "builtins"):
        return None
    found = sys.modules.get(module)
    return _project_file(module, getattr(found, "__file__", None)) if found is not None else None


def source_digest(file: str) -> str:
    """The digest of a source file as it is now."""
    with open(file, "rb") as source:
        return hashlib.blake2b(source.read(), digest_size=20).hexdigest()


def explain(error: BaseException, what: str, value: Any, path: list[str]) -> NotPicklable:
    """The path to what in `value` cannot be pickled."""
    if isinstance(error, _Unnamed):
        return NotPicklable(" -> ".join(error.path), error.reason)
    deeper = _find(value, path, 6)
    if deeper is not None:
        return NotPicklable(" -> ".join(deeper[0]), deeper[1])
    return NotPicklable(" -> ".join(path), f"{what} cannot be pickled ({error})")


def _find(value: Any, path: list[str], depth: int) -> Optional[tuple[list[str], str]]:
    """The deepest part of `value` that cannot be pickled by itself."""
    import cloudpickle

    try:
        cloudpickle.dumps(value)
        return None
    except Exception as error:
        mine = (path, _reason(value, error))
    if depth == 0:
        return mine
    for name, part in _parts(value):
        found = _find(part, path + [name], depth - 1)
        if found is not None:
            return found
    return mine


def _parts(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return [(f"[{key!r}]", item) for key, item in value.items()]
    if isinstance(value, (list, tuple, set, frozenset)):
        return [(f"[{place}]", item) for place, item in enumerate(value)]
    if isinstance(value, types.FunctionType):
        parts = []
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or ()):
            try:
                parts.append((f"closure {name!r}", cell.cell_contents))
            except ValueError:
                continue
        for name in sorted(_global_names(value.__code__)):
            if name in value.__globals__ and not isinstance(value.__globals__[name], types.ModuleType):
                parts.append((f"global {name!r}", value.__globals__[name]))
        parts += [("default", item) for item in value.__defaults__ or ()]
        return parts
    if isinstance(value, types.MethodType):
        return [("self", value.__self__)]
    if isinstance(value, functools.partial):
        return [("partial", (value.func, value.args, value.keywords))]
    state = getattr(value, "__dict__", None)
    return [(f"'{name}'", item) for name, item in state.items()] if isinstance(state, dict) else []
