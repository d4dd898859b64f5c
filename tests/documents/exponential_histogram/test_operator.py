"""The streaming operator: answers of an undisturbed histogram, also after kills."""

import os
import signal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pyspark import cloudpickle

from aftlib.documents.exponential_histogram import ExponentialHistogram
from aftlib.documents.exponential_histogram.experiments import draw_bits
from aftlib.documents.exponential_histogram.operator import HistogramOperator, run_operator

OPERATOR = HistogramOperator(200, 0.05)
KEYS, SIZE, FILES = 3, 900, 4


def make_events():
    """Events of all keys in random order within a file."""
    at = np.arange(1, SIZE + 1)
    bits = {key: draw_bits(SIZE, 0.3, key, 5) for key in range(KEYS)}
    tables = [pd.DataFrame({"key": key, "at": at, "event": bits[key]}) for key in bits]
    return pd.concat(tables).sample(frac=1, random_state=1)


def expected():
    events = make_events().sort_values(["key", "at"], ignore_index=True)
    streams = [bits.to_numpy() for _, bits in events.groupby("key")["event"]]
    estimates = [ExponentialHistogram(200, 0.05).estimates(bits) for bits in streams]
    return events[["key", "at"]].assign(estimate=np.concatenate(estimates))


@pytest.fixture(autouse=True)
def tests_are_pickled_by_value():
    """Workers cannot import this file."""
    import tests.documents.exponential_histogram.test_operator as module

    cloudpickle.register_pickle_by_value(module)
    yield
    cloudpickle.unregister_pickle_by_value(module)


@pytest.fixture
def quick_disk(monkeypatch):
    """All files are written in the same millisecond."""
    write = pd.DataFrame.to_parquet

    def write_at_once(table, path, **kwargs):
        write(table, path, **kwargs)
        os.utime(path, (1e9, 1e9))

    monkeypatch.setattr(pd.DataFrame, "to_parquet", write_at_once)


@pytest.mark.spark
def test_answers_are_those_of_an_undisturbed_histogram(spark, tmp_path, quick_disk):
    answers = run_operator(spark, tmp_path, make_events(), OPERATOR, FILES)
    pd.testing.assert_frame_equal(answers, expected())


class Killed(HistogramOperator):
    """Ends the worker's process once, after a key's later events were added, before the commit."""

    def __call__(self, key, frames, state):
        continued = state.exists
        yield from super().__call__(key, frames, state)
        self.kill_once(continued)

    def kill_once(self, continued):
        marker = os.environ["AFT_TEST_FOLDER"] + "/killed"
        if continued and not os.path.exists(marker):
            with open(marker, "x"):
                os.kill(os.getpid(), signal.SIGKILL)


class Broken(Killed):
    """The control: counts events and keeps the histogram in a file, which no commit undoes."""

    def __call__(self, key, frames, state):
        continued, path = state.exists, Path(os.environ["AFT_TEST_FOLDER"], "state")
        histogram = ExponentialHistogram(self.window, self.epsilon)
        if path.exists():
            histogram = ExponentialHistogram.from_bytes(path.read_bytes())
        rows = pd.concat(list(frames)).sort_values("at")
        estimates = histogram.estimates(rows["event"].to_numpy())
        path.write_bytes(histogram.to_bytes())
        state.update((b"",))
        yield pd.DataFrame({"key": key[0], "at": rows["at"], "estimate": estimates})
        self.kill_once(continued)


def run_killed(spark, folder, operator):
    """Answers for key 0 when a worker is killed in the second of two micro-batches."""
    events = make_events()

    def call(key, frames, state):
        os.environ["AFT_TEST_FOLDER"] = str(folder)
        yield from operator(key, frames, state)

    return run_operator(spark, folder, events[events["key"] == 0], call, 2)


@pytest.mark.crash
@pytest.mark.spark
def test_a_killed_worker_loses_and_doubles_nothing(spark, tmp_path):
    answers = run_killed(spark, tmp_path, Killed(200, 0.05))
    assert (tmp_path / "killed").exists()
    pd.testing.assert_frame_equal(answers, expected().head(SIZE))


@pytest.mark.crash
@pytest.mark.spark
def test_the_control_that_keeps_state_elsewhere_is_caught(spark, tmp_path):
    answers = run_killed(spark, tmp_path, Broken(200, 0.05))
    assert (tmp_path / "killed").exists()
    assert not np.array_equal(answers["estimate"], expected().head(SIZE)["estimate"])


@pytest.mark.spark
def test_an_event_that_comes_late_ends_the_query(spark, tmp_path):
    def late(key, frames, state):
        yield from OPERATOR(key, [frame.assign(at=-frame["at"]) for frame in frames], state)

    events = pd.DataFrame({"key": 7, "at": [1, 2], "event": True})
    with pytest.raises(Exception, match="key 7: timestamps must not go back, got -2 after -1"):
        run_operator(spark, tmp_path, events, late, 2)
