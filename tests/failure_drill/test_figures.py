"""Every figure says what its table says."""

from types import SimpleNamespace

import numpy as np
import pytest

from aftlib.core.requirement import Requirement
from aftlib.failure_drill import figures
from aftlib.failure_drill.pace import pace
from tests.failure_drill.tables import good_table


@pytest.fixture(scope="module")
def drilled():
    progress = [(i * 10, float(i)) for i in range(12)]
    drill = SimpleNamespace(
        requirement=Requirement(1, 0.05),
        strikes=[SimpleNamespace(step=65)],
        batch_of=lambda step: step // 10,
    )
    paces = {"exactly once": pace(progress, [(6, 6)]), "D1 by model": pace(progress, [(6, 6)])}
    return SimpleNamespace(table=good_table(), paces=paces, drill=drill)


def cells(drilled):
    heat = figures.which_for_whom(drilled).data[0]
    names = [name.partition("<br>")[0] for name in heat.y]
    texts = dict(zip(names, heat.text, strict=True))
    return texts, dict(zip(names, np.array(heat.z), strict=True))


def test_the_first_figure_tells_good_from_bad(drilled):
    texts, good = cells(drilled)
    assert list(texts) == list(drilled.table.index)
    assert texts["at most once"][0] == "4.0%" and good["at most once"][0] == 0
    assert texts["at least once"][1] == "5.0%" and good["at least once"][1] == 0
    assert texts["exactly once"][0] == "none" and good["exactly once"][0] == 1
    assert texts["D1 by model"][2] == "7.2%, 96.0%"
    assert texts["exactly once"][4] == "0.70 s"
    assert good["D2 proposed"][5] < good["exactly once"][5]


def test_a_broken_promise_is_red(drilled):
    table = good_table()
    table.loc["D1 by model", ["within", "share_high"]] = 0.9, 0.93
    _, good = cells(SimpleNamespace(table=table, drill=drilled.drill))
    assert good["D1 by model"][2] == 0


def test_everybody_is_told_whom_it_serves(drilled):
    said = {name: figures.for_whom(row) for name, row in drilled.table.iterrows()}
    assert "gap" in said["at most once"] and "repeats" in said["at least once"]
    assert "who looks" in said["no fault tolerance"]
    assert "±ε" in said["D2 adaptive"] and "exact" in said["exactly once"]
    assert "second machine" in said["D4 active standby, simulated"]
    assert "share" in said["D3 shared state"]


def test_the_other_figures_draw_what_is_there(drilled):
    lost, doubled, estimated = figures.outcomes(drilled).data
    assert lost.x[1] == 0.04 and doubled.x[2] == 0.05 and estimated.x[4] == 0.072
    assert "no fault tolerance" not in figures.recovery(drilled).data[0].y
    _, bar, whole = figures.recovery(drilled).data
    assert dict(zip(whole.y, whole.text, strict=True))["D3 shared state"] == "900"
    assert dict(zip(bar.y, bar.x, strict=True))["D3 shared state"] == 900
    measured, planned = figures.read_again(drilled).data
    assert dict(zip(planned.x, planned.y, strict=True))["D2 adaptive"] == 0.125
    assert dict(zip(measured.x, measured.y, strict=True))["D2 adaptive"] == 0.13
    assert len(figures.latency(drilled).data) == 2
    assert "96.00%" in figures.table(drilled).to_html()
