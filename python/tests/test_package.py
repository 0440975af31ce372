"""The client, the builder, notebooks, and what holds for the package as a whole."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

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
    operations = {one["operationId"] for verbs in document["paths"].values() for one in verbs.values()}
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
ex.watch()
assert await ex.submit(f, 10) == 11
print(results, ex.progress().known)
ex
"""


def test_notebooks_run_and_find_their_results_again(flow: Path) -> None:
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    for known in (0, 6):
        book = nbformat.v4.new_notebook()
        book.cells = [nbformat.v4.new_code_cell(f"import sys; sys.path.insert(0, {str(HERE)!r})\n" + NOTEBOOK)]
        nbclient.NotebookClient(book, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(flow)}}).execute()
        outputs = book.cells[0]["outputs"]
        text = "".join(output.get("text", "") for output in outputs)
        assert f"[1, 2, 3, 4, 5] {known}" in text
        shown = [output["data"]["text/html"] for output in outputs if "text/html" in output.get("data", {})]
        assert any("6 of 6 done" in html for html in shown)
