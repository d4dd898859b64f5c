"""D5's experiments give the document's table, and the numbers of slow twins."""

from __future__ import annotations

import numpy as np
import pytest

from aftlib.exponential_histogram import ExponentialHistogram, figures
from aftlib.exponential_histogram.bits import BitStream, exact_counts
from aftlib.exponential_histogram.experiments import costs, errors
from aftlib.exponential_histogram.experiments.costs import filled
from aftlib.exponential_histogram.experiments.errors import count_buckets, measure
from aftlib.exponential_histogram.source import BitEvents
from tests.exponential_histogram.article_histogram import ArticleHistogram


@pytest.fixture(scope="module")
def few():
    return errors.few_ones([0.01, 0.1, 0.5], most=200)


@pytest.fixture(scope="module")
def swept(spark):
    return errors.sweep(
        spark, epsilons=[0.02, 0.1], windows=[50, 400], shares=[0.01, 0.5], bursts=[0, 20],
        windows_of_events=20, seed=3,
    )  # fmt: skip


def test_figure_3_is_the_documents():
    table = errors.figure_3()
    assert table["same"].all() and len(table) == 13
    assert table["error"].round(3).tolist()[4:8] == [0.333, 0.25, 0.2, 0.167]
    shown = errors.shown(table)["buckets"].tolist()
    assert shown[0] == "–" and shown[5] == "(6,1) (5,1) (3,2)"


def test_smallest_counterexamples_are_the_digests(few):
    table = errors.counterexamples(few).set_index("epsilon")
    assert table.loc[0.01, ["ones", "article", "sound"]].tolist() == [52, 51, 51.5]
    assert table.loc[0.01, "article_error"] == pytest.approx(1 / 52)
    assert table.loc[0.1, ["ones", "article"]].tolist() == [7, 6]
    assert np.isnan(table.loc[0.5, "ones"])
    assert (table["sound_worst"] <= table.index).all()


def test_counts_of_buckets_are_the_twins():
    twin = ArticleHistogram(10**6, 0.1)
    for t, (last, buckets) in enumerate(count_buckets(100, ones=6, larger=6), start=1):
        twin.update(t, 1)
        assert (last, buckets) == (twin.buckets[-1][1], len(twin.buckets))
    assert (count_buckets(100, ones=11, larger=6)[:, 1] >= count_buckets(100, 6, 6)[:, 1]).all()


def test_measured_errors_are_one_by_one_ones():
    events, window, epsilon = BitStream(0.05, 5, 1).draw(3000), 300, 0.1
    measures = measure(events, window, epsilon)
    histogram, errors = ExponentialHistogram(window, epsilon), {"article": [], "sound": []}
    for t, event in enumerate(events.tolist(), 1):
        histogram.update(event)
        count = int(events[max(0, t - window) : t].sum())
        answers = {"article": histogram.article_estimate(), "sound": histogram.estimate()}
        for name, answer in answers.items():
            errors[name].append(abs(answer - count) / count if count else float(answer > 0))
    for name, each in errors.items():
        assert measures[name] == pytest.approx(max(each[window - 1 :]))
        assert measures[f"{name}_young"] == pytest.approx(max(each[: window - 1]))
        assert measures[f"{name}_missed"] == sum(e > epsilon * (1 + 1e-12) for e in each)
    assert measures["least"] == min(int(events[t - window : t].sum()) for t in range(window, 3001))
    assert measures["article_missed"] > 0


def test_sweep_keeps_the_sound_bound_and_breaks_the_articles(swept):
    assert len(swept) == 16
    assert (swept["sound"] <= swept["epsilon"] * (1 + 1e-12)).all()
    assert (swept["sound_missed"] == 0).all()
    assert (swept["article"] > swept["epsilon"]).any()
    point = swept[(swept["window"] == 400) & (swept["share"] == 0.01) & (swept["burst"] == 20)]
    stream = BitStream(0.01, 20, 3).draw(131_072)
    for row in point.to_dict("records"):
        assert measure(stream, 400, row["epsilon"]).items() <= row.items()


def test_sizes_are_those_of_bits_and_at_break_even_the_ring_is_larger():
    sizes = costs.sizes([0.01, 0.5], [100, 10_000, 1_000_000])
    histogram = ExponentialHistogram(10_000, 0.01)
    histogram.update(np.ones(20_000, bool))
    point = sizes[(sizes["window"] == 10_000) & (sizes["epsilon"] == 0.01)].iloc[0]
    assert point["buckets"] == pytest.approx(len(histogram.buckets), abs=51)
    assert (sizes["buckets"] <= sizes["bound"]).all()
    assert filled(2_000_000, 0.5).total == 2_000_000
    assert costs.break_even(sizes)["window"].tolist() == [1_000_000, 10_000]


def test_long_run_is_the_histograms():
    stream = BitStream(0.5, None, 2)
    long_run = costs.long_run(
        stream, events=300_000, window=20_000, epsilon=0.05, chunk=10_000, points=10
    )
    histogram = ExponentialHistogram(20_000, 0.05)
    bits = stream.draw(300_000)
    histogram.update(bits)
    last = long_run.iloc[-1]
    assert (last["at"], last["estimate"]) == (300_000, histogram.estimate())
    assert last["article"] == histogram.article_estimate()
    assert last["exact"] == bits[-20_000:].sum()
    assert (long_run["error"] <= 0.05).all()
    assert long_run["seconds"].is_monotonic_increasing


def test_error_curve_keeps_the_largest_of_each_segment():
    curve = errors.error_curve(BitStream(0.01, None, 1), 20_000, 1000, 0.1, points=40)
    measures = measure(BitStream(0.01, None, 1).draw(20_000), 1000, 0.1)
    assert curve["at"].iloc[-1] == 20_000
    for name in ("sound", "article"):
        assert curve[name].max() == max(measures[name], measures[f"{name}_young"])


def test_demo_and_parallel_keep_their_bounds(spark, tmp_path):
    events = BitEvents(0.5, None, 5, keys=1, stop=6000, every=3000, tasks=2)
    demo = errors.operator_demo(spark, tmp_path, events, window=1000, epsilon=0.05)
    bits = BitStream(0.5, None, 5).draw(6000)
    assert demo["exact"].tolist() == exact_counts(bits, 1000).tolist()
    assert demo["estimate"].tolist() == ExponentialHistogram(1000, 0.05).estimates(bits).tolist()
    assert (demo["error"] <= 0.05).all()
    merged = costs.parallel(
        spark, [300_000], window=50_000, epsilon=0.05, share=0.5, seed=5, tasks=3, rounds=1
    )
    assert merged["partitions"].tolist() == [3]
    assert (merged["error"] <= merged["bound"]).all()
    for figure in (figures.demo(demo, 0.05), figures.parallel(merged)):
        assert all(len(trace.x) for trace in figure.data)


def test_variances_keep_their_bound_with_fewer_buckets_for_a_larger_error():
    table = errors.variances([0.1, 0.5], 3000, seed=1, looks=40)
    assert (table["error"] <= table["epsilon"]).all()
    assert (table["error"] > 0).all()
    buckets = table.pivot_table(index="stream", columns="epsilon", values="buckets")
    assert sorted(buckets.index) == ["noise", "steps", "walk"]
    assert (3 * buckets[0.5] < buckets[0.1]).all()


def stepped(figure, step):
    """The figure's traces after its slider moved."""
    arguments = figure.layout.sliders[0].steps[step].args[0]
    return [{key: arguments[key][i] for key in arguments} for i in range(len(figure.data))]


def test_buckets_can_be_stepped_through():
    figure = figures.buckets(errors.figure_3(), errors.FIGURE_3_WINDOW, start=9)
    assert len(figure.layout.sliders[0].steps) == 13
    window, boxes, events, names, answers = stepped(figure, 8)
    assert events["text"] == list("011011111")
    assert names["text"] == ["9", "8", "6", "1", "2", "4"]
    assert answers["text"] == ["total 7 · query 5 · sound 5.5 · exact 6"]
    assert boxes["x"].count(None) == 3
    assert min(x for x in window["x"] if x is not None) == pytest.approx(2.42)
    assert min(x for x in boxes["x"] if x is not None) == pytest.approx(1.58)
    shown = [list(trace.text or []) for trace in figure.data]
    assert shown == [[], [], events["text"], names["text"], answers["text"]]
    assert stepped(figure, 12)[4]["text"] == ["total 3 · query 2 · sound 2.5 · exact 3"]


def test_error_figures_show_both_estimates_and_the_bound(few, swept):
    for figure in (
        figures.few_ones(few, start=0.1),
        figures.errors(swept, start=0.5),
        figures.error_ratios(swept, "window", {"share": 0.01, "burst": 0}, start=0.02),
        figures.error_ratios(swept, "share", {"window": 400, "burst": 20}, start=0.02),
        figures.error_ratios(swept, "burst", {"window": 300, "share": 0.5}, start=0.1),
    ):
        names = [trace.name for trace in figure.data]
        assert names[0].startswith("article's") and names[1].startswith("sound")
        assert names[2].startswith("guaranteed")
        for step in range(len(figure.layout.sliders[0].steps)):
            _, sound, bound = stepped(figure, step)
            at_most = [p for x, p in zip(bound["x"], bound["y"], strict=True)]
            limit = dict(zip(bound["x"], at_most, strict=True))
            for x, y in zip(sound["x"], sound["y"], strict=True):
                assert np.isnan(y) or y <= limit.get(x, at_most[0]) * (1 + 1e-12)
