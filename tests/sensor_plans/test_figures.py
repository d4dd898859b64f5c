"""Figures, tables and sentences show a user's names, and never take them for HTML or markup."""

import json

import numpy as np
import pandas as pd
import pytest

from aftlib.sensor_plans import figures
from aftlib.sensor_plans.experiments import over_time, troubles
from aftlib.sensor_plans.plan import plan as make_plan

BAD = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def plan():
    rng = np.random.default_rng(1)
    values = rng.normal(size=(4000, 1)) + 0.2 * rng.normal(size=(4000, 3))
    time = pd.date_range("2026-01-01", periods=4000, freq="h")
    frame = pd.DataFrame(values, time, [BAD, "b\n# c", "d"])
    given = {BAD: BAD, "b\n# c": "M", "d": "M"}
    return make_plan(frame, epsilon_sd=0.5, assignment=given, name=BAD, read_rate=1.0)


@pytest.mark.parametrize("name", ["outage", "over_time"])
def test_figures_escape_names(plan, name):
    drawn = getattr(figures, name)(plan)
    assert BAD not in json.dumps(json.loads(drawn.to_json()), ensure_ascii=False)
    assert drawn.layout.title.text and all(trace.name for trace in drawn.data)


def test_the_table_and_the_text_escape_names(plan):
    table, text = figures.details(plan).to_html(), figures.text(plan).data
    assert "<img" not in table + text and table.count("<tr>") == 4
    assert "Your grouping, certified" in text and "Does it pay?" in text


def test_sentences_escape_names(plan):
    text = figures.answer(plan).data
    assert "<img" not in text and "\\# c" in text and "sensors: 3" in text
    assert "of the losses were certified beforehand" in text and "Take " in text
    assert "Estimating pays below" in figures.answer(plan | {"worth": None}).data


def test_estimates_have_open_marks_and_half_widths(plan):
    drawn = figures.outage(plan)
    estimates = [trace for trace in drawn.data if trace.name.startswith("estimate")]
    assert estimates and all(trace.marker.symbol.endswith("-open") for trace in estimates)
    assert any(len(trace.error_y.array) for trace in estimates)


def test_many_sensors_are_cut_off(plan):
    many = plan | {"sensors": plan["sensors"] * 100}
    assert figures.details(many).to_html().count("<tr>") == figures.LISTED + 1


def test_troubles_are_drawn_with_and_without_the_guard():
    table = over_time(troubles(600, 0.05, 1))
    assert len(figures.troubles(table, 0.05).data) == 3 * 2 * 2
