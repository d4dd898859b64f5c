"""Pipelines read a plan, and refuse every plan that does not fit."""

from dataclasses import asdict

import numpy as np
import pandas as pd
import pytest

from aftlib.core.datasets import Reading
from aftlib.core.planfile import Source, digest_of, open_plan
from tests.plans import write_plan
from tests.refusals import refused


def samples(rows=400):
    rng = np.random.default_rng(5)
    values = 20 + rng.normal(size=(rows, 1)) + 0.2 * rng.normal(size=(rows, 3))
    time = pd.date_range("2026-01-01", periods=rows, freq="h", name="time")
    return pd.DataFrame(values, time, list("abc"))


def plan_of(place, source, **changes):
    replay = [(0, 3, ["c", "b"]), (3, 5, [])]
    epsilon = {"question.epsilon": {"c": 0.5, "a": 0.25, "b": 1.0}}
    return write_plan(
        place, source, replay, **{"assignment": [["c", "a"], ["b"]]} | epsilon | changes
    )


def parts(cut, sensors=()):
    """The replay of a window of five steps that is cut once."""
    spans = [(0, cut, list(sensors)), (cut, 5, [])]
    return [dict(zip(("from", "until", "sensors"), s, strict=True), tuples=1, ms=1) for s in spans]


@pytest.fixture
def written(tmp_path):
    samples().to_csv(tmp_path / "sensors.csv")
    source = Source.of(tmp_path / "sensors.csv")
    return lambda **changes: plan_of(tmp_path / "plan.json", source, **changes)


def test_a_plan_comes_with_its_data_in_units_of_epsilon(written, tmp_path):
    plan = open_plan(written())
    np.testing.assert_allclose(plan.table.values * [0.25, 1, 0.5], samples().to_numpy())
    assert plan.workers == ((0, 2), (1,))
    assert (plan.times, plan.replay) == ((0, 3, 5), ((2, 1), ()))
    assert (plan.windows.width, plan.windows.slide, plan.seasons) == (5, 5, (4.8,))
    assert (plan.delta, plan.t_sla_ms, plan.fixed_ms, plan.per_tuple_ms) == (0.1, 30, 2, 1)
    means = samples()[:200].to_numpy().reshape(40, 5, 3).mean(axis=1) / [0.25, 1, 0.5]
    np.testing.assert_allclose(plan.model.mean, means.mean(axis=0))
    np.testing.assert_allclose(plan.model.covariance, np.cov(means.T), rtol=1e-3)
    log = plan.write_log(tmp_path / "logs")
    np.testing.assert_array_equal(log.read(None, 0, log.steps), plan.table.values[200:])
    assert plan.write_log(tmp_path / "logs").path == log.path
    one_missing = Reading(missing=[samples().iloc[300, 0]])
    marked = asdict(Source.of(tmp_path / "sensors.csv", one_missing))
    units = dict.fromkeys("abc", 1.0)
    for change in ({"question.epsilon": units}, {"data.source": marked}):
        assert open_plan(written(**change)).write_log(tmp_path / "logs").path != log.path


def test_windows_with_too_few_samples_are_not_in_the_model(written, tmp_path):
    frame = samples()
    frame.iloc[0:3, 0] = np.nan  # three of five: a mean of the other two has another distribution
    frame.iloc[5:7, 0] = np.nan
    frame.to_csv(tmp_path / "sensors.csv")
    plan = open_plan(written(**{"data.source": asdict(Source.of(tmp_path / "sensors.csv"))}))
    means = frame["a"][:200].to_numpy().reshape(40, 5)[1:] / 0.25
    assert plan.model.mean[0] == pytest.approx(np.nanmean(means, axis=1).mean())


def test_data_that_moved_beside_the_plan_are_read(written, tmp_path):
    place = written()
    (tmp_path / "new").mkdir()
    for name in ("plan.json", "sensors.csv"):
        (tmp_path / name).rename(tmp_path / "new" / name)
    assert open_plan(tmp_path / "new" / "plan.json").table.names == ("a", "b", "c")
    (tmp_path / "new" / "sensors.csv").rename(tmp_path / "other.csv")
    with pytest.raises(ValueError, match=r"data must be at '.*sensors.csv' or next to the plan"):
        open_plan(tmp_path / "new" / "plan.json")
    assert not place.exists()


def test_data_that_changed_are_refused(written, tmp_path):
    place = written()
    samples(401).to_csv(tmp_path / "sensors.csv")
    with pytest.raises(ValueError, match="data have changed, in .*: make a new plan by aft plan"):
        open_plan(place)


def test_a_long_file_is_read_as_the_plan_was(written, tmp_path):
    long = samples().reset_index().melt("time", var_name="id", value_name="reading")
    long = long.assign(id=long["id"].replace("b", "z").replace("a", "b").replace("z", "a"))
    long.to_parquet(tmp_path / "long.parquet")
    columns = ["time", "id", "reading"]
    source = Source.of(tmp_path / "long.parquet", Reading(long=columns, resample="2h"))
    plan = open_plan(written(**{"data.source": asdict(source)}))
    assert (plan.table.names, len(plan.table.values)) == (("a", "b", "c"), 201)


test_a_plan_that_does_not_fit_is_refused = refused(
    lambda change, written: open_plan(written(**change)),
    ({"version": 99}, r"\(version: Input should be 1, got 99\); make a new plan by aft plan"),
    ({"data.source": None}, "names no file of data: make a new plan"),
    ({"data.source": {"path": "x", "sha256": ""}}, "data must be at '.*x' or next to the plan"),
    ({"data.source": {"way": "x"}}, "data.source.path: Field required|data.source.*path"),
    ({"backtest.within_epsilon": 1.5}, "backtest.within_epsilon: .* or equal to 1, got 1.5"),
    ({"question": None}, "question: Input should be .*, got None"),
    (
        {"assignment": [["a"], ["b"]]},
        "must have the same sensors, each once, got a difference in 'c'",
    ),
    ({"assignment": [["a", "a"], ["b", "c"]]}, "each once, got a difference in 'a', 'b', 'c'"),
    ({"assignment": [["a", "b", "c"], []]}, r"assignment.1: .* at least 1 item .* got \[\]"),
    (
        {"question.epsilon": {"d": 1}, "assignment": [["d"]], "replay": parts(3)},
        "epsilon must have the data's sensors, got a difference in 'a', 'b', 'c', 'd'",
    ),
    ({"question.epsilon": dict.fromkeys("abc", 0)}, "question.epsilon.a: .* than 0, got 0"),
    ({"question.delta": 1}, "question.delta: .* less than 1, got 1"),
    ({"question.t_sla_ms": "2s"}, "question.t_sla_ms: .* valid number, got '2s'"),
    ({"question.t_sla_ms": float("inf")}, "question.t_sla_ms: .* finite number, got inf"),
    (
        {"question.window": 101, "checkpoints": [], "replay": [parts(101)[0]]},
        "window must be at most 100, got 101",
    ),
    ({"question.slide": 0}, "question.slide: .* equal to 1, got 0"),
    ({"question.query": "max"}, "question.query: .*'mean' or 'sum', got 'max'"),
    ({"checkpoints": [2]}, r"intervals of replay, got \[2\] and \[\(0, 3\), \(3, 5\)\]"),
    ({"checkpoints": [3, 3]}, "must cut the window of 5 steps"),
    ({"checkpoints": [2.5], "replay": parts(2.5)}, "checkpoints.0: .* integer, got 2.5"),
    ({"replay": parts(3, ["a", "b", "a"])}, "each once, got 'a', 'b', 'a'"),
    ({"replay": parts(3, ["x"])}, "replay must list sensors, each once, got 'x'"),
    ({"data.seasons_in_windows": [0]}, "seasons_in_windows.0: .* greater than 0, got 0"),
)


@pytest.mark.parametrize("text", ["", "{", "[1]", "[" * 100_000])
def test_what_is_no_plan_is_refused(tmp_path, text):
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(ValueError, match="plan must name a file that aft plan wrote, got "):
        open_plan(tmp_path / "plan.json")


def test_a_directory_is_known_by_its_files_and_cannot_be_streamed(written, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in ("a", "b"):
        (folder / name).write_text(name)
    first = digest_of(folder)
    assert digest_of(folder) == first
    (folder / "b").write_text("c")
    assert digest_of(folder) != first
    with pytest.raises(ValueError, match="must be one file that fits into memory, got the files"):
        open_plan(written(**{"data.source": asdict(Source.of(folder))}))
