"""D1's experiments: every number of the grid is a slow twin's, and odd parameters are refused."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from aftlib import GaussianModel
from aftlib.core.generators import block_model, draw
from aftlib.core.requirement import Requirement
from aftlib.documents.approximately_once import captions, experiments, figures
from aftlib.documents.approximately_once.assignment import (
    assess,
    assign_greedy,
    residual_variance,
)
from aftlib.documents.approximately_once.claims import CLAIMS, summarize
from aftlib.documents.approximately_once.error_rates import (
    ASSIGN,
    CHANCE,
    ErrorRates,
    standard_error,
)
from aftlib.documents.approximately_once.experiments import NotebookParameters
from aftlib.sensor_plans.sensor_file import read_sensors
from tests.judging import judge
from tests.refusals import refused

SMALL = {"dimensions": 12, "blocks": 2, "rows": 300, "draws": 2}
PARAMETERS = NotebookParameters(**SMALL, workers=[6, 3], epsilons=[0.75, 0.5])


@pytest.fixture(scope="module")
def grid(spark):
    return experiments.grid(spark, PARAMETERS)


def test_rates_are_those_of_equation_2_and_sampled_ones_are_counted(grid):
    model, sample = PARAMETERS.model, draw(PARAMETERS.model, 300, 1)
    assert PARAMETERS.settings == ([3, 6], [0.5, 0.75])
    drawn = {experiments.RANDOM: PARAMETERS.draws, experiments.CHANCE: experiments.TIES}
    assert len(grid) == 2 * 2 * sum(drawn.get(name, 1) for name in experiments.ASSIGN)
    for epsilon in (0.5, 0.75):
        assignment = assign_greedy(model, 3, Requirement(epsilon, 0.05))
        rates, wrong = np.empty(12), np.zeros((300, 12), dtype=bool)
        for worker in assignment.workers:
            others = [key for key in range(12) if key not in worker]
            deviation = np.sqrt(model.posterior_variance(others)[list(worker)])
            rates[list(worker)] = 2 * norm.sf(epsilon / deviation)
            for row, values in enumerate(sample):
                seen = {model.names[key]: values[key] for key in others}
                off = np.abs(model.condition(seen).mean - values[list(worker)])
                wrong[row, list(worker)] = off > epsilon
        point = grid.query("method == 'greedy' and workers == 3 and epsilon == @epsilon").iloc[0]
        assert point["estimable"] == assignment.estimable.sum()
        assert point["everyone"] == pytest.approx(rates.mean())
        counted = assignment.estimable_keys
        if not counted.any():
            assert point[["rate", "largest", "measured", "error", "first", "z"]].isna().all()
            continue
        assert point["rate"] == pytest.approx(rates[counted].mean())
        assert point["largest"] == pytest.approx(rates[counted].max())
        of_windows = wrong[:, counted].mean(axis=1)
        assert point["measured"] == pytest.approx(of_windows.mean())
        assert point["error"] == pytest.approx(of_windows.std(ddof=1) / np.sqrt(300))
        assert point["z"] == pytest.approx((point["measured"] - point["rate"]) / point["error"])


def test_no_assignment_has_more_estimable_workers_than_the_bound(grid):
    assert (grid["estimable"] <= grid["bound"]).all()
    assert (grid["estimable"] == grid["bound"])[grid["method"] == "h-best"].all()


def test_an_added_assignment_is_in_every_figure_and_in_no_other_grid(spark):
    def mine(model, m, requirement, rng):  # as a notebook would: the tasks do not know this module
        return assess(model, [list(keys) for keys in np.array_split(np.arange(12), m)], requirement)

    grid = experiments.grid(spark, PARAMETERS, also={"mine": mine})
    for figure in (
        figures.estimable_workers(grid, "fig. 10", 0.75),
        figures.estimable_over_epsilon(grid, "fig. 11", 3),
        figures.behind_h_best(grid, "behind", 0.75),
        figures.error_rates(grid, "workers", "fig. 12", 0.75, 0.05),
        figures.error_rates(grid, "epsilon", "fig. 13", 3, 0.05),
    ):
        (trace,) = (trace for trace in figure.data if trace.name == "mine")
        assert len(trace.y)
    assert "mine" not in set(experiments.averaged_grid(spark, PARAMETERS)["method"])


def test_a_mean_of_samples_is_as_good_at_a_smaller_epsilon(spark):
    many = NotebookParameters(**SMALL | {"rows": 4000}, workers=[6, 3], epsilons=[0.75, 0.5])
    averaged, grid = experiments.averaged_grid(spark, many), experiments.grid(spark, many)
    smaller = grid.assign(epsilon=(grid["epsilon"] / np.sqrt(3)).map(lambda e: float(f"{e:.6g}")))
    both = averaged.merge(smaller, on=["method", "workers", "draw", "epsilon"])
    assert len(both) == grid["method"].isin(averaged["method"]).sum() > 0
    assert (both["estimable_x"] == both["estimable_y"]).all()
    np.testing.assert_allclose(both["rate_x"], both["rate_y"], rtol=1e-4)
    assert averaged["z"].abs().max() < 4  # windows share samples, and the error says so
    # of the same number of windows, those that share samples tell less
    known = both.dropna(subset=["error_x", "error_y"])
    assert known["error_x"].mean() > 1.2 * known["error_y"].mean()


def test_the_error_of_a_mean_counts_what_neighbours_share():
    values = np.random.default_rng(1).normal(size=(400, 2002))
    shared = (values[:, :-2] + values[:, 1:-1] + values[:, 2:]) / 3
    errors = [standard_error(row, 3) for row in shared]
    assert np.mean(errors) == pytest.approx(shared.mean(axis=1).std(), rel=0.1)
    assert standard_error(values[0]) == pytest.approx(values[0].std(ddof=1) / np.sqrt(2002))


def some_sensors(rows=400):
    """Two pairs and their order, so that an assignment by pairs is the worst."""
    rng = np.random.default_rng(5)
    pairs = rng.normal(size=(rows, 2)).repeat(2, axis=1) + 0.3 * rng.normal(size=(rows, 4))
    return pd.DataFrame(pairs, columns=list("abcd"))


def test_a_model_of_the_first_half_is_tried_on_the_second():
    table = some_sensors()
    table.iloc[3, 1] = np.nan  # the row is left out
    real = experiments.real_grid({"pairs": table}, 0.05, 1)
    model = GaussianModel.fit(table[:200].dropna())
    deviation = np.sqrt(np.median(np.diag(model.covariance)))
    row = real.query("method == 'greedy' and workers == 2 and fraction == 1").iloc[0]
    assignment = assign_greedy(model, 2, Requirement(float(deviation), 0.05))
    assert (row["set"], row["sensors"], row["estimable"]) == ("pairs", 4, 2)
    later = table[200:].to_numpy()
    wrong = []
    for worker in assignment.workers:
        others = [key for key in range(4) if key not in worker]
        for values in later:
            seen = {model.names[key]: values[key] for key in others}
            off = model.condition(seen).mean - values[list(worker)]
            wrong.append(np.abs(off) > deviation)
    assert row["measured"] == pytest.approx(np.mean(wrong))
    assert row["epsilon"] == pytest.approx(deviation)


def test_rates_are_compared_where_each_method_has_estimable_workers():
    real = experiments.real_grid({"pairs": some_sensors()}, 0.05, 1)
    summary = experiments.summarize_real(real).set_index("method")
    means = real.groupby(["workers", "epsilon", "method"])["rate"].mean().unstack()
    assert means.isna().any().any()
    common = means.dropna()
    assert {*summary.index} == {*ASSIGN} - {CHANCE}
    assert summary["common"].tolist() == [len(common)] * len(summary)
    for method in common:
        assert summary.loc[method, "rate"] == pytest.approx(common[method].mean())


def own_table(path):
    own = read_sensors(str(path))
    return experiments.own_table(str(path), pd.DataFrame(own.values, columns=own.names))


def test_a_file_takes_the_place_of_the_projects_sensors(tmp_path):
    path = tmp_path / "my_pairs.csv"
    some_sensors().to_csv(path, index=False)
    tables = own_table(path)
    assert list(tables) == ["my_pairs"] and list(tables["my_pairs"]) == list("abcd")
    np.testing.assert_allclose(tables["my_pairs"], some_sensors())
    real = experiments.real_grid(tables, 0.05, 1)
    assert set(real["set"]) == {"my_pairs"}
    text = captions.real_sensors(real, 0.05).markdown
    assert " of 1 set." in text


def test_a_file_with_too_few_whole_rows_is_refused_before_spark_starts(tmp_path):
    table = some_sensors(40)
    table.iloc[20:37, 2] = np.nan
    table.to_parquet(tmp_path / "gaps.parquet")
    with pytest.raises(ValueError, match="got 3 rows for 4 sensors in the second half: give more"):
        own_table(tmp_path / "gaps.parquet")
    table.drop(columns="c").to_parquet(tmp_path / "fewer.parquet")  # as the advice says
    assert len(own_table(tmp_path / "fewer.parquet")["fewer"]) == 40


def test_error_rates_of_unknown_methods_or_of_other_sensors_windows_are_refused():
    windows = some_sensors().to_numpy()
    rates = ErrorRates(GaussianModel.fit(some_sensors()), [0.5], 0.05, windows)
    with pytest.raises(ValueError, match="each of methods must be one of greedy, .* got 'luck'"):
        rates.table(["luck"], workers=[2])
    fewer = replace(rates, windows=windows[:, :3])
    with pytest.raises(ValueError, match=r"windows must have shape \(windows, 4\).*got \(\d+, 3\)"):
        fewer.table(["greedy"], workers=[2])
    assert len(rates.table(["greedy", "random"], workers=[2, 4], draws=3)) == 2 * (1 + 3)


LEARNED = NotebookParameters(**SMALL, workers=[3], epsilons=[0.5, 0.75, 0.9])


@pytest.fixture(scope="module")
def curve():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(experiments, "sweep", lambda _, work, points: [work(each) for each in points])
        return experiments.learning_curve(None, LEARNED, 3)


def test_true_rates_are_those_that_are_counted():
    model = block_model(6, 2, mean=1.0)
    learned = GaussianModel.fit(draw(model, 25, 3))
    workers = [(0, 1, 3), (2, 4, 5)]
    rates = experiments.true_rates(model, learned, workers, 0.7)
    sample = draw(model, 200_000, 4)
    for keys in map(list, workers):
        others = [key for key in range(6) if key not in keys]
        gain, offset = learned.gain(others, keys), learned.mean[keys]
        estimates = offset + (sample[:, others] - learned.mean[others]) @ gain.T
        counted = (np.abs(sample[:, keys] - estimates) > 0.7).mean(axis=0)
        np.testing.assert_allclose(rates[keys], counted, atol=0.005)


def test_the_true_model_predicts_its_true_rates():
    model = block_model(6, 2)
    workers = [(0, 1, 3), (2, 4, 5)]
    predicted = 1 - Requirement(0.7, 0.05).reliability(residual_variance(model, workers))
    np.testing.assert_allclose(experiments.true_rates(model, model, workers, 0.7), predicted)


def test_few_rows_promise_too_much_and_many_rows_the_truth(curve):
    at = curve[(curve["epsilon"] == 0.9) & (curve["covariance"] == experiments.COUNTED)]
    means = at.groupby("rows")[["rate", "true"]].mean()
    assert means.loc[100, "true"] > 1.2 * means.loc[100, "rate"]
    assert means.loc[10_000, "true"] == pytest.approx(means.loc[10_000, "rate"], rel=0.05)
    nothing = curve[curve["epsilon"] == 0.5]  # no worker is estimable
    assert nothing[["rate", "true"]].isna().all(axis=None)


def test_the_caption_says_what_the_rows_give(curve):
    text = captions.learned(curve, 0.75, 3, 0.05).markdown
    assert "m = 3" in text and "nan" not in text
    nothing = captions.learned(curve.assign(rate=np.nan), 0.75, 3, 0.05).markdown
    assert "no learned model has an estimable worker" in nothing


def test_without_more_rows_than_sensors_there_is_only_the_shrunk_one(curve, monkeypatch):
    monkeypatch.setattr(experiments, "LEARNED_ROWS", (10, 13))
    monkeypatch.setattr(experiments, "sweep", lambda _, work, points: [work(p) for p in points])
    few = experiments.learning_curve(None, LEARNED, 3).groupby("rows")["covariance"].unique()
    assert set(few[10]) == {experiments.SHRUNK}
    assert set(few[13]) == {experiments.SHRUNK, experiments.COUNTED}


DEFAULTS = {name: info.default for name, info in NotebookParameters.model_fields.items()}
AWKWARD = [0, -1, np.nan, np.inf, 2.5, [], "x", [0], [-1], ["x"], [np.nan], [7], True, 10**7]
FINE = {"epsilons": [[7]], "rows": [10**7], "seed": [0, 10**7], "data": ["x"]}


@pytest.mark.parametrize("name", DEFAULTS)
@pytest.mark.parametrize("value", AWKWARD, ids=str)
def test_awkward_parameters_are_refused_by_name(name, value):
    if value in FINE.get(name, []):
        NotebookParameters(**DEFAULTS | {name: value})
    else:
        with pytest.raises(ValueError, match=name):
            NotebookParameters(**DEFAULTS | {name: value})


test_parameters_that_do_not_go_together_are_refused = refused(
    lambda other: NotebookParameters(**other),
    ({"workers": [7]}, r"workers must divide the 120 sensors, got 7; choose from \[1, 2"),
    (SMALL | {"blocks": 5}, r"blocks must divide the 12 sensors, got 5; choose from \[1, 2, 3"),
)


@pytest.mark.parametrize(
    "odd",
    [
        {"dimensions": 7, "blocks": 7},  # no m of the document's, and nothing to estimate from
        {"epsilons": [0.01]},  # no worker is estimable
        {"workers": [1], "epsilons": [2.5]},  # one worker, estimated from nothing
    ],
    ids=str,
)
def test_odd_parameters_work_to_the_end(spark, odd):
    parameters = NotebookParameters(**SMALL | odd)
    grid = experiments.grid(spark, parameters)
    averaged = experiments.averaged_grid(spark, parameters)
    real = experiments.real_grid({"pairs": some_sensors()}, 0.05, 1)
    m, epsilon = captions.middle(parameters.settings[0]), captions.start_epsilon(grid)
    figures.estimable_workers(grid, "title", epsilon)
    figures.estimable_over_epsilon(grid, "title", m)
    figures.behind_h_best(grid, "title", epsilon)
    figures.error_rates(grid, "workers", "title", epsilon, 0.05)
    figures.error_rates(grid, "epsilon", "title", m, 0.05)
    for text in (
        captions.data(parameters),
        captions.workers(grid, epsilon, 0.05),
        captions.over_epsilon(grid, m, 0.05),
        captions.behind(grid, epsilon),
        captions.rates(grid, epsilon, parameters),
        captions.rates_over_epsilon(grid, m, 0.05),
        captions.interpretations(grid, averaged, m, 3),
        captions.real_sensors(real, 0.05),
        captions.own_rates(real, "pairs", 2, 0.05),
    ):
        assert not re.search("nan|of 0 |most 0[ .]", text.markdown)
    frames = {"grid": grid, "averaged": averaged, "real": real, "parameters": parameters}
    records = judge(CLAIMS, frames)
    assert len(records) == len(CLAIMS)
    summarize(records, parameters)
