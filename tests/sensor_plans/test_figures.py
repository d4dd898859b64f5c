"""Figures and tables show a user's names, and never take them for HTML."""

import json

import numpy as np
import pandas as pd
import pytest

from aftlib.core.datasets import even_grid
from aftlib.sensor_plans import figures
from aftlib.sensor_plans.answer import answer
from aftlib.sensor_plans.survey import Question

BAD = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def plan():
    rng = np.random.default_rng(1)
    values = rng.normal(size=(4000, 1)) + 0.2 * rng.normal(size=(4000, 3))
    table = even_grid(pd.DataFrame(values, columns=[BAD, "b", "c"]))
    return answer(table, Question(epsilon_sd=0.5, workers=2), BAD)


DRAWN = ("recoverable", "over_time", "recovery")


@pytest.mark.parametrize("name", DRAWN)
def test_figures_escape_names(plan, name):
    drawn = getattr(figures, name)(plan).to_json()
    assert BAD not in json.dumps(json.loads(drawn), ensure_ascii=False)


@pytest.mark.parametrize("name", ["guarantee", "inputs", "cautions", "backtests", "methods"])
def test_what_shows_several_sets_escapes_names(plan, name):
    shown = getattr(figures, name)({BAD: plan})
    text = shown.to_json() if name == "guarantee" else shown.to_html()
    assert "<img" not in text.replace("\\u003c", "<")
    assert "&lt;img" in text.replace("\\u003c", "<")


def test_tables_escape_names(plan):
    for table in (figures.details(plan), figures.table([(1, BAD)], ["n", BAD])):
        assert "<img" not in table.to_html() and "&lt;img" in table.to_html()


def test_the_replay_set_is_shown_with_its_guarantee(plan):
    shown = figures.replays(plan).to_html()
    assert "0 and 10" in shown and "2000" in shown


def test_guarantees_are_shown_satisfied_or_not(plan):
    broken = plan | {"backtest": plan["backtest"] | {"interval": [0.9, 0.94]}}
    nothing = plan | {
        "backtest": plan["backtest"]
        | {"interval": None, "within_epsilon": None, "slack": None, "worst_sensor": None}
    }
    shown = figures.backtests({"satisfied": plan, "broken": broken, "nothing": nothing}).to_html()
    assert (shown.count("✔ yes"), shown.count("✘ no")) == (1, 1)


def test_many_sensors_are_cut_off(plan):
    many = plan | {"sensors": plan["sensors"] * 40}
    listed = figures.details(plan | {"sensors": plan["sensors"] * 100}).to_html()
    assert listed.count("<tr>") == figures.LISTED + 1
    assert len(figures.recoverable(many).data[0].y) == figures.MOST
