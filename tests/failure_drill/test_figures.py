"""Every figure shows its table."""

from types import SimpleNamespace

import numpy as np
import pytest

from aftlib.core.requirement import Requirement
from aftlib.failure_drill import figures
from aftlib.failure_drill.metrics import recovery_metrics
from tests.failure_drill.tables import good_table


@pytest.fixture(scope="module")
def result():
    progress = [(i * 10, float(i)) for i in range(12)]
    drill = SimpleNamespace(
        requirement=Requirement(1, 0.05),
        schedule=[SimpleNamespace(step=65)],
        batch_of=lambda step: step // 10,
    )
    metrics = dict.fromkeys(["exactly once", "D1 by model"], recovery_metrics(progress, [(6, 6)]))
    return SimpleNamespace(table=good_table(), metrics=metrics, drill=drill)


def cells(result):
    heat = figures.which_for_whom(result).data[0]
    names = [name.partition("<br>")[0] for name in heat.y]
    texts = dict(zip(names, heat.text, strict=True))
    return texts, dict(zip(names, np.array(heat.z), strict=True))


def test_the_first_figure_grades_each_cell(result):
    texts, good = cells(result)
    assert list(texts) == list(result.table.index)
    assert texts["at most once"][0] == "4.0%" and good["at most once"][0] == 0
    assert texts["at least once"][1] == "5.0%" and good["at least once"][1] == 0
    assert texts["exactly once"][0] == "none" and good["exactly once"][0] == 1
    assert texts["D1 by model"][2] == "7.2%, 96.0%"
    assert texts["exactly once"][4] == "0.70 s"
    assert good["exactly once"][5] < good["D1 by model"][5]  # no number is fair


def test_a_broken_guarantee_is_red(result):
    table = good_table()
    table.loc["D1 by model", ["within", "share_high"]] = 0.9, 0.93
    _, good = cells(SimpleNamespace(table=table, drill=result.drill))
    assert good["D1 by model"][2] == 0


def test_each_scheme_names_its_users(result):
    users = {name: figures.for_whom(row) for name, row in result.table.iterrows()}
    for name, words in {
        "at most once": "gap", "at least once": "repeats", "no fault tolerance": "nobody",
        "D2 adaptive": "±ε", "exactly once": "exact", "D3 shared state": "share",
        "D4 active standby, simulated": "second machine", "D1, its driver killed": "a test",
    }.items():  # fmt: skip
        assert words in users[name]


def by_scheme(trace):
    return dict(zip(trace.y, trace.x, strict=True))


def test_the_other_figures_draw_the_table(result):
    lost, doubled, estimated = map(by_scheme, figures.outcomes(result).data)
    assert lost["at most once"] == 0.04 and doubled["at least once"] == 0.05
    assert estimated["D1 by model"] == 0.072
    restart, rework, whole = figures.recovery(result).data
    assert "no fault tolerance" not in restart.y
    assert dict(zip(whole.y, whole.text, strict=True))["D3 shared state"] == "900"
    assert by_scheme(rework)["D3 shared state"] == 900
    measured, planned = figures.read_again(result).data
    assert dict(zip(planned.x, planned.y, strict=True))["D2 adaptive"] == 0.125
    assert dict(zip(measured.x, measured.y, strict=True))["D2 adaptive"] == 0.13
    assert len(figures.latency(result).data) == 2
    assert "96.00%" in figures.table(result).to_html()
