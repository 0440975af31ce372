"""What a call can end with, and what recovery does about it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Callable, Iterator, Optional

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


def test_a_call_that_lets_no_other_thread_run_is_ended_at_its_time_limit(flow: Path) -> None:
    def backtrack() -> bool:
        import re

        # `re` holds the interpreter's lock, so that the worker's own watch over the time cannot act.
        return re.match("(a|a)+$", "a" * 60 + "b") is not None

    with torcflow.Executor("test", backend="local", grace=1, time=1) as executor:
        error = executor.submit(backtrack).exception(timeout=60)
    assert isinstance(error, torcflow.TimeLimit), error
    assert isinstance(error, TimeoutError) and error.limit == 1


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


def test_a_module_that_travels_by_value_may_change(flow: Path, script: Callable[..., subprocess.Popen[str]]) -> None:
    (flow / "mine.py").write_text("def g(x):\n    return x + 1\n\ndef f(x):\n    return g(x) * 10\n")
    process = script(
        """
import torcflow, mine, pathlib
wait = "while ! test -e go; do sleep 0.1; done"
with torcflow.Executor("test", backend="local", setup=wait, by_value=[mine]) as ex:
    future = ex.submit(mine.f, 1)
    while future.job is None:
        pass
    pathlib.Path("mine.py").unlink()
    pathlib.Path("go").touch()
    print(future.result())
"""
    )
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 0 and output.strip() == "20", errors


def another_python() -> Optional[str]:
    """An interpreter of another version than this one, if the machine has one."""
    own = "%d.%d" % sys.version_info[:2]
    places = [Path(place) for place in os.environ.get("PATH", "").split(os.pathsep)]
    places += Path.home().glob(".pyenv/versions/3.*/bin")
    for minor in range(9, 20):
        for place in places:
            program = place / f"python3.{minor}"
            if f"3.{minor}" != own and os.access(program, os.X_OK):
                asked = subprocess.run([program, "-c", "import sys; print(sys.version_info[1])"], capture_output=True)
                if asked.stdout.strip() == str(minor).encode():
                    return str(program)
    return None


def test_another_python_is_named_before_a_call_runs(flow: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = another_python()
    if program is None:
        pytest.skip("this machine has one version of Python only")
    log = flow / "log"
    with torcflow.Executor("test", backend="local") as executor:
        monkeypatch.setattr(sys, "executable", program)
        future = executor.submit(writes, str(log))
        error = future.exception(timeout=60)
    assert isinstance(error, torcflow.Changed) and not log.exists()
    assert f"submitted with Python {sys.version_info[0]}.{sys.version_info[1]}" in str(error) and program in str(error)


def test_a_batch_of_another_python_is_refused(flow: Path) -> None:
    """The same where only one Python is installed: the batch says which one made it."""
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


def writes(path: str) -> None:
    Path(path).touch()


def kills_its_runner(path: str) -> None:
    """What a node that dies looks like: the process that runs the job is killed, and the job with it."""
    with open(path, "a") as file:
        file.write("x")
    pid = os.getppid()
    # The runner, and not a helper of it between.
    while b"torc" not in Path(f"/proc/{pid}/comm").read_bytes():
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(pid, 9)
    time.sleep(60)


def test_a_call_whose_runner_dies_too_often_is_lost(local: torcflow.Executor, flow: Path) -> None:
    log = flow / "log"
    future = local.submit(kills_its_runner, str(log))
    error = future.exception(timeout=180)
    assert isinstance(error, torcflow.Lost), repr(error)
    assert 2 <= len(log.read_text()) <= 5, "it was tried again, and not forever"
    assert all(attempt.cause == "lost" for attempt in future.attempts)
    assert len(future.attempts) == len(log.read_text())
    notes = " ".join(error.__notes__)  # type: ignore[attr-defined]
    assert "kills_its_runner-00000" in notes
    # The executor is well.
    assert local.submit(broken, 0).result() == 1


def test_a_job_that_is_canceled_through_torc_is_canceled(local: torcflow.Executor) -> None:
    running, dependent = local.submit(time.sleep, 61), None
    while not running.running():
        time.sleep(0.05)
    dependent = local.submit(broken, running)
    client = local.client()
    assert running.job is not None
    (job,) = client.list_jobs(workflow_id=running.job[0], name=running.job[1])["items"]
    client.cancel_jobs({"job_ids": [job["id"]]})
    assert isinstance(running.exception(timeout=60), torcflow.Canceled)
    error = dependent.exception(timeout=60)
    assert isinstance(error, torcflow.DependencyFailed) and error.future is running


def test_a_workflow_that_is_canceled_with_torc_ends_all_its_calls(local: torcflow.Executor, flow: Path) -> None:
    futures = [local.submit(time.sleep, 100 + n) for n in range(6)]
    while not any(future.running() for future in futures):
        time.sleep(0.05)
    assert futures[0].job is not None
    program = os.environ.get("TORC_BIN", "torc")
    state = os.path.join(local.directory, "torc")
    subprocess.run([program, "--dir", state, "cancel", str(futures[0].job[0])], check=True, capture_output=True)
    assert all(isinstance(future.exception(timeout=60), torcflow.Canceled) for future in futures)


def test_a_failed_call_is_reproduced_here_with_its_arguments_also_those_of_other_calls(local: torcflow.Executor) -> None:
    def pick(values: list[int], place: int) -> int:
        return values[place]

    three = local.submit(lambda: 3)
    bad = local.submit(pick, [1, 2], three)
    assert isinstance(bad.exception(), IndexError)
    with pytest.raises(IndexError) as here:
        bad.reproduce()
    assert any(frame.name == "pick" for frame in here.traceback), "the debugger sees the frame of the call"


def test_a_call_that_exits_is_an_error_of_the_call(local: torcflow.Executor) -> None:
    assert isinstance(local.submit(sys.exit, 3).exception(), SystemExit)


def test_generators_and_coroutines_are_refused_as_functions_as_well(local: torcflow.Executor) -> None:
    async def later() -> int:
        return 1

    for function, remedy in ((numbers, "return a list"), (later, "asyncio.run")):
        with pytest.raises(torcflow.NotPicklable, match=remedy) as caught:
            local.submit(function)
        assert function.__name__ in caught.value.path
    # One that is made by the call itself is an error of the call.
    error = local.submit(lambda: (n for n in range(3))).exception()
    assert isinstance(error, torcflow.NotPicklable) and error.path == "result" and "give a list" in error.reason
