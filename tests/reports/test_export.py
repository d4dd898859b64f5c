"""Drawings for paper: readable at the requested width, or refused with the least that works."""

from __future__ import annotations

import re

import plotly.graph_objects as go
import pytest
from plotly.subplots import make_subplots

from aftlib.reports import export
from aftlib.reports.export import pixels, readable
from aftlib.workbench.style import styled
from tests.reports.chromium import CHROMIUM, needs_browser
from tests.reports.test_layout import figures

pytestmark = [needs_browser, pytest.mark.slow]


def panels() -> go.Figure:
    plot = make_subplots(cols=3, shared_yaxes=True, subplot_titles=["a long title", "two", "three"])
    for column in (1, 2, 3):
        plot.add_scatter(y=[1, 2, 3], name="one of the methods", row=1, col=column)
    return styled(plot, "A title", "the same axis for all panels", "share")


def bars(count: int) -> go.Figure:
    names = [f"scheme number {i}" for i in range(count)]
    figure = go.Figure(go.Bar(x=[*range(count)], y=names, orientation="h", name="measured"))
    return styled(figure, "A title", "milliseconds until everything is there again, median", "")


def lines(**layout) -> go.Figure:
    figure = go.Figure(go.Scatter(y=[1, 2, 3], name="one"))
    return styled(figure, "A title", "x", "y").update_layout(**layout)


def words(count: int) -> go.Figure:
    names = [f"a long name, number {i}" for i in range(count)]
    return styled(go.Figure(go.Bar(x=names, y=[1] * count)), "A title", "", "y")


@pytest.mark.parametrize(
    ("figure", "width"),
    [*((each, "84mm") for each in (*figures(), panels(), bars(12), lines())), (panels(), "174mm")],
)
def test_common_figures_are_readable_in_a_column_and_on_a_page(figure, width):
    drawn = readable(figure.to_plotly_json(), CHROMIUM, pixels(width))
    assert drawn["layout"]["width"] == pytest.approx(pixels(width), abs=1)


def test_a_cell_draws_its_figure_for_paper(tmp_path):
    figure = lines().add_scatter(y=[3, 2, 1], name="two")
    target = export.draw(figure, tmp_path / "one.svg", series=["one"])
    assert target.read_text().count('class="trace scatter') == 1
    with pytest.raises(ValueError, match="format of a drawing must be one of svg, png, pdf, got"):
        export.draw(figure, tmp_path / "one.jpg")


def test_a_drawing_names_its_only_series_and_the_sliders_position(tmp_path):
    figure = lines().add_scatter(y=[3, 2, 1], name="two", showlegend=False)
    steps = [
        {"label": label, "method": "update", "args": [{"y": [[1, 2, 3], [3, 2, at]]}]}
        for at, label in enumerate(["0.1", "0.2"])
    ]
    figure.update_layout(sliders=[{"currentvalue": {"prefix": "ε = "}, "steps": steps}])
    for given, named in ((["two"], {"two"}), ([], {"one"})):
        drawn = export.draw(figure, tmp_path / "one.svg", series=given, at="0.2").read_text()
        assert set(re.findall(r'class="legendtext"[^>]*>([^<]*)<', drawn)) == named
        assert re.search(r'class="legendtitletext"[^>]*>ε = 0.2<', drawn)


def mark(x: float, xref: str = "x domain") -> dict:
    about = {"xref": xref, "yref": "paper" if xref == "paper" else "y domain", "showarrow": False}
    return about | {"x": x, "y": 0.5, "text": "a note on it"}


@pytest.mark.parametrize(
    ("figure", "problem"),
    [
        (lines(annotations=[mark(0.5), mark(0.52)]), '"a note on it" lies on "a note on it"'),
        (lines(annotations=[mark(1.1)]), '"a note on it" is cut off'),
        (lines(annotations=[mark(0.5, "paper")]), '"a note on it" lies on a panel'),
        (lines(xaxis={"tickfont": {"size": 7}}), '"0" is smaller than 6 pt'),
        (words(60), " of 60 labels are shown"),
    ],
)
def test_what_cannot_be_read_is_refused(figure, problem):
    with pytest.raises(
        ValueError, match=f"at 84 mm the figure is not readable: .*{re.escape(problem)}"
    ):
        readable(figure.to_plotly_json(), CHROMIUM, pixels("84mm"))


def test_a_refusal_names_the_least_width_that_will_do():
    figure = words(20).to_plotly_json()
    with pytest.raises(ValueError, match="give --width ") as refused:
        readable(figure, CHROMIUM, pixels("40mm"))
    least = re.search(r"give --width (\d+mm) or more", str(refused.value))[1]
    readable(figure, CHROMIUM, pixels(least))
    with pytest.raises(ValueError, match="leave out --height"):
        readable(figure, CHROMIUM, pixels(least), pixels("12mm"))
