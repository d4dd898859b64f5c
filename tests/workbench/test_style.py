"""Sliders of figures: in JupyterLab they call the library again; elsewhere the figure is static."""

from __future__ import annotations

import builtins

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest

from aftlib import RecoveryTime, Requirement, assign_greedy, plan_checkpoints
from aftlib.approximately_once import figures as first
from aftlib.checkpoint_planning import figures as second
from aftlib.core.generators import block_model
from aftlib.workbench.style import explorable, line_figure, line_look


@pytest.fixture
def lab(monkeypatch):
    """A kernel whose notebook is open in JupyterLab; return what widgets display there."""
    displayed = []
    monkeypatch.setenv("JPY_SESSION_NAME", "01_approximately_once.ipynb")
    monkeypatch.setattr("ipywidgets.widgets.interaction.display", displayed.append)
    return displayed


@pytest.fixture(autouse=True)
def no_lab(monkeypatch):
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)


def move(widget, **values) -> go.Figure:
    """Move the sliders of a widget; return the figure that it shows then."""
    for name, value in values.items():
        (slider,) = (part for part in widget.children[:-1] if part.description == name)
        slider.value = value
    return widget.result


def plan_window(epsilon, delta, t_sla_ms, method):
    requirement, recovery = Requirement(epsilon, delta), RecoveryTime(28.33, 9.332e-4)
    steps = block_model(40, 4, 60.0, 30.0)
    return plan_checkpoints(steps, 2000, requirement, recovery, t_sla_ms, method=method)


def test_without_a_live_notebook_the_figure_is_static():
    assert isinstance(first.explore(block_model(12, 4), 3, 0.8, 0.05), go.Figure)
    assert isinstance(second.explore(plan_window, 0.3, 0.05, 30), go.Figure)


@pytest.mark.parametrize(("start", "first"), [(None, 2), (1.1, 1), (9, 3)])
def test_a_slider_begins_in_the_middle_or_near_its_start(start, first):
    frame = pd.DataFrame({"x": [1] * 3, "y": [1, 2, 3], "method": ["a"] * 3, "ε": [1, 2, 3]})
    titles, looks = ("title", "x", "y"), {"a": line_look("#000")}
    figure = line_figure(frame, "x", "y", "method", looks, titles, slider="ε", start=start)
    assert figure.data[0].y == (first,) and figure.layout.sliders[0].active == first - 1


def test_without_ipywidgets_the_figure_is_static(lab, monkeypatch):
    real = builtins.__import__

    def refuse(name, *rest):
        if name == "ipywidgets":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", refuse)
    shown = explorable(lambda x: go.Figure(layout={"title": str(x)}), x=("x", [1, 2], 2))
    assert isinstance(shown, go.Figure) and shown.layout.title.text == "2"


def test_sliders_of_d1_assign_again(lab):
    widget = first.explore(block_model(12, 4), 3, 0.8, 0.05)
    shown = move(widget, **{"ε": 0.6, "m": 4})
    known, requirement = block_model(12, 4), Requirement(0.6, 0.05)
    expected = assign_greedy(known, 4, requirement).reliability
    np.testing.assert_allclose(shown.data[0].y, sorted(expected, reverse=True))
    assert lab[-1] is shown
    shown = move(widget, **{"δ": 0.2})
    estimable = assign_greedy(known, 4, Requirement(0.6, 0.2)).estimable.sum()
    assert f"Estimable of 4 workers at ε = 0.6: greedy {estimable}," in shown.layout.title.text


def test_sliders_of_d2_plan_again_and_leave_out_what_has_no_plan(lab):
    widget = second.explore(plan_window, 0.3, 0.05, 30)
    shown = move(widget, **{"ε": 0.15, "δ": 0.1, "T_SLA (ms)": 35})
    plan = plan_window(0.15, 0.1, 35, "proposed")
    (marks,) = (trace for trace in shown.data if trace.name == "proposed: checkpoint")
    assert marks.x == plan.checkpoints and plan.checkpoints
    short = second.explore(plan_window, 0.3, 0.05, 20)  # every recovery takes at least 28.33 ms
    assert not short.result.data


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
