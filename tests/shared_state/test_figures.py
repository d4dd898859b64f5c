"""Figures and verdicts from the frames of a run that are stored in frames/: no Spark, no clock."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from aftlib.shared_state import figures
from aftlib.shared_state.claims import CLAIMS
from aftlib.shared_state.experiments import servers
from aftlib.shared_state.strategies import STRATEGIES
from tests.judging import judge

FRAMES = {p.stem: pd.read_csv(p) for p in Path(__file__).with_name("frames").glob("*.csv")}


def test_the_stored_run_settles_every_claim_as_recorded():
    frames = {name: FRAMES[name] for name in FRAMES} | {"engines": servers.other_engines()}
    records = judge(CLAIMS, frames | {"large": None})
    pairs = {id: {record.verdict, record.recorded} for id, record in records.items()}
    differ = {id: pair for id, pair in pairs.items() if len(pair) > 1}
    assert all("undecided" in pair for pair in differ.values())  # so few turns


def test_runs_on_emulated_cores_are_drawn_by_design_keys_and_skew():
    frame = FRAMES["paced"]
    drawn = {trace.name: trace for trace in figures.paced(frame, "title").data}
    assert len(drawn) == len(frame.groupby(["design", "keys", "skew"]))
    line = drawn["merged late, uniform, 10,000 keys"]
    rows = frame.query("design == 'late' and skew == 0 and keys == 10_000")
    assert list(line.x) == [8, 24, 48]
    assert list(line.y) == (rows.groupby("tasks")["throughput"].median() / 1e6).tolist()


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
    assert again.x == (224288, 500000, 98304, 229376) and twice.x == (38127, None, None, None)
    stores = figures.checkpoints(FRAMES["checkpoints"], "title").data
    assert [trace.name for trace in stores] == ["rocksdb", "sqlite"]
    assert stores[0].y[0] == pytest.approx(19.6, abs=0.01)
    every, barriers = figures.merges(FRAMES["merges"], "title").data
    assert list(every.x) == ["rocksdb,<br>10,000 keys", "sqlite,<br>10,000 keys"]
    assert all(fast > slow for fast, slow in zip(barriers.y[-2:], every.y, strict=True))
