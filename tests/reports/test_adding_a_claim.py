"""A newcomer adds a claim to a copy of the project: one file, and every page has it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from nbformat.v4 import new_code_cell

from tests.tiny_project import write_notebook

ROOT = Path(__file__).parents[2]
ADDED = '''

def buckets_fit_in_a_megabyte(sizes: pd.DataFrame) -> Finding:
    """D5-99: the largest histogram."""
    return Finding(sizes["bytes"].max(), note="Of all windows tried.")


CLAIMS.append(
    Claim(
        "D5-99",
        "A histogram fits in a megabyte.",
        buckets_fit_in_a_megabyte,
        expected="≤ 10⁶",
        threshold=Threshold("ours: the cache of a core", high=1e6),
        unit="bytes",
        figure="Memory of a window full of ones",
    )
)
'''
# The notebook below has the frame of the claims about sizes only.
OTHERS_LEFT_OUT = """
import inspect
CLAIMS[:] = [each for each in CLAIMS if [*inspect.signature(each.judge).parameters] == ["sizes"]]
"""
# The frame that its experiment would return; the last cell is the notebook's own.
FRAMES = """
import pandas as pd
from aftlib.exponential_histogram.claims import CLAIMS
from aftlib.workbench.scorecard import Scorecard

sizes = pd.read_csv("{FOLDER}/d5_sizes.csv")
"""


@pytest.mark.slow
def test_a_claim_is_added_in_one_file(tmp_path):
    skipped = shutil.ignore_patterns("__pycache__")
    for name in ("aftlib", "docs/documents", "notebooks", "tests/frames"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=skipped)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    with (tmp_path / "aftlib" / "exponential_histogram" / "claims.py").open("a") as file:
        file.write(ADDED + OTHERS_LEFT_OUT)

    name = "05_exponential_histogram"
    cells = json.loads((ROOT / "notebooks" / f"{name}.ipynb").read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    frames = FRAMES.replace("{FOLDER}", str(tmp_path / "tests" / "frames"))
    own = [cell for cell in code if "Scorecard(" in cell and "import" not in cell]
    shown = [new_code_cell(frames), *map(new_code_cell, own)]
    write_notebook(tmp_path / "notebooks" / f"{name}.ipynb", shown)

    done = subprocess.run(
        [sys.executable, "-m", "aftlib.reports.cli", "reproduce", "--only", "D5"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path), "AFT_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    records = {c["id"]: c for c in json.loads((tmp_path / "reports/claims.json").read_text())}
    assert (records["D5-99"]["verdict"], records["D5-99"]["unit"]) == ("holds", "bytes")
    assert records["D5-3"]["verdict"] == "holds" and records["D1-1"]["verdict"] == "not run"
    for page in (f"{name}.html", "index.html", "documents/d5.html"):
        text = (tmp_path / "reports" / page).read_text()
        assert "claim-D5-99" in text and "A histogram fits in a megabyte." in text
