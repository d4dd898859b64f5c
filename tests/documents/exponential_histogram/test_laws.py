"""Laws of the exponential histogram: bulk updates equal single ones, bounds hold, merges add up."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aftlib.documents.exponential_histogram import ExponentialHistogram
from aftlib.documents.exponential_histogram.buckets import FINEST
from tests.documents.exponential_histogram.article_histogram import ArticleHistogram, exact

EPSILONS = (0.001, 0.003, 0.01, 0.03, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 0.9)


def stream(rng, size, values):
    """Zeros, ones, bursts and gaps, or integers of very different sizes."""
    share = np.repeat(rng.choice([0, 0.05, 0.5, 0.95, 1], 1 + size // 50), 50)[:size]
    present = rng.random(size) < share
    return present if values == "bits" else present * (2 ** rng.integers(0, 12, size) - 1)


def clock(rng, size):
    """Timestamps with ties, steps and gaps, from anywhere."""
    return rng.integers(-1000, 1000) + np.cumsum(rng.choice([0, 0, 1, 2, 90], size))


def one_by_one(histogram, events, times):
    answers = []
    for i, event in enumerate(events.tolist()):
        histogram.update(event, None if times is None else int(times[i]))
        answers.append(histogram.estimate())
    return answers


def in_chunks(histogram, events, times, sizes):
    answers, start = [], 0
    for turn, size in enumerate(itertools.cycle([*sizes, 50])):
        if start >= len(events):
            return answers
        part = slice(start, start + size)
        when = None if times is None else times[part]
        if turn % 2:
            answers.extend(histogram.estimates(events[part], when))
        else:
            twin = ExponentialHistogram.from_bytes(histogram.to_bytes())
            answers.extend(one_by_one(twin, events[part], when))
            histogram.update(events[part], when)
        start += size
    return answers


def check_bulk(seed):
    rng = np.random.default_rng(seed)
    window, timed = int(rng.choice([1, 2, 3, 7, 40, 300])), bool(rng.integers(2))
    values = "bits" if rng.integers(2) else "integers"
    make = (window, float(rng.choice(EPSILONS)), timed, values)
    events = stream(rng, int(rng.integers(0, 1200)), values)
    times = clock(rng, events.size) if timed else None
    single, bulk = ExponentialHistogram(*make), ExponentialHistogram(*make)
    answers = one_by_one(single, events, times)
    sizes = rng.choice([0, 1, 2, 17, 64, 400, 1000], 5).tolist()
    assert in_chunks(bulk, events, times, sizes) == answers
    assert bulk.to_bytes() == single.to_bytes()
    article = ExponentialHistogram(*make).estimates(events, times, article=True)
    if article.size:
        assert article[-1] == single.article_estimate()
    assert not np.signbit(article).any()  # no −0 where nothing is left


@pytest.mark.parametrize("block", range(5))
def test_bulk_is_one_by_one_on_many_streams(block):
    for seed in range(100 * block, 100 * block + 100):
        check_bulk(seed)


@settings(max_examples=300, deadline=None)
@given(
    window=st.integers(1, 30),
    epsilon=st.floats(0.02, 0.95),
    events=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), max_size=60),
    cuts=st.lists(st.integers(0, 60), max_size=4),
)
def test_any_cut_gives_the_buckets_of_the_article(window, epsilon, events, cuts):
    units = np.array([unit for _, unit in events], np.int64)
    times = np.cumsum([gap for gap, _ in events], dtype=np.int64)
    article = ArticleHistogram(window, epsilon)
    histogram = ExponentialHistogram(window, epsilon, timed=True, values="integers")
    edges = [0, *sorted(min(cut, len(events)) for cut in cuts), len(events)]
    for first, after in itertools.pairwise(edges):
        histogram.update(units[first:after], times[first:after])
        for time, unit in zip(times[first:after].tolist(), units[first:after], strict=True):
            article.update(time, int(unit))
        assert histogram.buckets == article.listed()
        assert histogram.total == article.total
        assert histogram.article_estimate() == article.query()


def test_the_answers_keep_their_bound_for_every_total():
    """For k ≤ 200, a histogram that grows one by one, after zeros that fill its window."""
    truth = np.arange(1, 5001)
    for k in range(2, 201):
        histogram = ExponentialHistogram(6000, 1 / k)
        histogram.update(np.zeros(6000, bool))
        answers = histogram.estimates(np.ones(5000, bool))
        assert (np.abs(answers - truth) * k <= truth * (1 + 1e-12)).all(), k
        for time, _ in histogram.buckets:  # just the newest of each bucket inside
            last = 11_000 - time + 1
            assert abs(histogram.estimate(last) - last) * k <= last * (1 + 1e-12)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize("values", ["bits", "integers"])
def test_estimates_keep_their_bound_on_streams(epsilon, timed, values):
    rng = np.random.default_rng(5)
    for window in (1, 10, 200, 3000):
        events = stream(rng, 6000, values)
        times = clock(rng, events.size) if timed else np.arange(1, events.size + 1)
        histogram = ExponentialHistogram(window, epsilon, timed, values)
        answers = histogram.estimates(events, times if timed else None)
        sums = np.concatenate(([0], np.cumsum(events)))
        truth = sums[1:] - sums[np.searchsorted(times, times - window, side="right")]
        if timed:  # after each event, later ones at the same time are not yet there
            assert (truth >= 0).all()
        assert (np.abs(answers - truth) <= epsilon * truth * (1 + 1e-12)).all()
        for last in {1, max(1, window // 7), max(1, window // 2), window}:
            count = exact(times.tolist(), events.tolist(), int(times[-1]), last)
            assert abs(histogram.estimate(last) - count) <= epsilon * count * (1 + 1e-12)


def leaf(rng, window, epsilon, values):
    """A histogram, its events and its times: few or many, bunched or spread."""
    size = int(rng.choice([0, 1, 3, 30, 60, 400]))
    events = stream(rng, size, values)
    end = int(rng.integers(window // 2, 2 * window))
    times = np.sort(end - rng.choice([1, window // 9 + 1, 2 * window], size) * rng.random(size))
    times = times.astype(np.int64)
    histogram = ExponentialHistogram(window, epsilon, True, values)
    histogram.update(events, times)
    return histogram, events.astype(np.int64), times


def check_parts(histogram, leaves, bound):
    """Compare all parts of the window that end at a jump with the exact sums."""
    events = np.concatenate([leaf[1] for leaf in leaves])
    times = np.concatenate([leaf[2] for leaf in leaves])
    if times.size == 0:
        assert histogram.estimate() == 0
        return
    now = int(times.max())
    assert histogram.now == now
    widths = {now - int(t) + d for t in times for d in (0, 1)} | {histogram.window}
    for last in sorted(width for width in widths if 1 <= width <= histogram.window):
        count = int(events[times > now - last].sum())
        assert abs(histogram.estimate(last) - count) <= bound * count * (1 + 1e-12) + 1e-12


@pytest.mark.parametrize("epsilon", [0.01, 0.03, 0.1, 0.3, 0.9])
@pytest.mark.parametrize("values", ["bits", "integers"])
def test_merging_keeps_its_bound_at_three_levels(epsilon, values):
    rng = np.random.default_rng(6)
    bounds = [epsilon]
    for _ in range(3):
        bounds.append(bounds[-1] + epsilon + bounds[-1] * epsilon)
    for _ in range(25):
        leaves = [leaf(rng, 1000, epsilon, values) for _ in range(8)]
        merged = [leaf[0] for leaf in leaves]
        for level in (1, 2, 3):
            merged = [merged[i].merge(merged[i + 1]) for i in range(0, len(merged), 2)]
            group = 2**level
            for i, histogram in enumerate(merged):
                assert histogram.error_bound <= bounds[level] * (1 + 1e-12)
                check_parts(histogram, leaves[i * group : (i + 1) * group], bounds[level])


def test_merging_all_at_once_costs_one_level():
    rng, epsilon = np.random.default_rng(7), 0.1
    for _ in range(20):
        leaves = [leaf(rng, 500, epsilon, "bits") for _ in range(7)]
        first, *others = (leaf[0] for leaf in leaves)
        merged = first.merge(*others)
        assert merged.error_bound <= (2 * epsilon + epsilon**2) * (1 + 1e-12)
        check_parts(merged, leaves, merged.error_bound)


def test_a_long_chain_of_merges_keeps_the_bound_it_reports():
    rng = np.random.default_rng(12)
    leaves = [leaf(rng, 500, 0.01, "bits") for _ in range(40)]
    chain, *others = (leaf[0] for leaf in leaves)
    filled = 0
    for i, other in enumerate(others, 1):
        filled += other.total > 0
        chain.merge(other)
        assert chain.error_bound < 1.01 ** (filled + 2) - 1 + 1e-4
        check_parts(chain, leaves[: i + 1], chain.error_bound)
    assert filled > 20
    assert chain._buckets.scale == FINEST


@pytest.mark.parametrize("values", ["bits", "integers"])
def test_merging_commutes_and_empty_ones_change_nothing(values):
    rng = np.random.default_rng(8)
    for _ in range(50):
        one, other = (leaf(rng, 300, 0.05, values)[0] for _ in range(2))
        empty = ExponentialHistogram(300, 0.05, True, values)
        again, before = (ExponentialHistogram.from_bytes(one.to_bytes()) for _ in range(2))
        twin = ExponentialHistogram.from_bytes(other.to_bytes())
        assert one.merge(empty).to_bytes() == before.to_bytes()
        if before.now is not None:
            assert empty.merge(before).to_bytes() == before.to_bytes()
        assert one.merge(other).to_bytes() == twin.merge(again).to_bytes()


def test_updates_after_a_merge_keep_the_bound_and_are_the_same_in_bulk():
    rng = np.random.default_rng(10)
    for values in ("bits", "integers"):
        for _ in range(30):
            leaves = [leaf(rng, 300, 0.1, values) for _ in range(2)]
            merged = leaves[0][0].merge(leaves[1][0])
            events, times = stream(rng, 400, values), clock(rng, 400)
            times += (merged.now or 0) - times[0]
            bulk = ExponentialHistogram.from_bytes(merged.to_bytes())
            answers = bulk.estimates(events, times)
            assert one_by_one(merged, events, times) == answers.tolist()
            assert merged.to_bytes() == bulk.to_bytes()
            check_parts(bulk, [*leaves, (None, events.astype(np.int64), times)], bulk.error_bound)
