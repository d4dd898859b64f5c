"""Each claim holds of a drill in this process, and turns under a mutation of the code."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from aftlib.approximately_once.coordinator import Coordinator
from aftlib.approximately_once.sink import WindowSink
from aftlib.checkpoint_planning import operator
from aftlib.checkpoint_planning.experiments import costs
from aftlib.checkpoint_planning.state import CheckpointStore, Preparation, PreparedReplay
from aftlib.failure_drill import schemes_spark
from aftlib.failure_drill.claims import CLAIMS
from aftlib.failure_drill.metrics import overhead, score_run
from aftlib.failure_drill.schedule import draw_drill
from aftlib.failure_drill.schemes_process import (
    SHARED,
    long_windows,
    partial_replay,
    shared_state,
)
from aftlib.failure_drill.schemes_spark import (
    AT_LEAST,
    EXACTLY,
    MODEL,
    stream,
)
from aftlib.shared_state.server import Server
from aftlib.shared_state.stores.tables import MemoryTable
from tests import judging
from tests.failure_drill.conftest import SMALL
from tests.failure_drill.in_process import BATCH_S, CLOCK, all_here, taking
from tests.failure_drill.tables import good_table

PROPOSED = "D2 proposed"
BUDGET = 18
"""Samples that D2 may read again: so few that windows have checkpoints inside."""


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    changed = {"windows": 80, "calm": 0.3, "faults": 6, "pause_s": 0.01}
    return draw_drill(tmp_path_factory.mktemp("drill"), **SMALL | changed)


@pytest.fixture
def row(small, tmp_path, monkeypatch):
    """Run a scheme in this process and return its row of the table."""
    monkeypatch.chdir(tmp_path)
    all_here(monkeypatch)

    def of(scheme, name):
        place = tmp_path / name
        if scheme == SHARED:
            run = shared_state(small, place, compared=False)
        elif scheme == PROPOSED:
            run = partial_replay(small, place, PROPOSED, BUDGET)
        else:
            run = stream(None, scheme, small, place)
        columns = score_run(small, run, np.random.default_rng(1))
        if scheme == MODEL:
            own = np.diff([at for _, at in run.progress])
            columns |= overhead(own, np.full(len(own), BATCH_S))
        assert columns["faults"] > 0
        return columns

    return of


@pytest.mark.parametrize("scheme", [SHARED, AT_LEAST, EXACTLY, MODEL, PROPOSED])
def test_samples_that_are_read_again_are_counted(scheme, row):
    columns = row(scheme, "counted")
    assert 0 < columns["again"] < columns["rows"]


@pytest.fixture(scope="module")
def sound():
    return {}


def verdict(claim, scheme, row, small):
    """Return a claim's verdict if a scheme has this row and all others have good ones."""
    table = good_table().drop(index="D2 adaptive")
    known = {name: value for name, value in row.items() if name in table.columns}
    table.loc[scheme, [*known]] = known.values()
    drilled = SimpleNamespace(table=table, drill=small, turns=5)
    return judging.verdict(CLAIMS, {"done": drilled}, claim)


def begins_anew(patch):
    """D3: a server reports no progress of its partitions and merges every message."""
    merge = MemoryTable.merge
    patch.setattr(Server, "join", lambda server, task, _: server.cycle.join(task) or {})
    patch.setattr(MemoryTable, "merge", lambda table, rows, progress, *how, **named: merge(
        table, rows, {p: replace(now, since=None) for p, now in progress.items()}, *how, **named
    ))  # fmt: skip


def goes_on_from_the_present(patch):
    """At least once: a replacement continues at the present step, as with at most once."""
    patch.setattr(schemes_spark, "AT_MOST", AT_LEAST)


def starts_over(patch):
    """D1: a worker whose window is given up reads its split from the beginning nevertheless."""
    partitions = schemes_spark.SensorSplits.partitions

    def over(splits, start, stop):
        parts = partitions(splits, start, stop)
        return [replace(s, resume=start if s.resume is not None else None) for s in parts]

    patch.setattr(schemes_spark.SensorSplits, "partitions", over)


def replays_more(patch):
    """D2: two sensors more than the plan's are loaded."""
    load = Preparation.load

    def more(*given):
        replay = load(*given)
        others = [k for k in range(12) if k not in replay.sensors][:2]
        return load_of([*replay.sensors, *others])

    patch.setattr(Preparation, "load", more)


def replays_one(patch):
    """D2: only the first sensor of the replay set is loaded."""
    load = Preparation.load
    patch.setattr(Preparation, "load", lambda *given: load_of(load(*given).sensors[:1]))


def load_of(sensors):
    others = 12 - len(sensors)
    return PreparedReplay(sensors, np.zeros((others, len(sensors))), np.zeros(12))


def estimates_the_mean(patch):
    """D1: the other workers' results are left out of the estimates."""
    solve = Coordinator._solve

    def blind(*given):
        gain, half_width = solve(*given)
        return 0 * gain, half_width

    patch.setattr(Coordinator, "_solve", blind)


def writes_slowly(patch):
    """D1: the sink takes a tenth of a micro-batch."""
    patch.setattr(WindowSink, "write", taking(BATCH_S / 10, WindowSink.write))


@pytest.mark.parametrize(
    ("claim", "scheme", "mutation", "usual"),
    [
        ("F-1", AT_LEAST, goes_on_from_the_present, "holds"),
        ("F-2", SHARED, begins_anew, "holds"),
        ("F-3", MODEL, starts_over, "holds"),
        ("F-4", PROPOSED, replays_more, "holds"),
        ("F-4", PROPOSED, replays_one, "holds"),
        ("F-5", PROPOSED, replays_one, "undecided"),
        ("F-5", MODEL, estimates_the_mean, "undecided"),
        ("F-6", MODEL, writes_slowly, "undecided"),
    ],
)
def test_a_verdict_turns_with_the_code(
    claim, scheme, mutation, usual, row, sound, small, monkeypatch
):
    if scheme not in sound:
        sound[scheme] = row(scheme, "sound")
    assert verdict(claim, scheme, sound[scheme], small) == usual
    mutation(monkeypatch)
    assert verdict(claim, scheme, row(scheme, "mutated"), small) == "deviates"


@pytest.mark.parametrize(
    ("commit_s", "sample_s", "expected"),
    [(1e-3, 1e-8, "deviates"), (0, 1e-8, "holds"), (1e-3, 1e-6, "holds")],
)
def test_f_7_turns_with_the_time_of_a_commit(commit_s, sample_s, expected, tmp_path, monkeypatch):
    """Without syncing, a commit costs nothing; where reading is slow, it is a small share."""
    sums = operator.interval_sums

    def reading(log, keys, start, stop, **more):
        CLOCK.now += sample_s * len(keys) * (stop - start)
        return sums(log, keys, start, stop, **more)

    monkeypatch.setattr(operator, "interval_sums", reading)
    monkeypatch.setattr(CheckpointStore, "commit", taking(commit_s, CheckpointStore.commit))
    monkeypatch.setattr(costs, "time", SimpleNamespace(perf_counter=lambda: CLOCK.now))
    long = long_windows(tmp_path, seed=1, turns=2)
    assert judging.verdict(CLAIMS, {"long": long}, "F-7") == expected
