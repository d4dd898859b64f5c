"""Figures, tables and sentences show a user's names, and never take them for HTML or markup."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from aftlib.sensor_plans import figures
from aftlib.sensor_plans.plan import plan as make_plan
from aftlib.sensor_plans.question import Question

BAD = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def plan():
    rng = np.random.default_rng(1)
    values = rng.normal(size=(4000, 1)) + 0.2 * rng.normal(size=(4000, 3))
    time = pd.date_range("2026-01-01", periods=4000, freq="h")
    frame = pd.DataFrame(values, time, [BAD, "b\n# c", "d"])
    given = {BAD: BAD, "b\n# c": "M", "d": "M"}
    question = Question(epsilon_sd=0.5, read_rate=1.0)
    return make_plan(frame, question, assignment=given, name=BAD)


@pytest.mark.parametrize("name", ["outage", "over_time"])
def test_figures_escape_names(plan, name):
    draw = getattr(figures, name)
    drawn = draw(plan, "°C") if name == "outage" else draw(plan)
    assert BAD not in json.dumps(json.loads(drawn.to_json()), ensure_ascii=False)
    assert drawn.layout.title.text and all(trace.name for trace in drawn.data)


def test_the_table_and_the_text_escape_names(plan):
    table, text = figures.details(plan, "°C").to_html(), figures.text(plan).data
    assert "<img" not in table + text and table.count("<tr>") == 4
    assert "N, both halves" in table
    assert "Your grouping, certified" in text and "Does it pay to estimate?" in text


def test_sentences_escape_names(plan):
    text = figures.answer(plan).data
    assert "<img" not in text and "\\# c" in text and "sensors: 3" in text
    assert "of the losses were certified beforehand" in text and "Take " in text
    assert "Estimating pays below" in figures.answer(replace(plan, worth=None)).data


def test_estimates_have_open_marks_and_half_widths(plan):
    drawn = figures.outage(plan, "°C")
    estimates = [trace for trace in drawn.data if trace.name.startswith("estimate")]
    assert estimates and all(trace.marker.symbol.endswith("-open") for trace in estimates)
    with_bars = [trace for trace in estimates if trace.error_y.array is not None]
    bars = sum(len(trace.error_y.array) for trace in with_bars)
    assert bars == len(plan.outage.lost) * len(plan.outage.sensors)
    assert all(trace.error_y.color == trace.marker.color for trace in with_bars)
    assert drawn.layout.yaxis.title.text == "mean, °C"


def test_the_caption_of_an_outage_names_its_limits(plan):
    text = figures.about_outage(plan, "°C").markdown
    limits = plan.question.epsilon
    drawn = [sensor.name for sensor in plan.outage.sensors]
    assert all(f"{limits[name]:.3g} for" in text for name in drawn)
    assert "(°C), and δ is 5 %" in text and BAD not in text


def test_many_sensors_are_cut_off(plan):
    many = replace(plan, sensors=plan.sensors * 100)
    assert figures.details(many, "°C").to_html().count("<tr>") == figures.LISTED + 1


def test_the_caption_of_troubles_follows_from_the_streams():
    table = pd.DataFrame(
        {
            "trouble": "drift",
            "method": ["guard", "guard", "baseline model"],
            "window": [0, 10, 0],
            "certified": [0.5, 0.0, 1.0],
            "within": [0.9, np.nan, 0.3],
        }
    )
    text = figures.about_troubles(table, 0.1).markdown
    assert "guaranteed: 90 %" in text
    assert "the guard certifies 25 %, 90 % of these within ε" in text
    assert "the baseline model certifies 100 %, 30 % of these within ε" in text


def test_peers_are_drawn_at_the_real_sets_with_scaled_intervals():
    rules = ["guard", "ACI, plain", "ACI, scaled"]
    rows = pd.DataFrame(
        {
            "data": ["irish_wind"] * 6 + ["drift"] * 3,
            "epsilon": [0.5] * 3 + [0.75] * 3 + [0.5] * 3,
            "rule": rules * 3,
            "certified": [0.1, 0.2, 0.3, 0.7, 0.8, 0.9, 0.0, 0.5, 0.6],
            "wrong": [0.01, 0.02, 0.03, 0.01, 0.01, 0.01, np.nan, 0.3, 0.2],
            "commit": "abc",
            "date": "2026-01-01",
        }
    )
    marks = {mark.name: (*mark.x, *mark.y) for mark in figures.peers(rows).data}
    assert marks == {"guard": (0.01, 0.1), "ACI": (0.03, 0.3)}
    table = figures.list_peers(rows).to_html()
    assert "Irish wind" in table and "30.0 %, 3.0 %" in table and "0.0 %, –" in table
    assert "20.0 %, 2.0 %" not in table
    text = figures.about_peers(rows).markdown
    assert "commit abc, 2026-01-01" in text and "δ = 5 %" in text
