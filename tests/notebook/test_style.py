"""Figures of curves: their sliders and their looks."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

from aftlib.notebook.style import line_figure, line_look, table


@pytest.mark.parametrize(("start", "first"), [(None, 2), (1.1, 1), (9, 3)])
def test_a_slider_begins_in_the_middle_or_near_its_start(start, first):
    frame = pd.DataFrame({"x": [1] * 3, "y": [1, 2, 3], "method": ["a"] * 3, "ε": [1, 2, 3]})
    titles, looks = ("title", "x", "y"), {"a": line_look("#000")}
    figure = line_figure(frame, "x", "y", "method", looks, titles, slider="ε", start=start)
    assert figure.data[0].y == (first,) and figure.layout.sliders[0].active == first - 1


def test_a_curve_without_a_look_is_drawn_too():
    frame = pd.DataFrame({"x": [1, 2, 3], "y": [4, 5, 6], "who": ["mine", "known", "yours"]})
    looks = {"known": line_look("#333"), "absent": line_look("#444")}
    figure = line_figure(frame, "x", "y", "who", looks, ("title", "x", "y"))
    assert [trace.name for trace in figure.data] == ["known", "mine", "yours"]
    assert len({trace.line.color for trace in figure.data}) == 3


def test_curves_at_the_same_place_all_show():
    names = ["a", "b", "c"]
    frame = pd.DataFrame({"x": [1, 2] * 3, "y": [4, 5] * 3, "who": np.repeat(names, 2)})
    looks = {name: line_look("#333") for name in names}
    lower, middle, upper = line_figure(frame, "x", "y", "who", looks, ("title", "x", "y")).data
    assert lower.line.width > middle.line.width > upper.line.width
    assert lower.marker.size > middle.marker.size > upper.marker.size


def test_a_table_has_no_leftovers_of_pandas_and_readable_numbers():
    rows = {"ratio": [0.123456, -2.0], "count": [12345, 7], "who": ["<b>", None]}
    frame = pd.DataFrame(rows, index=pd.Index([0.5, 0.7], name="ε")).rename_axis(columns="method")
    html = table(frame, {"count": "{:,} kills"}).to_html()
    cells = re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", html)
    assert cells[:4] == ["ε", "ratio", "count", "who"]
    assert cells[4:] == ["0.5", "0.123", "12,345 kills", "&lt;b&gt;", "0.7", "−2", "7 kills", "–"]


def test_an_index_without_a_name_is_not_shown():
    assert re.findall(r"<td[^>]*>(.*?)<", table(pd.DataFrame({"a": [1]})).to_html()) == ["1"]
