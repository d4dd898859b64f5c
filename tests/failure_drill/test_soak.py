"""A soak's growth of memory, and its scores of emitted results."""

import json
import signal
import subprocess
import sys
from contextlib import nullcontext

import numpy as np
import pandas as pd
import pytest

from aftlib.core.generators import block_model, draw
from aftlib.core.sensorlog import SensorLog
from benchmarks import soak, soak_counting
from benchmarks import soak_processes as processes
from benchmarks import soak_recoverable as recoverable


@pytest.mark.parametrize("slope", [0.0, 300.0])
def test_growth_has_the_slope_in_its_interval(slope):
    rng, at = np.random.default_rng(1), np.arange(0, 600, 2.0)
    memory = 500 + slope * at / 3600 + rng.normal(0, 1, len(at))
    memory[: len(at) // 4] += 200  # before it has settled
    growth = soak.growth(at, memory, 600)
    assert growth["low"] <= slope <= growth["high"]
    assert growth["high"] - growth["low"] < 40


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    values = draw(block_model(processes.MODEL_SIZE, 3), 100, 1)
    names = block_model(processes.MODEL_SIZE, 3).names
    return SensorLog.write(tmp_path_factory.mktemp("soak") / "log", values, names)


def test_the_score_counts_what_is_lost_doubled_wrong_and_outside(log):
    truth = processes.WINDOWS.aggregate(log.read(None, 0, 80), 0, range(4))[0]
    rows = [(w, s, truth[w, s], False) for w, s in np.ndindex(truth.shape)]
    epsilon = processes.REQUIREMENT.epsilon

    def score_of(rows):
        results = pd.DataFrame(rows, columns=["window", "sensor", "value", "estimated"])
        return processes.score_windows(log, results, 80)

    assert score_of(rows) == {
        "due": 48, "lost": 0, "doubled": 0, "wrong": 0, "estimated": 0, "outside": 0,
    }  # fmt: skip
    rows[7] = (*rows[7][:2], rows[7][2] + 0.01, False)
    rows[8] = (*rows[8][:2], rows[8][2] + 0.5 * epsilon, True)
    rows[9] = (*rows[9][:2], rows[9][2] + 2 * epsilon, True)
    assert score_of([*rows[3:], rows[20], (4, 0, 9.0, False), (4, 0, 9.0, False)]) == {
        "due": 48, "lost": 3, "doubled": 2, "wrong": 1, "estimated": 2, "outside": 1,
    }  # fmt: skip
    assert score_of([])["lost"] == 48


def test_the_score_of_counts_has_each_harm(tmp_path, monkeypatch):
    """A repeated answer does no harm."""
    log = SensorLog.write(tmp_path / "log", draw(block_model(12, 3), 2400, 1), [*"abcdefghijkl"])
    monkeypatch.setattr(soak_counting, "PAUSE_S", 0)
    soak_counting.count(log, tmp_path)
    answers = tmp_path / "answers.jsonl"
    lines = answers.read_text().splitlines()

    def harms_of(*lines):
        answers.write_text("\n".join(lines) + "\n")
        harms = processes.score_counts(log, tmp_path)
        return [harms[name] for name in ("due", "lost", "doubled", "wrong", "outside")]

    assert harms_of(*lines) == harms_of(*lines, lines[2]) == [6, 0, 0, 0, 0]
    at, estimate = json.loads(lines[2])
    near = json.dumps([at, estimate + 0.01])
    assert harms_of(*lines, near) == [6, 0, 1, 0, 0]
    assert harms_of(*lines[:2], *lines[3:]) == [6, 1, 0, 0, 0]
    far = json.dumps([at, 2 * estimate])
    assert harms_of(*lines[:2], far, *lines[3:]) == [6, 0, 0, 1, 1]
    (tmp_path / "state").write_bytes(processes.ExponentialHistogram(2000, 0.05).to_bytes())
    assert harms_of(*lines)[3] == 0, "an older state is that of an earlier moment"


@pytest.mark.parametrize(
    ("changed", "texts"),
    [
        ({}, []),
        ({"lost": 1}, ["D2: 1 lost"]),
        ({"doubled": 2, "wrong": 3}, ["D2: 2 doubled", "D2: 3 wrong"]),
        ({"outside": 61}, []),
        ({"wrong_promises": 5, "bound": 5.5}, []),
        ({"wrong_promises": 6, "bound": 5.5}, ["D2: 6 wrong guarantees, at most 5.5"]),
        ({"outside": 9000}, ["D2: 9000 estimates off by more than ε, at most 1574"]),
    ],
)
def test_a_broken_guarantee_ends_the_command_with_an_error(changed, texts, tmp_path, monkeypatch):
    own = {"lost": 0, "doubled": 0, "wrong": 0, "estimated": 20000, "outside": 0} | changed
    result = {"schemes": {"D2": {"score": own, "growth": None}}}
    assert soak.broken(result) == texts
    monkeypatch.setattr(soak, "soak", lambda *_: result)
    monkeypatch.setattr(soak, "data_dir", lambda: tmp_path)
    with pytest.raises(SystemExit, match=texts[0]) if texts else nullcontext():
        soak.main("1")
    assert json.loads((tmp_path / "soak.json").read_text()) == result


def test_the_score_of_a_guarded_stream_has_each_harm():
    """Three windows of 64 sensors, four of which join in the second one."""
    windows = np.arange(3)
    wide = pd.DataFrame(
        [recoverable.samples_of(window).mean(0) for window in windows],
        recoverable.BEGIN + pd.to_timedelta(windows * recoverable.SAMPLES, unit="s"),
        recoverable.names(recoverable.AFTER),
    )
    wide.iloc[0, recoverable.BEFORE :] = np.nan
    rows = wide.rename_axis("start").reset_index().melt("start", var_name="sensor")
    rows = rows.dropna().assign(state="exact").reset_index(drop=True)

    def harms_of(rows):
        harms = recoverable.score(rows)
        names = ("due", "lost", "doubled", "wrong", "estimated", "outside", "to_read_again")
        return [harms[name] for name in (*names, "joined")]

    assert harms_of(rows) == [188, 0, 0, 0, 0, 0, 0, 4]
    rows.loc[0, "value"] += 0.01
    rows.loc[[1, 2, 3], "state"] = ["estimated", "estimated", "lost"]
    rows.loc[[1, 2], "value"] += [0.5 * recoverable.EPSILON, 2 * recoverable.EPSILON]
    assert harms_of(rows) == [188, 0, 0, 1, 2, 1, 1, 4]
    assert harms_of(pd.concat([rows.drop(4), rows.loc[[5]]])) == [188, 1, 1, 1, 2, 1, 1, 4]


def test_the_guarded_stream_has_gaps_and_odd_rows():
    away = [recoverable.away(window) for window in range(2000)]
    assert 0.04 < np.mean([len(workers) > 0 for workers in away]) < 0.12
    window = next(window for window, workers in enumerate(away) if workers == [2])
    rows = recoverable.rows_of(window)
    known = rows[rows["sensor"].isin(recoverable.names(recoverable.AFTER))].groupby("sensor").size()
    lost = set(recoverable.names(recoverable.AFTER)) - set(known.index)
    assert lost == set(recoverable.names(recoverable.AFTER)[2 :: recoverable.WORKERS])
    assert len(rows) == 20 * (64 - len(lost)) + 5


def test_the_error_of_a_failed_process_is_raised(tmp_path, monkeypatch):
    monkeypatch.setattr(soak, "SCHEMES", {"nobody": None})
    with pytest.raises(RuntimeError, match="(?s)nobody ended with status 1: .*KeyError: 'nobody'"):
        soak.soak(1, tmp_path)


def test_when_one_process_cannot_start_the_others_are_killed(tmp_path, monkeypatch):
    command = [sys.executable, "-S", "-c", "input()"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
    waiting = [process]
    monkeypatch.setattr(soak, "start", lambda *_: waiting.pop())
    with pytest.raises(IndexError):
        soak.soak(1, tmp_path)
    assert process.poll() == -signal.SIGKILL


def test_a_process_without_end_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(soak, "SCHEMES", {"D5 histogram": None})
    monkeypatch.setattr(soak, "GRACE_S", -5.0)
    with pytest.raises(RuntimeError, match="D5 histogram came to no end within -5 s"):
        soak.soak(1, tmp_path)
