"""Every Python block of docs/python.md runs, in order, in one script."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest


def test_every_block_of_the_page_runs(flow: Path) -> None:
    pytest.importorskip("numpy")
    page = Path(__file__).parents[2] / "docs" / "python.md"
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.S | re.M)
    assert len(blocks) >= 12
    # Blank lines keep the numbers of lines the same as on the page.
    text = ""
    for found in re.finditer(r"^```python\n(.*?)^```", page.read_text(), re.S | re.M):
        line = page.read_text()[: found.start(1)].count("\n")
        text += "\n" * (line - text.count("\n")) + found[1]
    (flow / "page.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "page.py"],
        cwd=flow,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
