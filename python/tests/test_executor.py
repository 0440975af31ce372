"""The executor on this machine, with the real program."""

from __future__ import annotations

import asyncio
import concurrent.futures
import dataclasses
import functools
import os
import signal
import stat
import subprocess
import sys
import sysconfig
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torcflow
from conftest import runner_pids


def square(x: int) -> int:
    return x * x


def add(a: int, b: int) -> int:
    return a + b


def total(values: list[int]) -> int:
    return sum(values)


def picky(x: int) -> int:
    if x == 3:
        raise ValueError("three is refused")
    return x


def count(path: str, x: int) -> int:
    with open(path, "a") as file:
        file.write(f"{x}\n")
    return x


def nothing(x: int) -> int:
    return x


@dataclasses.dataclass
class Point:
    x: int
    y: int


def mirrored(point: Point) -> Point:
    return Point(point.y, point.x)


def test_is_an_executor_of_the_standard_library(local: torcflow.Executor) -> None:
    assert isinstance(local, concurrent.futures.Executor)
    futures = [local.submit(square, n) for n in range(4)]
    assert all(isinstance(future, concurrent.futures.Future) for future in futures)
    done, left = concurrent.futures.wait(futures)
    assert not left
    assert sorted(future.result() for future in concurrent.futures.as_completed(done)) == [0, 1, 4, 9]
    assert futures[3].done() and not futures[3].cancelled()


def test_a_future_as_argument_is_a_dependency(local: torcflow.Executor) -> None:
    first = local.submit(square, 3)
    second = local.submit(add, first, 1)
    third = local.submit(total, [first, second, 5])
    assert third.result() == 9 + 10 + 5
    # An argument that has ended before is handed over as well.
    assert local.submit(add, third, b=second).result() == 34


def test_map_keeps_the_order_and_packs_calls(local: torcflow.Executor) -> None:
    assert list(local.map(add, range(300), range(300))) == [2 * n for n in range(300)]
    jobs = {future.job for future in local.futures}
    assert len(jobs) < 100, "many calls share a job"
    assert sorted(local.map(square, range(300), ordered=False)) == sorted(n * n for n in range(300))


def test_map_gives_exceptions_in_their_place(local: torcflow.Executor) -> None:
    results = list(local.map(picky, range(6), chunksize=6, return_exceptions=True))
    assert [r for r in results if not isinstance(r, Exception)] == [0, 1, 2, 4, 5]
    assert isinstance(results[3], ValueError)
    with pytest.raises(ValueError, match="three is refused"):
        list(local.map(picky, range(6)))
    assert list(local.failures()) == ["ValueError: three is refused"]


def test_lambdas_closures_dataclasses_partials_and_keywords(local: torcflow.Executor) -> None:
    factor = 7
    assert local.submit(lambda x: x * factor, 6).result() == 42
    assert local.submit(mirrored, Point(1, 2)).result() == Point(2, 1)
    assert local.submit(functools.partial(add, 1), b=2).result() == 3
    assert local.submit(Point(1, 2).__eq__, Point(1, 2)).result() is True


def test_numpy_travels_and_large_results_become_blobs(local: torcflow.Executor) -> None:
    numpy = pytest.importorskip("numpy")
    array = numpy.arange(100_000)
    result = local.submit(lambda a: a * 2, array).result()
    assert (result == array * 2).all()
    blobs = [path for path in Path(local.directory, "blobs").glob("*/*") if path.stat().st_size > 100_000]
    assert blobs, "a large result is a file"
    # A large result as an argument of another call.
    doubled = local.submit(lambda a: a * 2, array)
    assert local.submit(lambda a: int(a.sum()), doubled).result() == int(array.sum()) * 2


def test_names_are_the_same_in_every_process(local: torcflow.Executor) -> None:
    """Sets have another order in every process, and equal values may be one object or two."""
    text = """
import sys
sys.path.insert(0, sys.argv[1])
from torcflow._naming import call_name, function_name
def f(x): return x in {"one", "two", "three"}
word = "".join(["o", "ne"])
print(call_name(function_name(f)[0], ({"a", "b", "c"}, ["one", word], {"k": (1.5, None)}), {"z": 1, "y": 2}, None).hex())
"""
    root = str(Path(torcflow.__file__).parents[1])
    made = set()
    for seed in ("1", "2", "3"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run([sys.executable, "-c", text, root], capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stderr
        made.add(done.stdout)
    assert len(made) == 1


def test_frames_and_odd_arrays_have_names(local: torcflow.Executor) -> None:
    numpy = pytest.importorskip("numpy")
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1, 2], "b": ["x", "y"]})
    first = local.submit(len, frame)
    assert local.submit(len, frame.copy()) is first and first.result() == 2
    odd = numpy.array([(1, "x")], dtype=[("n", "i4"), ("o", object)])
    empty, times = numpy.zeros((0, 3)), numpy.array(["2026-01-01"], dtype="M8[D]")
    futures = [local.submit(len, value) for value in (odd, empty, times, numpy.asfortranarray(numpy.ones((2, 3))))]
    assert [future.result() for future in futures] == [1, 0, 1, 2]


def test_the_same_call_is_found_again_and_fresh_runs_it_again(flow: Path) -> None:
    log = str(flow / "log")
    for _ in range(2):
        with torcflow.Executor("test", backend="local") as executor:
            assert list(executor.map(count, [log] * 5, range(5))) == list(range(5))
    assert executor.progress().known == 5
    assert sorted(Path(log).read_text().split()) == ["0", "1", "2", "3", "4"]
    with torcflow.Executor("test", backend="local", fresh=True) as executor:
        assert executor.submit(count, log, 0).result() == 0
    assert Path(log).read_text().split().count("0") == 2
    with torcflow.Executor("test", backend="local", cache=False) as executor:
        futures = [executor.submit(count, log, 0) for _ in range(2)]
        assert [future.result() for future in futures] == [0, 0]
    assert Path(log).read_text().split().count("0") == 4


def test_a_key_and_a_change_of_the_code_make_another_call(local: torcflow.Executor) -> None:
    first = local.submit(square, 2)
    assert local.submit(square, 2) is first
    assert local.options(key=1).submit(square, 2).name != first.name
    made: list[Any] = []
    for text in ("def f(x): return x + 1", "def f(x): return x + 2", "def f(x):\n\n    return x + 1"):
        names: dict[str, Any] = {"__name__": "__main__"}
        exec(text, names)
        made.append(local.submit(names["f"], 1))
    assert [future.result() for future in made] == [2, 3, 2]
    assert made[0].name == made[2].name, "lines do not count, code does"


def test_results_are_in_a_directory_of_the_owner_and_bounded(flow: Path) -> None:
    with torcflow.Executor("test", backend="local", max_store="1m") as executor:
        for n in range(4):
            executor.submit(lambda size, n: bytes(size), 400_000, n).result()
        assert stat.S_IMODE(os.stat(executor.directory).st_mode) == 0o700
    with torcflow.Executor("test", backend="local", max_store="1m") as executor:
        progress = executor.progress()
        assert progress.stored == 2 and progress.stored_bytes < 1 << 20
        assert "2 results stored" in str(progress)
        assert executor.forget() == 2
        assert executor.progress().stored == 0
    torcflow.forget("test")
    assert not Path(executor.directory).exists()


def test_options_are_checked_with_the_nearest_word(local: torcflow.Executor) -> None:
    with pytest.raises(TypeError, match="did you mean 'memory'"):
        local.options(memroy="1g")
    with pytest.raises(ValueError, match="no duration"):
        local.options(time="soon")
    with pytest.raises(ValueError, match="'debug'|debug"):
        torcflow.Executor("x", backend="cloud")
    with pytest.raises(ValueError, match="no name"):
        torcflow.Executor("../x")


def test_what_the_server_refuses_fails_its_calls_and_no_others(local: torcflow.Executor) -> None:
    refused = local.options(priority="high").submit(square, 11)
    with pytest.raises(torcflow.TorcError, match="(?s)refuses.*priority"):
        refused.result()
    assert local.submit(square, 12).result() == 144


def test_a_missing_program_is_told_at_once(flow: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORC_BIN", raising=False)
    monkeypatch.setenv("PATH", str(flow))
    if not os.access(Path(sysconfig.get_path("scripts"), "torc"), os.X_OK):
        with pytest.raises(torcflow.TorcError, match="`torc` program is not there"):
            torcflow.Executor("test", backend="local")


def test_old_workflows_are_deleted_with_their_logs(flow: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torcflow._settle.KEPT_WORKFLOWS", 2)
    with torcflow.Executor("test", backend="local") as executor:
        for n in range(5):
            assert executor.submit(square, n).result() == n * n
            while executor._core.batches:
                time.sleep(0.05)
        assert [workflow["id"] for workflow in executor.client().iter_workflows(sort_by="id")] == [4, 5]
        logs = {path.name.split("_")[1] for path in Path(executor.directory, "output/job_stdio").iterdir()}
        assert logs <= {"wf4", "wf5"}


def test_a_script_without_shutdown_leaves_no_server(flow: Path, script: Any) -> None:
    process = script("import torcflow\nassert torcflow.Executor('test', backend='local').submit(abs, -1).result() == 1\n")
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert not (flow / "flow/test/torc/server.json").exists()


def test_a_question_after_the_end_leaves_no_server(flow: Path, script: Any) -> None:
    process = script(
        """
import torcflow
with torcflow.Executor("test", backend="local") as ex:
    future = ex.submit(divmod, 1, 0)
    error = future.exception()
print(len(future.attempts), "ZeroDivisionError" in future.why(), "ZeroDivisionError" in future.logs("stderr"))
"""
    )
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 0 and output.split() == ["1", "True", "True"], errors
    assert not (flow / "flow/test/torc/server.json").exists()


def test_a_future_can_be_awaited(local: torcflow.Executor) -> None:
    async def both() -> list[int]:
        return list(await asyncio.gather(local.submit(square, 5), asyncio.wrap_future(local.submit(square, 6))))

    assert asyncio.run(both()) == [25, 36]


def test_a_call_can_be_canceled(local: torcflow.Executor) -> None:
    future = local.submit(time.sleep, 60)
    while not future.running():
        time.sleep(0.05)
    began = time.monotonic()
    assert future.cancel()
    assert isinstance(future.exception(), torcflow.Canceled)
    assert time.monotonic() - began < 30
    other = local.submit(time.sleep, 61)
    assert other.cancel() and other.cancelled()


def test_options_reach_the_job(local: torcflow.Executor) -> None:
    future = local.options(cpus=2, memory="300m", time="10m", retries=1, priority=3).submit(square, 9)
    assert future.result() == 81
    assert future.job is not None
    with local.client() as client:
        (job,) = client.list_jobs(workflow_id=future.job[0])["items"]
        assert (job["num_cpus"], job["memory"], job["priority"]) == (2, "300m", 3)
        assert job["failure_handler"] == "retry1"


def test_a_context_tells_of_the_job(local: torcflow.Executor) -> None:
    def look() -> Any:
        import torcflow

        context = torcflow.context()
        return context.job_name, context.attempt, context.time_left, os.path.isdir(context.checkpoint_dir)

    name, attempt, left, there = local.options(time=60).submit(look).result()
    assert name.startswith("look-") and attempt == 1 and 0 < left <= 60 and there


def test_map_frame_returns_the_frame_with_results_and_errors(local: torcflow.Executor) -> None:
    pandas = pytest.importorskip("pandas")
    frame = local.map_frame(picky, pandas.DataFrame({"x": [1, 3, 5]}))
    assert list(frame["torc_status"]) == ["done", "failed", "done"]
    assert frame["torc_error"][1] == "ValueError: three is refused"
    assert [frame["result"][0], frame["result"][2]] == [1, 5]
    # A call's value is stored before the server hears of the end of its job.
    while (table := local.dataframe())["job_seconds"].isna().any():
        time.sleep(0.05)
    assert sorted(table["status"]) == ["done", "done", "failed"]
    assert set(table["function"]) == {"picky"} and set(table["attempts"]) == {1}
    assert (table["seconds"].dropna() >= 0).all() and (table["job_seconds"] > 0).all() and table["host"].notna().all()


def test_debug_runs_here(flow: Path) -> None:
    thread = threading.get_ident()
    with torcflow.Executor("test", backend="debug") as executor:
        future = executor.submit(threading.get_ident)
        assert future.result() == thread
        assert executor.submit(add, executor.submit(square, 2), 1).result() == 5
        bad = executor.submit(picky, 3)
        assert isinstance(bad.exception(), ValueError)
        assert isinstance(executor.submit(add, bad, 1).exception(), torcflow.DependencyFailed)
        with pytest.raises(ValueError):
            bad.reproduce()
        assert list(executor.map(square, range(3))) == [0, 1, 4]
    assert not (flow / "flow").exists()


def test_a_task_runs_here_and_there(flow: Path) -> None:
    with torcflow.Executor("test", backend="local") as executor:

        @torcflow.task(executor=executor, cpus=1)
        def cube(x: int) -> int:
            return x**3

        assert cube(2) == 8 and cube.local(3) == 27
        assert cube.submit(4).result() == 64
        assert list(cube.map(range(3))) == [0, 1, 8]
        # A task in another task's code travels as its function.
        assert executor.submit(lambda x: cube(x) + 1, 2).result() == 9
        with pytest.raises(TypeError, match="did you mean 'cpus'"):
            torcflow.task(cpu=1)(square)


def test_ten_thousand_calls_are_quick(local: torcflow.Executor) -> None:
    # The time that is promised holds on two idle cores; here it must only not be lost by a factor.
    began = time.monotonic()
    assert sum(local.map(nothing, range(10_000))) == sum(range(10_000))
    assert time.monotonic() - began < 60


def test_slow_calls_of_an_unknown_function_are_spread(local: torcflow.Executor) -> None:
    def nap(x: int) -> int:
        time.sleep(0.4)
        return x

    cpus = len(os.sched_getaffinity(0))
    calls = cpus * 4 * 8
    assert list(local.map(nap, range(calls))) == list(range(calls))
    workflows = {future.job[0] for future in local.futures if future.job}
    assert len(workflows) > 1, "jobs gave back what did not fit into their time"


def counts_to(path: str, end: int) -> list[int]:
    """A call that saves how far it is when it is told to end: the steps of each attempt."""
    import torcflow

    context = torcflow.context()
    state = os.path.join(context.checkpoint_dir, "step")
    step = int(open(state).read()) if os.path.exists(state) else 0
    began = step

    @context.on_stop
    def save() -> None:
        with open(state, "w") as file:
            file.write(str(step))

    with open(path, "a") as file:
        file.write(f"{began}\n")
    while step < end:
        time.sleep(0.05)
        step += 1
    return [began, step]


def test_a_call_saves_its_state_when_its_time_is_over_and_goes_on_from_there(flow: Path) -> None:
    log = flow / "log"
    with torcflow.Executor("test", backend="local", time=1) as executor:
        future = executor.submit(counts_to, str(log), 45)
        began, step = future.result(timeout=60)
        assert step == 45 and began > 20
        begins = [int(line) for line in log.read_text().split()]
        assert begins[0] == 0 and begins == sorted(set(begins)) and len(begins) >= 2, "each attempt went on"
        assert future.attempts[0].cause == "checkpoint"
        assert not list(Path(executor.directory, "checkpoints").iterdir()), "a call that returned needs no checkpoint"


def test_a_call_saves_its_state_when_its_runner_is_stopped(flow: Path) -> None:
    log = flow / "log"
    with torcflow.Executor("test", backend="local", grace="20s") as executor:
        future = executor.submit(counts_to, str(log), 60)
        while not log.exists() or not log.read_text():
            time.sleep(0.02)
        time.sleep(0.5)
        for pid in runner_pids(flow):
            os.kill(pid, signal.SIGTERM)
        began, step = future.result(timeout=60)
        assert step == 60 and began > 0
        assert len(log.read_text().split()) == 2


def test_a_call_that_saves_too_slowly_ends_with_its_time_limit(flow: Path) -> None:
    def slow() -> None:
        import torcflow

        torcflow.context().on_stop(lambda: time.sleep(60))
        time.sleep(60)

    with torcflow.Executor("test", backend="local", grace=1, time=1) as executor:
        assert isinstance(executor.submit(slow).exception(timeout=60), torcflow.TimeLimit)


def test_a_scratch_directory_is_there_for_one_call(local: torcflow.Executor) -> None:
    def scratch(n: int) -> tuple[str, list[str]]:
        import torcflow

        path = torcflow.context().scratch
        found = os.listdir(path)
        open(os.path.join(path, str(n)), "w").close()
        return path, found

    first, second = local.map(scratch, range(2), chunksize=2)
    assert first[1] == second[1] == [] and first[0] != second[0]
    assert not os.path.exists(first[0]) and not os.path.exists(second[0])


def test_shutdown_without_waiting_refuses_new_calls_and_leaves_the_others(flow: Path) -> None:
    executor = torcflow.Executor("test", backend="local")
    future = executor.submit(square, 7)
    executor.shutdown(wait=False)
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(square, 8)
    assert future.result(timeout=60) == 49
    executor.shutdown()


def test_the_first_example_of_submitit_runs_line_by_line(flow: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The lines of its README are the comments."""

    # def add(a, b):
    #     return a + b
    # executor = submitit.AutoExecutor(folder="log_test")
    executor = torcflow.Executor("log_test", backend="local")
    # executor.update_parameters(timeout_min=1, slurm_partition="dev")
    executor = executor.options(time="1m")
    # job = executor.submit(add, 5, 7)
    job = executor.submit(add, 5, 7)
    # print(job.job_id)
    print(job.name)
    assert len(capsys.readouterr().out.strip()) == 40
    # output = job.result()
    output = job.result()
    # assert output == 12
    assert output == 12
    # job.stdout(), job.stderr()
    assert job.logs("stdout") == "" and job.logs("stderr") == ""
    # executor.map_array(add, a, b)
    a, b = [1, 2, 2, 1], [10, 20, 30, 40]
    assert list(executor.map(add, a, b)) == [11, 22, 32, 41]
    # with executor.batch():
    #     for arg in whatever: jobs.append(executor.submit(myfunc, arg))
    jobs = [executor.submit(square, arg) for arg in range(20)]
    assert [one.result() for one in jobs] == [n * n for n in range(20)]
    assert len({one.job[0] for one in jobs if one.job}) == 1, "a loop of submissions is one workflow"
    executor.shutdown()
    torcflow.attach("log_test", backend="local").shutdown()


def test_modules_beside_the_script_are_found_by_the_jobs(flow: Path) -> None:
    """A project with a library beside the script and a package below, started from another directory."""
    project = flow / "project"
    (project / "tools").mkdir(parents=True)
    (project / "tools" / "__init__.py").write_text("")
    (project / "tools" / "deep.py").write_text("def half(x):\n    return x / 2\n")
    (project / "library.py").write_text("from tools.deep import half\n\ndef f(x):\n    return half(x) + 1\n")
    (project / "main.py").write_text(
        "import torcflow, library\nfrom tools import deep\n"
        "with torcflow.Executor('test', backend='local') as ex:\n"
        "    print(ex.submit(library.f, 4).result(), list(ex.map(deep.half, [2, 4])))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(torcflow.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "project/main.py"], cwd=flow, env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.strip() == "3.0 [1.0, 2.0]", done.stderr


def test_auto_is_slurm_where_sbatch_is_found_and_local_elsewhere(flow: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = flow / "bin"
    found.mkdir()
    monkeypatch.setenv("PATH", str(found))
    with torcflow.Executor("test") as executor:
        assert executor.backend == "local"
    (found / "sbatch").write_text("#!/bin/sh\n")
    (found / "sbatch").chmod(0o755)
    with torcflow.Executor("test") as executor:
        assert executor.backend == "slurm"


def test_slurm_without_an_account_is_refused_before_a_call_is_taken(flow: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_ACCOUNT", raising=False)
    monkeypatch.delenv("SBATCH_ACCOUNT", raising=False)
    with torcflow.Executor("test", backend="slurm") as executor:
        with pytest.raises(ValueError, match="account=.*SBATCH_ACCOUNT.*backend='local'"):
            executor.submit(square, 3)
    with torcflow.Executor("test", backend="local") as executor:
        assert executor.submit(square, 3).result(timeout=60) == 9
    # What is known costs nothing.
    with torcflow.Executor("test", backend="slurm") as executor:
        assert executor.submit(square, 3).result(timeout=60) == 9
