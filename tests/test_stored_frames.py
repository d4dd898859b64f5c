"""Figures from frames of a run, stored in frames/: each figure draws the values of its frame.

A case names the frame, the call, and the column that each of its first traces must show.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest

from aftlib.approximately_once import figures as d1
from aftlib.checkpoint_planning import figures as d2
from aftlib.checkpoint_planning.experiments.costs import fastest
from aftlib.exponential_histogram import figures as d5
from aftlib.upstream_backup import figures as d4

FRAMES = {p.stem: pd.read_csv(p) for p in Path(__file__).with_name("frames").glob("*.csv")}
SHARE = {"window": 10_000, "burst": 0}
ERRORS = {"article": "article_error", "sound": "error"}

PLANS = {"delta": 0.05}

CASES: list[tuple[str, Callable[[pd.DataFrame], go.Figure], str]] = [
    ("d1_grid", lambda f: d1.sweep(f, "workers", "estimable", "", start=0.65), "estimable " * 3),
    ("d1_grid", lambda f: d1.sweep(f, "epsilon", "pooled", "", start=10), "pooled pooled"),
    ("d1_coverage", lambda f: d1.coverage(f, 0.05, 60), "share share"),
    ("d2_counts", lambda f: d2.counts(f, "epsilon", "", PLANS, 50), "checkpoints " * 4),
    ("d2_success", lambda f: d2.success_by_time(f, 0.05, 50, start=0.12), "worst single restored"),
    ("d2_times", lambda f: d2.recovery_times(fastest(f), "", 1000), "res_ms rep_ms est_ms"),
    ("d2_killed", d2.restarts, "python_ms open_ms recovery_ms commit_ms plan_ms"),
    ("d4_means", lambda f: d4.by_rate(f, "recovery_ms", "", "ms"), "recovery_ms " * 5),
    ("d4_parts", lambda f: d4.tcp_parts(f, ""), "ns3_ms " * 4),
    ("d4_costs", lambda f: d4.overhead(f, "relative", "", ""), "relative " * 5),
    ("d4_uneven", lambda f: d4.by_share(f, 0.875, ""), "recovery_ms " * 2),
    ("d5_few", lambda f: d5.few_ones(f, start=0.1), "article_error sound_error epsilon"),
    ("d5_swept", lambda f: d5.errors(f, start=0.5), "article sound epsilon"),
    ("d5_sizes", d5.sizes, "bytes " * 6),
    ("d5_rates", lambda f: d5.rates(f, 100_000), "count_nonzero ring update estimates"),
    ("d5_variances", d5.variances, "error buckets"),
    ("d5_parallel", d5.parallel, "count_s histogram_s"),
    ("d5_long_run", lambda f: d5.along(f, ERRORS, 0.01, ""), "article_error error"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "drawn", "columns"), CASES)
def test_a_figure_draws_the_values_of_its_frame(name, drawn, columns):
    frame = FRAMES[name]
    figure = drawn(frame)
    for trace, column in zip(figure.data, columns.split(), strict=False):
        places = trace.x if trace.orientation == "h" else trace.y
        values = np.array([value for value in places if value is not None], float)
        assert len(values)
        known = frame[column].to_numpy(float)
        assert all(np.isclose(value, known, rtol=1e-9).any() for value in values), trace.name
    assert figure.layout.title.text is not None


def test_the_success_shown_is_the_mean_over_a_plan():
    figure = d2.success(FRAMES["d2_success"], "epsilon", "", PLANS, start=50)
    chosen = FRAMES["d2_success"].query("t_sla_ms == 50").groupby("epsilon")["worst"].mean()
    heights = dict(zip(figure.data[0].x, figure.data[0].y, strict=True))
    assert heights == pytest.approx(chosen.to_dict())


def test_ratios_are_multiples_of_the_guarantee():
    figure = d5.error_ratios(FRAMES["d5_swept"], "share", SHARE, start=0.1)
    rows = FRAMES["d5_swept"].query("window == 10_000 and burst == 0 and epsilon == 0.1")
    expected = (rows.set_index("share")["sound"] / 0.1).to_dict()
    heights = dict(zip(figure.data[1].x, figure.data[1].y, strict=True))
    assert heights == pytest.approx({share: expected[share] for share in heights})


def test_the_queries_answers_are_drawn_beside_what_is_so():
    figure = d5.demo(FRAMES["d5_answers"], 0.05)
    exact = next(trace for trace in figure.data if trace.name == "exact")
    assert set(exact.y) <= set(FRAMES["d5_answers"]["exact"])
