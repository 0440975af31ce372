"""The client, the builder, notebooks, and what holds for the package as a whole."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Callable

import pytest
import torcflow

HERE = Path(__file__).parents[1]


def double(x: int) -> int:
    return 2 * x


def test_the_generated_client_is_current() -> None:
    done = subprocess.run([sys.executable, str(HERE / "generate_client.py"), "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_operation_has_a_method() -> None:
    document = json.loads((HERE.parent / "docs" / "openapi.json").read_text())
    below = [verbs for path, verbs in document["paths"].items() if path.startswith("/torc-service/v1/")]
    operations = {one["operationId"] for verbs in below for one in verbs.values()}
    assert {name for name in operations if not hasattr(torcflow.Client, name)} == set()


def test_importing_loads_nothing_heavy() -> None:
    text = "import sys; import torcflow; print([m for m in ('typing', 'socket', 'sqlite3', 'cloudpickle', 'json') if m in sys.modules])"
    bare = subprocess.run([sys.executable, "-S", "-c", text], cwd=HERE, capture_output=True, text=True)
    assert bare.stdout.strip() == "[]", bare.stderr
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        torcflow.Nothing  # noqa: B018
    assert set(torcflow.__all__) <= set(dir(torcflow))
    for name in torcflow.__all__:
        assert getattr(torcflow, name) is not None


def test_the_client_pages_waits_and_makes_frames(local: torcflow.Executor) -> None:
    list(local.map(double, range(6), chunksize=1))
    client = local.client()
    (workflow,) = client.iter_workflows()
    assert client.wait(workflow["id"], timeout=60)["is_complete"]
    pages = client._pages(lambda start: client.list_jobs(workflow_id=workflow["id"], after=start, limit=4), True)
    assert len({job["id"] for job in pages}) == 6
    kinds = [event["kind"] for event in client.iter_events(workflow["id"])]
    assert "workflow_completed" in kinds
    for event in client.follow(workflow["id"]):
        if event["kind"] == "workflow_completed":
            break
    pytest.importorskip("pandas")
    assert len(client.results_frame(workflow["id"])) == 6
    # The runner may have told of its own end meanwhile.
    assert list(client.events_frame(workflow["id"])["kind"])[: len(kinds)] == kinds


def test_refusals_are_errors_with_code_and_hint(local: torcflow.Executor) -> None:
    with pytest.raises(torcflow.ApiError) as caught:
        local.client().list_jobs(limit=0)
    assert caught.value.status == 400 and caught.value.code == "invalid_query" and caught.value.field == "limit"
    with pytest.raises(torcflow.ApiError, match="no server runs"):
        torcflow.Client(directory="nowhere")
    with pytest.raises(torcflow.ApiError) as gone:
        torcflow.Client("http://127.0.0.1:9", "token").get_health()
    assert gone.value.unreachable


def test_the_builder_writes_what_torc_runs(flow: Path) -> None:
    wf = torcflow.Workflow("built", env={"GREETING": "hello"})
    first = wf.job("first", "echo $GREETING > first.txt", outputs=["first.txt"])
    sweep = wf.sweep("s_{i}_{k}", "echo {i}{k} > s_{i}_{k}.txt", {"i": [1, 2], "k": ["a", "b"]}, after=first, cpus=1)
    wf.reduce("all", "cat s_*.txt | sort > all.txt", over=sweep)
    wf.job("stepped", steps=["true", {"shell": "echo well > stepped.txt"}], after=[first, "all"], retries=2)
    assert "critical path" in wf.check() or "stages" in wf.check()
    wf.run()
    assert Path("all.txt").read_text().split() == ["1a", "1b", "2a", "2b"]
    assert Path("first.txt").read_text() == "hello\n" and Path("stepped.txt").exists()
    wf.write("built.yaml")
    assert json.loads(Path("built.yaml").read_text()) == wf.spec
    bad = torcflow.Workflow("bad")
    bad.job("fails", "exit 3")
    with pytest.raises(torcflow.TorcError, match="did not succeed"):
        bad.run()
    with pytest.raises(TypeError, match="either `command` or `steps`"):
        bad.job("nothing")
    with pytest.raises(ValueError, match="told apart"):
        bad.sweep("same", "true", {"i": [1]})
    bad.job("misspelt", "true", timout="1m")
    with pytest.raises(torcflow.TorcError, match="timeout"):
        bad.check()


def test_the_page_can_be_opened(local: torcflow.Executor) -> None:
    local.submit(double, 1).result()
    import urllib.request

    link = next(word for word in local.page().split() if word.startswith("http"))
    with urllib.request.urlopen(link.partition("#")[0], timeout=10) as answer:
        assert answer.status == 200 and b"<html" in answer.read().lower()


def test_it_shows_itself_in_html(local: torcflow.Executor) -> None:
    def bad() -> None:
        raise ValueError("<b>not markup</b>")

    local.submit(bad).exception()
    text = local._repr_html_()
    assert "&lt;b&gt;not markup" in text and "<b>not" not in text
    assert "0 of 1 done, 1 failed" in text


NOTEBOOK = """
import torcflow
ex = torcflow.Executor("book", backend="local")
def f(x):
    return x + 1
results = list(ex.map(f, range(5)))
assert ex.watch()
assert await ex.submit(f, 10) == 11
print(results, ex.progress().known)
ex
"""


def run_notebook(directory: Path, text: str) -> Any:
    """Runs one cell as `jupyter nbconvert --execute` does; its outputs."""
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    book = nbformat.v4.new_notebook()
    book.cells = [nbformat.v4.new_code_cell(f"import sys; sys.path.insert(0, {str(HERE)!r})\n" + text)]
    resources = {"metadata": {"path": str(directory)}}
    nbclient.NotebookClient(book, timeout=120, kernel_name="python3", resources=resources).execute()
    return book.cells[0]["outputs"]


def printed(outputs: Any) -> str:
    return "".join(output.get("text", "") for output in outputs)


def displays(outputs: Any) -> list[str]:
    return [output["data"]["text/html"] for output in outputs if "text/html" in output.get("data", {})]


def test_notebooks_run_and_find_their_results_again(flow: Path) -> None:
    for known in (0, 6):
        outputs = run_notebook(flow, NOTEBOOK)
        assert f"[1, 2, 3, 4, 5] {known}" in printed(outputs)
        shown = displays(outputs)
        assert len(shown) == 2, "one of `watch`, one of the cell's value"
        assert "5 of 5 done" in shown[0] and "6 of 6 done" in shown[1]
        assert "<code>torc --dir" in shown[1] and "#k=" not in shown[1]


def test_a_display_in_a_notebook_is_updated_in_place(flow: Path) -> None:
    text = """
import time, torcflow
ex = torcflow.Executor("book", backend="local")
def nap(n):
    time.sleep(0.3)
    return n
futures = [ex.submit(nap, n) for n in range(8)]
assert not ex.watch(interval=0.1, timeout=0.0)
seen = []
import IPython.display
update = IPython.display.DisplayHandle.update
def counted(self, obj, **kwargs):
    seen.append(obj._repr_html_())
    return update(self, obj, **kwargs)
IPython.display.DisplayHandle.update = counted
ex.watch(interval=0.1)
print("updates", len(seen))
"""
    outputs = run_notebook(flow, text)
    shown = displays(outputs)
    assert len(shown) == 2 and "8 of 8 done" in shown[1], "one output for each `watch`, which shows the end"
    assert int(printed(outputs).split("updates ")[1]) >= 2


KILLED = """
import os, time, torcflow
with open("kernel", "w") as file:
    file.write(str(os.getpid()))
os.rename("kernel", "kernel.pid")
def work(n):
    with open("log", "a") as file:
        file.write(f"{n}\\n")
    time.sleep(0.1)
    return n * n
with torcflow.Executor("book", backend="local") as ex:
    results = list(ex.map(work, range(60), chunksize=4))
    print(sum(results), ex.progress().known)
"""


def test_a_kernel_that_is_killed_in_a_cell_loses_nothing(flow: Path) -> None:
    nbclient = pytest.importorskip("nbclient")
    log, pid = flow / "log", flow / "kernel.pid"

    def kill() -> None:
        while not pid.exists() or not log.exists() or len(log.read_text().split()) < 20:
            time.sleep(0.02)
        os.kill(int(pid.read_text()), signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(nbclient.exceptions.DeadKernelError):
        run_notebook(flow, KILLED)
    killer.join()
    text = printed(run_notebook(flow, KILLED))
    total, known = text.split()
    assert int(total) == sum(n * n for n in range(60))
    # Server and runner went on without the kernel, so that most was done when it came back, and nothing ran twice.
    assert sorted(log.read_text().split(), key=int) == [str(n) for n in range(60)]
    assert int(known) >= 1


def test_watch_is_a_bar_of_rich_in_a_terminal_and_one_line_elsewhere(
    flow: Path, script: Callable[..., subprocess.Popen[str]]
) -> None:
    text = """
import time, torcflow
with torcflow.Executor("test", backend="local") as ex:
    futures = [ex.submit(time.sleep, 0.2 + n / 100) for n in range(6)]
    ex.watch(interval=0.1)
"""
    process = script(text)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0 and errors.count("\n") == 1 and "6 of 6 done" in errors
    for number, hide in enumerate(("", HIDE)):
        if not hide and importlib.util.find_spec("rich") is None:
            continue
        (flow / "script.py").write_text("import importlib.util\n" + hide + text.replace("0.2", f"0.{number + 3}"))
        seen = in_terminal([sys.executable, "script.py"], flow)
        assert "6 of 6 done" in seen and ("━" in seen) == (not hide), seen


HIDE = """
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name == "rich" else find(name, *more)
"""


def in_terminal(command: list[str], directory: Path) -> str:
    """Runs a command in a terminal of its own; what it showed."""
    import pty

    master, slave = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": str(HERE), "TERM": "xterm", "COLUMNS": "200"}
    process = subprocess.Popen(command, cwd=directory, env=environment, stdin=slave, stdout=slave, stderr=slave)
    os.close(slave)
    seen = b""
    while True:
        try:
            part = os.read(master, 65536)
        except OSError:  # the last process closed it
            break
        if not part:
            break
        seen += part
    assert process.wait(timeout=60) == 0, seen.decode(errors="replace")
    os.close(master)
    return seen.decode(errors="replace")
