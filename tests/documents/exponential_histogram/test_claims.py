"""D5's experiments, and each verdict with a change under which it turns."""

import itertools

import numpy as np
import pandas as pd
import pytest

from aftlib.documents.exponential_histogram import ExponentialHistogram, experiments, figures
from aftlib.documents.exponential_histogram.buckets import Buckets
from aftlib.documents.exponential_histogram.claims import CLAIMS, summarize
from aftlib.documents.exponential_histogram.experiments import (
    NotebookParameters,
    count_exactly,
    draw_bits,
    relative_error,
)
from tests import judging
from tests.refusals import refused

SMALL = NotebookParameters(
    epsilons=[0.05, 0.1], windows=[1000], shares=[0.005, 0.5], bursts=[0, 30],
    windows_of_events=5, window=10_000, events=100_000, seconds=0.05, demo_events=20,
)  # fmt: skip


def sweep_here(p=SMALL):
    """As `experiments.measure_streams`, in this process."""
    rows = []
    for epsilon, share, burst in itertools.product(p.epsilons, p.shares, p.bursts):
        row = {"epsilon": epsilon, "window": 1000, "share": share, "burst": burst}
        bits = draw_bits(5000, share, p.seed, burst)
        rows.append(row | experiments.measure(bits, 1000, epsilon))
    return pd.DataFrame(rows)


def make_frames():
    return {
        "steps": experiments.figure_3(),
        "few": experiments.few_ones(SMALL.epsilons),
        "swept": sweep_here(),
        "sizes": experiments.sizes([0.01, 0.1], (1000, 10**6)),
        "speeds": experiments.speeds(SMALL, rounds=5),
    }


@pytest.fixture(scope="module")
def frames():
    return make_frames()


def test_all_verdicts_but_the_timed_one_come_out_as_recorded(frames):
    records = judging.judge(CLAIMS, frames)
    assert {id for id, one in records.items() if not (one.as_recorded or one.timed)} == set()
    assert records["D5-1"].text == "13 of 13 rows"
    assert records["D5-3"].text.endswith("; 716 buckets of 15 sizes at fig. 5's N and ε")
    assert all(record.sensitivity for record in records.values())


def test_the_spread_of_speeds_is_no_confidence_interval(frames):
    speeds = frames["speeds"].assign(**{"events per second": np.linspace(9e4, 4e5, 10)})
    record = judging.judge(CLAIMS, frames | {"speeds": speeds}, "D5-4")["D5-4"]
    assert (record.interval, record.verdict) == (None, "holds")
    assert record.counted.startswith("rounds, 0.09 to ")


def test_d5_2_prints_the_worst_counterexample_and_the_one_with_the_fewest_ones(frames):
    few = experiments.few_ones([0.001, 0.1])
    record = judging.judge(CLAIMS, frames | {"few": few}, "D5-2")["D5-2"]
    assert record.measured == pytest.approx(1.992, abs=0.0005)
    assert record.text == "1.992 ε: 502 ones are answered as 501 at ε = 0.001"
    assert "break it at these ε: 7, answered as 6 at ε = 0.1." in record.sensitivity
    assert "It keeps ε" not in record.sensitivity
    more = experiments.few_ones([0.1, 0.2, 0.5])
    kept = judging.judge(CLAIMS, frames | {"few": more}, "D5-2")["D5-2"].sensitivity
    assert kept.endswith("It keeps ε for ε of 0.2 and 0.5 (exactly 1 ε at 0.2).")
    sound = few.assign(article_error=few["sound_error"])
    record = judging.judge(CLAIMS, frames | {"few": sound}, "D5-2")["D5-2"]
    assert record.verdict == "holds" and record.sensitivity == ""


def test_the_box_follows_the_verdicts(frames):
    records = judging.judge(CLAIMS, frames)
    box = summarize(records, SMALL)
    assert "It does not hold that the article's s/2 does (error up to 1.67 ε)." in box.found
    assert sum(len(text.split()) for text in vars(box).values()) <= 72
    turned = {"D5-3": records["D5-3"].model_copy(update={"verdict": "does not hold"})}
    assert "does not hold that space is" in summarize(records | turned, SMALL).found


@pytest.mark.parametrize(
    ("id", "expected", "change"),
    [
        ("D5-1", "does not hold", {"steps": lambda f: f.assign(same=f["t"] < 9)}),
        ("D5-2", "holds", {"few": lambda f: f.assign(article_error=f["sound_error"])}),
        ("D5-3", "does not hold", {"sizes": lambda f: f.assign(bound=f["bound"] / 10)}),
        ("D5-4", "does not hold", {"speeds": lambda f: f.assign(**{"events per second": 9e4})}),
        ("D5-4", "holds", {"speeds": lambda f: f.assign(**{"events per second": 2e5})}),
        ("D5-5", "does not hold", {"few": lambda f: f.assign(sound_error=f["article_error"])}),
        ("D5-5", "does not hold", {"swept": lambda f: f.assign(sound=np.inf)}),
        ("D5-5", "open", {"swept": lambda f: f.assign(sound_missed=1)}),
    ],
)
def test_a_verdict_follows_its_data(id, expected, change, frames):
    changed = {name: make(frames[name]) for name, make in change.items()}
    assert judging.verdict(CLAIMS, frames | changed, id) == expected


def test_d5_5_turns_when_too_few_buckets_are_kept(monkeypatch):
    monkeypatch.setattr(
        "aftlib.documents.exponential_histogram.histogram.least_buckets", lambda epsilon: 2
    )
    assert judging.verdict(CLAIMS, make_frames(), "D5-5") == "does not hold"


def test_d5_1_turns_when_a_merged_bucket_keeps_the_older_timestamp(monkeypatch):
    single = Buckets.single

    def wrong(self, now, units):
        single(self, now, units)
        for queue in (self._queues or [])[1:]:
            queue[-1] -= 1
        self._stamps = None

    monkeypatch.setattr(Buckets, "single", wrong)
    frame = {"steps": experiments.figure_3()}
    assert judging.verdict(CLAIMS, frame, "D5-1") == "does not hold"


@pytest.mark.parametrize("burst", [0, 30])
@pytest.mark.parametrize("share", [0.01, 0.5])
def test_a_longer_stream_begins_alike_and_has_the_share(share, burst):
    whole = draw_bits(200_000, share, 3, burst)
    np.testing.assert_array_equal(draw_bits(140_000, share, 3, burst), whole[:140_000])
    assert whole.mean() == pytest.approx(share, rel=0.25)


def test_exact_counts_are_a_loop():
    bits = draw_bits(50, 0.4, 0)
    loop = [int(bits[max(0, i - 6) : i + 1].sum()) for i in range(50)]
    assert count_exactly(bits, 7).tolist() == loop
    errors = relative_error([2, 0, 1], np.array([4, 0, 0]))
    assert errors.tolist() == [0.5, 0, np.inf]


def test_a_long_run_compares_with_the_exact_window():
    table = experiments.long_run(SMALL)
    bits = draw_bits(SMALL.events, 0.5, SMALL.seed)
    exact = count_exactly(bits, SMALL.window)
    histogram = ExponentialHistogram(SMALL.window, SMALL.epsilon)
    errors = relative_error(histogram.estimates(bits), exact)
    np.testing.assert_array_equal(table["error"], errors[table["at"] - 1])
    assert table["at"].iloc[-1] == SMALL.events
    assert 0 < table["error"].max() <= SMALL.epsilon


def test_windows_in_time_sums_and_merging_keep_their_bounds():
    epsilon = 0.001  # so small that an input counted twice, in place of the other, shows
    p = SMALL.model_copy(update={"demo_events": 20_000, "demo_epsilon": epsilon})
    table = experiments.try_other_windows(p)
    assert (table["error"] <= table["guaranteed"]).all() and (table["exact"] > 1000).all()
    first, _, merged = table.to_dict("records")
    assert merged["exact"] == first["exact"]
    assert merged["guaranteed"] == pytest.approx(2 * epsilon + epsilon**2)


def test_the_crossing_is_the_first_window_with_a_smaller_histogram():
    sizes = experiments.sizes([0.01, 0.1], (1000, 10**4, 10**6))
    assert experiments.find_crossings(sizes).to_dict() == {0.01: 10**6, 0.1: 10**4}
    assert experiments.find_crossings(sizes[sizes["window"] == 1000]).empty


def test_every_figure_can_be_drawn(frames):
    assert len(figures.buckets(frames["steps"], 7, start=9).layout.sliders[0].steps) == 13
    figure = figures.few_ones(frames["few"], start=0.1)
    article = next(trace for trace in figure.data if "article" in trace.name)
    assert max(article.y) > 0.1  # the caption: it exceeds ε where the figure opens
    assert figures.errors(frames["swept"]).data
    assert len(figures.sizes(frames["sizes"]).data) == 3
    run = experiments.long_run(SMALL)
    assert len(figures.long_run(run, 0.01).data) == 2
    answers = pd.DataFrame({"at": [1, 2], "exact": [1, 2], "estimate": [1.0, 2.0]})
    assert len(figures.demo(answers, 0.1).data) == 3


test_parameters_that_cannot_work_are_refused = refused(
    lambda given: NotebookParameters(**given),
    ({"windows": [10_000_000]}, "each of windows must be at least 1 and at most 1e\\+06"),
    ({"shares": [0.99], "bursts": [5]}, "burst must be at least 99, got 5"),
    ({"demo_events": 1}, "demo_events must be at least 5"),
)
