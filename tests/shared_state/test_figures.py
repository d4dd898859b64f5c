"""Figures and verdicts from the frames of a run that are kept in frames/: no Spark, no clock."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from aftlib.shared_state import experiments, figures
from aftlib.shared_state.claims import CLAIMS
from aftlib.shared_state.strategies import STRATEGIES
from aftlib.shared_state.tuplelog import TupleStream
from tests.judging import judged

FRAMES = {p.stem: pd.read_csv(p) for p in Path(__file__).with_name("frames").glob("*.csv")}
STREAMS = [TupleStream(2_000_000, skew=skew, seed=1) for skew in (0.0, 1.4, 2.0)]
AT = ["strategy", "skew", "tasks"]


@pytest.fixture(scope="module")
def models():
    measured, imbalance = FRAMES["measured"], FRAMES["imbalance"]
    costs = experiments.fitted(measured, imbalance, STREAMS)
    wide = (costs, imbalance, STREAMS)
    return {
        "through": experiments.modelled(*wide, 2_000_000),
        "modelled": experiments.modelled(*wide, 10**8),
        "pipelined": experiments.modelled(*wide, 10**8, pipelined=True),
        "held_out": experiments.held_out(measured, *wide),
    }


def test_the_kept_run_settles_every_claim_as_recorded(models):
    given = {name: FRAMES[name] for name in ("measured", "served", "failures", "merges")}
    given |= {"engines": experiments.other_engines()}
    given |= {name: models[name] for name in ("modelled", "pipelined", "held_out")}
    found = judged(CLAIMS, given | {"sharing": FRAMES["sharing"], "large": None})
    assert [id for id, record in found.items() if not record.as_recorded] == []
    notes = {id: record.note for id, record in found.items()}
    assert "× 1.06 … 1.36 of the throughput of runs that it never saw." in notes["D3-7"]


def test_the_model_is_drawn_through_what_was_measured(models):
    all_models = pd.concat([models[n] for n in ("through", "modelled", "pipelined")])
    for strategy in STRATEGIES:
        figure = figures.scaling(FRAMES["measured"], all_models, strategy, "title")
        for name in ("uniform", "Zipf 1.4", "Zipf 2"):
            line, marks = (
                dict(zip(trace.x, trace.y, strict=True))
                for trace in figure.data
                if trace.name in (f"{name}, modelled", f"{name}, measured")
            )
            assert [line[tasks] for tasks in marks] == pytest.approx([*marks.values()])
    low, high = figure.data[1].error_y.arrayminus, figure.data[1].error_y.array
    assert len(low) == len(high) == 2 and min(*low, *high) >= 0


def test_throughput_by_skew_is_the_median_of_its_runs():
    both = pd.concat([FRAMES["measured"], FRAMES["served"]])
    drawn = {trace.name: trace for trace in figures.by_skew(both, 2, "title").data}
    names = [*STRATEGIES, "servers and tasks"]
    assert [*drawn] == [name for each in names for name in (f"{each}, 1 task", each)]
    for tasks, name in ((1, "late local, 1 task"), (2, "late local")):
        at = (both["tasks"] == tasks) & (both["skew"] == 1.4) & (both["strategy"] == "late local")
        middle = dict(zip(drawn[name].x, drawn[name].y, strict=True))[1.4]
        assert middle == pytest.approx(both[at]["throughput"].median() / 1e6)
        assert drawn[name].line.dash == ("dot" if tasks == 1 else "solid")
    alone = figures.by_skew(both[both["tasks"] == 2], 2, "title").data
    assert [trace.name for trace in alone] == names


def test_parts_of_a_run_add_up_to_it():
    figure = figures.breakdown(FRAMES["measured"], 2, "title")
    chosen = FRAMES["measured"].query("tasks == 2 and skew == 0").groupby("strategy")
    seconds = chosen["seconds"].median()
    total = sum(np.array(bar.x) for bar in figure.data)
    assert total == pytest.approx(seconds[list(figure.data[0].y)].to_numpy(), rel=0.05)


def test_the_other_figures_hold_their_frames():
    again, twice = figures.failures(FRAMES["failures"], "title").data
    assert again.x == (224288, 500000, 98304) and twice.x == (38127, None, None)
    stores = figures.checkpoints(FRAMES["checkpoints"], "title").data
    assert [trace.name for trace in stores] == ["rocksdb", "sqlite"]
    assert stores[0].y[0] == pytest.approx(19.6, abs=0.01)
