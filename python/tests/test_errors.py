"""What a call can end with, and what recovery does about it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest
import torcflow

lock = threading.Lock()


def of_main(text: str, **names: Any) -> Any:
    """A function as a script has it: it travels by value, with the globals it uses."""
    names["__name__"] = "__main__"
    exec(text, names)
    return names["f"]


def broken(x: int) -> int:
    return [1, 2, 3][x]


def hungry(mib: int) -> int:
    block = bytearray(mib << 20)
    time.sleep(1)
    return len(block)


def flaky(path: str) -> str:
    if not os.path.exists(path):
        open(path, "w").close()
        raise ConnectionResetError("Connection reset by peer")
    return "well"


def killed(x: int) -> int:
    if x == 2:
        os.kill(os.getpid(), 9)
    return x


class Odd(Exception):
    def __init__(self, a: int, b: int) -> None:
        super().__init__("odd")


def raises_odd() -> None:
    raise Odd(1, 2)


class Holder:
    def __init__(self) -> None:
        self.lock = threading.Lock()


def numbers() -> Iterator[int]:
    yield 1


def test_the_original_exception_comes_with_the_remote_traceback_and_notes(local: torcflow.Executor) -> None:
    future = local.submit(broken, 9)
    with pytest.raises(IndexError) as caught:
        future.result()
    cause = caught.value.__cause__
    assert isinstance(cause, torcflow.RemoteTraceback)
    assert "return [1, 2, 3][x]" in str(cause) and "_worker.py" not in str(cause)
    notes = " ".join(caught.value.__notes__)  # type: ignore[attr-defined]
    assert "job broken-00000" in notes and "attempt 1" in notes
    log = next(word for word in notes.split() if word.endswith(".e"))
    assert "IndexError" in Path(log).read_text()
    assert "IndexError" in future.why() and "IndexError" in future.logs("stderr")
    with pytest.raises(IndexError) as here:
        future.reproduce()
    assert here.value.__cause__ is None


def test_an_exception_that_cannot_travel_is_told_by_its_name(local: torcflow.Executor) -> None:
    error = local.submit(raises_odd).exception()
    assert isinstance(error, torcflow.JobError) and "Odd: odd" in str(error)


def test_out_of_memory_gets_more_memory_by_default(local: torcflow.Executor) -> None:
    future = local.options(memory="100m").submit(hungry, 130)
    assert future.result() == 130 << 20
    deadline = time.monotonic() + 30
    while len(future.attempts) < 2 or future.attempts[1].state == "running":
        assert time.monotonic() < deadline
        time.sleep(0.1)
    first, second = future.attempts
    assert (first.cause, first.memory) == ("oom", 100 << 20)
    assert second.state == "completed" and second.memory is not None and second.memory > 100 << 20


def test_out_of_memory_is_told_when_more_is_not_wanted(local: torcflow.Executor) -> None:
    future = local.options(memory="100m", on_oom="fail").submit(hungry, 131)
    error = future.exception()
    assert isinstance(error, torcflow.OutOfMemory) and isinstance(error, MemoryError)
    assert error.limit == 100 << 20 and error.used is not None and error.used > error.limit
    assert len(future.attempts) == 1


def test_a_passing_error_is_tried_again(local: torcflow.Executor, flow: Path) -> None:
    future = local.submit(flaky, str(flow / "flag"))
    assert future.result() == "well"
    assert future.attempts[0].state == "failed"


def test_retries_are_for_any_error(local: torcflow.Executor, flow: Path) -> None:
    def third_time(path: str) -> int:
        with open(path, "a") as file:
            file.write("x")
        tries = len(open(path).read())
        if tries < 3:
            raise KeyError("not yet")
        return tries

    assert local.options(retries=2).submit(third_time, str(flow / "tries")).result() == 3


def test_a_time_limit_names_the_call_and_spares_the_others(local: torcflow.Executor) -> None:
    def nap(seconds: float) -> float:
        time.sleep(seconds)
        return seconds

    results = list(local.options(time=1).map(nap, [0.0, 60.0, 0.1], chunksize=3, return_exceptions=True))
    assert results[0] == 0.0 and results[2] == 0.1
    assert isinstance(results[1], torcflow.TimeLimit) and results[1].limit == 1.0


def test_a_killed_call_spares_the_others_of_its_job(local: torcflow.Executor) -> None:
    results: list[Any] = list(local.map(killed, range(4), chunksize=4, return_exceptions=True))
    assert [results[0], results[1], results[3]] == [0, 1, 3]
    assert isinstance(results[2], torcflow.JobError) and "SIGKILL" in str(results[2])


def test_dependents_of_a_failed_call_are_told_which_one(local: torcflow.Executor) -> None:
    bad = local.submit(broken, 8)
    child = local.submit(broken, bad)
    error = child.exception()
    assert isinstance(error, torcflow.DependencyFailed) and error.future is bad
    assert isinstance(error.__cause__, IndexError)


@pytest.mark.parametrize(
    ("submit", "path", "reason"),
    [
        (lambda ex: ex.submit(of_main("def f(): return lock", lock=lock)), "global 'lock'", "cannot be pickled"),
        (lambda ex: ex.submit(broken, {"a": [1, lock]}), "['a'] -> [1]", "_thread.lock"),
        (lambda ex: ex.submit(broken, Holder()), ".lock", "_thread.lock"),
        (lambda ex: ex.submit(broken, numbers()), "argument", "give a list"),
    ],
)
def test_what_cannot_be_pickled_is_refused_at_submit_with_its_path(
    local: torcflow.Executor, submit: Callable[[torcflow.Executor], Any], path: str, reason: str
) -> None:
    with pytest.raises(torcflow.NotPicklable) as caught:
        submit(local)
    assert path in caught.value.path and reason in caught.value.reason


def test_a_closure_is_named_in_the_path(local: torcflow.Executor) -> None:
    model = Holder()
    with pytest.raises(torcflow.NotPicklable) as caught:
        local.submit(lambda: model.lock)
    assert "closure 'model' -> .lock" in caught.value.path


def test_a_result_that_cannot_be_pickled_is_an_error_of_the_call(local: torcflow.Executor) -> None:
    error = local.submit(lambda: threading.Lock()).exception()
    assert isinstance(error, torcflow.NotPicklable) and error.path == "result"


def test_a_module_that_changed_is_named_before_a_call_runs(flow: Path, script: Callable[..., subprocess.Popen[str]]) -> None:
    (flow / "mine.py").write_text("def f(x):\n    return x + 1\n")
    process = script(
        """
import torcflow, mine, pathlib
with torcflow.Executor("test", backend="local", setup="while ! test -e go; do sleep 0.1; done") as ex:
    future = ex.submit(mine.f, 1)
    while future.job is None:
        pass
    pathlib.Path("mine.py").write_text("def f(x):\\n    return x + 2\\n")
    pathlib.Path("go").touch()
    print(type(future.exception()).__name__, future.exception())
"""
    )
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert output.startswith("Changed") and "module 'mine'" in output


def test_another_python_is_named_before_a_call_runs(flow: Path) -> None:
    """The batch says which Python made it; a worker of another one refuses."""
    from torcflow import _segment, _worker

    with torcflow.Executor("test", backend="local") as executor:
        executor.submit(broken, 0).result()
        root = executor.directory
    job = {"name": "j-00000", "calls": [(bytes(20), 0, b"")], "values": {}, "time": None, "budget": None}
    import pickle

    header = {"python": "3.1", "grace": 10.0, "sys_path": list(sys.path), "modules": {}, "functions": []}
    _segment.write_batch(os.path.join(root, "batches", "b"), header, [pickle.dumps(job)])
    done = subprocess.run([sys.executable, _worker.__file__, root, "b", "0"], capture_output=True, text=True)
    assert done.returncode == 3 and "submitted with Python 3.1" in done.stderr
