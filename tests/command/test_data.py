"""A report's figures and tables come back as the frames that they were drawn from."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output
from plotly.subplots import make_subplots

import aftlib.command.data
from aftlib.command.batch import Executed
from aftlib.command.data import read_figure, read_tables, report_data
from aftlib.command.pages import PLOTLY
from aftlib.notebook.scorecard import MIME
from aftlib.notebook.style import line_figure, line_look, table

POINTS = pd.DataFrame(
    {
        "m": [1, 2, 4] * 4,
        "rate": np.linspace(0.1, 1 / 3, 12),
        "method": (["greedy"] * 3 + ["h-best"] * 3) * 2,
        "ε": [0.5] * 6 + [0.7] * 6,
    }
)


def draw(**options):
    looks = {name: line_look("#000") for name in ("greedy", "h-best")}
    figure = line_figure(POINTS, "m", "rate", "method", looks, ("Rates", "m", "rate"), **options)
    return json.loads(figure.to_json())


def test_a_figure_gives_back_every_point_of_every_position_of_its_slider():
    frame = read_figure(draw(slider="ε", label="ε"))
    assert frame.attrs == {"title": "Rates", "x": "m", "y": "rate"}
    names = {"series": "method", "x": "m", "y": "rate"}
    back = frame.rename(columns=names).sort_values(["ε", "method", "m"], ignore_index=True)
    pd.testing.assert_frame_equal(back[[*POINTS]], POINTS, check_dtype=False)


def test_arrays_stored_as_bytes_and_panels_and_error_bars():
    figure = make_subplots(cols=2)
    x = np.array([1.5, 2.5])
    figure.add_bar(x=x, y=x * 2, error_y={"array": x, "arrayminus": x / 2}, row=1, col=2)
    figure.add_scatter(x=x, y=x, name="line", row=1, col=1)
    drawn = json.loads(figure.to_json())
    assert "bdata" in drawn["data"][0]["x"]
    frame = read_figure(drawn)
    assert frame["panel"].tolist() == [2, 2, 1, 1]
    assert frame["series"].tolist() == ["series 1", "series 1", "line", "line"]
    assert frame["low"].tolist()[:2] == [2.25, 3.75]
    assert frame["high"].tolist()[:2] == [4.5, 7.5]


def test_tables_give_back_numbers_and_texts():
    rows = {"who": ["a & b", "c"], "count": [12345, -2], "share": ["9 %", "–"]}
    (frame,) = read_tables(table(pd.DataFrame(rows)).to_html())
    pd.testing.assert_frame_equal(frame.drop(columns="share"), pd.DataFrame(rows)[["who", "count"]])
    assert frame["share"].tolist() == ["9 %", "–"]


def test_headings_above_each_other_and_cells_that_span_rows():
    index = pd.MultiIndex.from_product([["a", "b"], [1, 2]], names=["who", "m"])
    columns = pd.MultiIndex.from_product([["rate"], ["low", "high"]])
    frame = pd.DataFrame(np.arange(8).reshape(4, 2), index=index, columns=columns)
    (read,) = read_tables(frame.style.set_caption("Rates").to_html())
    assert read.columns.tolist() == ["who", "m", "rate low", "rate high"]
    assert read["who"].tolist() == ["a", "a", "b", "b"]
    assert read["rate high"].tolist() == [1, 3, 5, 7]
    assert read.attrs["title"] == "Rates"


@pytest.fixture
def executed(tmp_path):
    """An executed notebook with two figures, a table and claims."""
    bundles = [
        {PLOTLY: draw()},
        {"text/html": pd.DataFrame({"a": [1]}).to_html()},
        {PLOTLY: draw()},
    ]
    bundles += [{MIME: [{"id": "D1-1", "verdict": "open"}], "text/html": "<table></table>"}]
    bundles += [{MIME: [{"id": "D1-1", "verdict": "holds"}]}, {"text/html": "<p>no table</p>"}]
    outputs = [new_output("display_data", data=bundle) for bundle in bundles]
    content = new_notebook(cells=[new_code_cell(outputs=outputs)])
    content.metadata["aft"] = {"error": None}
    return Executed(tmp_path / "01.ipynb", content)


def test_frames_are_named_in_order_and_the_last_verdict_counts(executed, monkeypatch):
    monkeypatch.setattr(aftlib.command.data, "_find_executed", lambda report: executed)
    frames = report_data("01")
    assert [*frames] == ["figure 1", "table 1", "figure 2", "claims"]
    assert frames["claims"]["verdict"].tolist() == ["holds"]
    assert "greedy" in frames["figure 1"].to_csv() and frames["table 1"].to_latex(index=False)


def test_a_report_that_has_not_run_is_refused_with_the_command(home):
    with pytest.raises(ValueError, match="call `aft reproduce --only D1` first"):
        report_data("01")
    with pytest.raises(ValueError, match="notebook must be a file or one of"):
        report_data("09")
