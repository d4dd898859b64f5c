"""GaussianModel: the formulas against their textbook form, and every refusal."""

import hashlib
import tracemalloc

import numpy as np
import pandas as pd
import pytest

from aftlib.core.gaussian import GaussianModel
from aftlib.core.generators import block_model
from tests.refusals import refused

TWO = GaussianModel([18.0, 19.0], [[4.0, 3.0], [3.0, 4.0]])


def test_several_rows_are_conditioned_as_each_by_itself():
    model = block_model(8, 2)
    rows = pd.DataFrame(
        np.random.default_rng(1).normal(size=(5, 3)), [*"abcde"], ["X7", "X1", "X3"]
    )
    together = model.condition(rows)
    assert together.mean.shape == (5, 5)
    assert model.condition(rows.to_dict("list")).mean.tolist() == together.mean.tolist()
    for number, (_, row) in enumerate(rows.iterrows()):
        alone = model.condition(row)
        assert alone.names == together.names
        np.testing.assert_allclose(together.mean[number], alone.mean, atol=1e-14)
        assert together.covariance.tolist() == alone.covariance.tolist()
    unconditional = model.condition(rows[[]])
    assert unconditional.mean.tolist() == np.zeros((5, 8)).tolist()


def test_fit_recovers_moments_and_names():
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(50, 3)), columns=["a", "b", "c"])
    model = GaussianModel.fit(frame)
    assert model.names == ("a", "b", "c")
    np.testing.assert_allclose(model.mean, frame.mean())
    np.testing.assert_allclose(model.covariance, frame.cov())


def test_a_model_is_an_immutable_value_that_copies_what_others_may_change():
    covariance = np.eye(3)
    model = GaussianModel(np.zeros(3), covariance)
    covariance[0, 0] = 9
    assert model.covariance[0, 0] == 1
    with pytest.raises(ValueError, match="read-only"):
        model.covariance[0, 0] = 2
    with pytest.raises(AttributeError):
        model.mean = np.ones(3)


test_what_is_no_gaussian_is_refused = refused(
    lambda arguments: GaussianModel(*arguments),
    (([0.0, 0.0], np.eye(3)), r"covariance must have shape \(2, 2\), got \(3, 3\)"),
    (([], np.empty((0, 0))), "mean must have shape"),
    (([0.0, 0.0], np.eye(2), ["a"]), "names must be 2 different ones"),
    (([0.0, 0.0], np.eye(2), ["a", "a"]), "names must be 2 different .*, got 'a', 'a'"),
    (([0.0, np.nan], np.eye(2)), "mean must be finite, got 1 NaN"),
    (([0.0, 0.0], [[1, np.inf], [np.inf, 1]]), "covariance must be finite"),
    (([0.0, 0.0], [[1.0, 0.5], [0.2, 1.0]]), "covariance must be symmetric"),
    (([0.0, 0.0], [[1.0, 2.0], [2.0, 1.0]]), "covariance must be positive definite.*-1"),
    (([0.0, 0.0], [[1.0, 1.0], [1.0, 1.0]]), "covariance must be positive definite"),
)


test_bad_arguments_are_named = refused(
    lambda call: call(),
    (lambda: TWO.condition({"X3": 1.0}), r"observed .* names such as 'X1', 'X2', got \['X3'\]"),
    (lambda: TWO.condition({"X1": np.nan}), "observed must be finite"),
    (lambda: TWO.condition([1.0]), r"observed must name its keys, got \[1\.0\]: give"),
    (lambda: TWO.condition({"X1": "warm"}), r"observed must be numbers, got \['warm'\]"),
    (lambda: TWO.condition({"X1": [1, 2], "X2": [1]}), "observed must be numbers, got"),
    (lambda: TWO.condition(pd.DataFrame(1.0, [0], ["X1", "X1"])), "observed must be different"),
    (lambda: TWO.posterior_variance(["X3"]), r"observed must be different keys.* got \['X3'\]"),
    (lambda: GaussianModel.fit(pd.DataFrame({"a": [1], "s": ["x"]})), "got other types in 's'"),
    (
        lambda: TWO.posterior_variance([2]),
        "observed must be .* indices 0 … 1 or of names",
    ),
    (lambda: TWO.posterior_variance([0, 0]), "observed must be different keys"),
    (lambda: TWO.block_variance([-1]), "keys must be different keys"),
    (lambda: TWO.block_variance([0.5]), "keys must be different keys"),
    (lambda: TWO.block_variance(3), "keys must be different keys, as a list"),
    (lambda: TWO.aggregate(0), "steps must be a whole number at least 1, got 0"),
    (lambda: TWO.aggregate(1.5), "steps must be a whole number"),
    (lambda: TWO.aggregate(3, "median"), "query must be one of mean, sum.*, got 'median'"),
    (lambda: GaussianModel.fit(np.zeros(3)), r"frame must have shape \(rows, n\)"),
    (
        lambda: GaussianModel.fit([[np.nan] * 12]),
        "12 missing or non-finite values in 1 of 1 rows, in 'X1', .* and 4 more; .*'estimate'",
    ),
    (lambda: GaussianModel.fit(np.eye(2)), "more rows than keys, got 2 rows for 2"),
)


def test_indices_accept_sets_ranges_and_arrays():
    model = block_model(4, 1)
    for keys in ({2, 1}, range(1, 3), np.array([1, 2]), (1, 2)):
        np.testing.assert_allclose(model.block_variance(keys), model.block_variance([1, 2]))


LABELLED = {
    "mean": pd.Series({"b": 2.0, "a": 1.0, "c": 3.0}),
    "covariance": pd.DataFrame(
        [[4.0, 0.5, 0.2], [0.5, 5.0, 0.3], [0.2, 0.3, 6.0]], list("abc"), list("abc")
    ),
}


def test_labels_of_pandas_are_taken_and_put_in_one_order():
    model = GaussianModel(**LABELLED)
    assert model.names == ("b", "a", "c")
    np.testing.assert_array_equal(model.mean, [2, 1, 3])
    np.testing.assert_array_equal(np.diag(model.covariance), [5, 4, 6])
    np.testing.assert_array_equal(model.covariance[0], [5.0, 0.5, 0.3])  # b with b, a, c
    shuffled = LABELLED["covariance"][["c", "a", "b"]]  # rows a, b, c; columns in another order
    np.testing.assert_array_equal(
        GaussianModel(LABELLED["mean"], shuffled).covariance, model.covariance
    )
    named = GaussianModel(**LABELLED, names=["c", "b", "a"])
    assert named.mean.tolist() == [3, 2, 1]
    assert model.condition(pd.Series({"a": 1.5})).names == ("b", "c")


def test_one_labelled_side_names_the_model_and_default_labels_are_none():
    by_mean = GaussianModel(LABELLED["mean"], np.eye(3))
    assert by_mean.names == ("b", "a", "c")
    halves = pd.DataFrame(np.diag([1.0, 2.0, 3.0]), columns=["x", "y", "z"])
    assert GaussianModel([0, 0, 0], halves).names == ("x", "y", "z")
    turned = GaussianModel([0, 0, 0], halves, names=["z", "x", "y"])
    assert np.diag(turned.covariance).tolist() == [3, 1, 2]
    numbered = pd.DataFrame(np.diag([1.0, 2.0, 3.0]))
    by_number = GaussianModel(pd.Series([0.0, 0.0, 0.0], [2, 0, 1]), numbered)
    assert by_number.names == ("2", "0", "1")
    assert np.diag(by_number.covariance).tolist() == [3, 1, 2]
    assert GaussianModel(pd.Series([0.0, 1.0]), pd.DataFrame(np.eye(2))).names == ("X1", "X2")


test_labels_that_do_not_fit_are_named = refused(
    lambda changed: GaussianModel(**(LABELLED | changed)),
    ({"mean": pd.Series({"b": 2.0, "a": 1.0, "d": 3.0})}, "covariance must .* got missing 'd'"),
    ({"covariance": LABELLED["covariance"].rename(columns={"c": "C"})}, "cov.* got missing 'c'"),
    ({"names": ["a", "b", "x"]}, "mean must have each of the 3 sensors once as label, .* 'x'"),
    ({"covariance": LABELLED["covariance"].iloc[:2]}, "rows of covariance must .* missing 'c'"),
    ({"mean": pd.Series([1.0, 2.0, 3.0], ["a", "a", "b"])}, "mean must .* got repeated 'a'"),
    ({"mean": pd.Series([1.0, 2, 3], [*"aab"]), "covariance": np.eye(3)}, "mean .* repeated 'a'"),
)


def with_gaps(share, rows=4000, sensors=60):
    """Block data with a share of values missing at random, and the model that drew it."""
    rng, model = np.random.default_rng(3), block_model(sensors, sensors // 5)
    values = model.mean + rng.standard_normal((rows, sensors)) @ model.cholesky.T
    values[rng.random(values.shape) < share] = np.nan
    return values, model


def explained(model):
    """Share of each sensor's variance that the others explain."""
    return 1 - 1 / (np.diag(model.precision) * np.diag(model.covariance))


@pytest.mark.parametrize("kind", ["at random", "in blocks"])
def test_gaps_do_not_make_a_model_seem_better_than_it_is(kind):
    """Covariances from pairs of sensors explained up to 47 points more than is true."""
    rng = np.random.default_rng(5)
    loadings = rng.normal(size=(20, 3))
    truth = GaussianModel(np.zeros(20), loadings @ loadings.T + np.eye(20))
    values = rng.multivariate_normal(truth.mean, truth.covariance, 3000)
    if kind == "at random":
        values[rng.random(values.shape) < 0.1] = np.nan
    else:
        for sensor, begin in enumerate(rng.integers(0, 2700, 20)):
            values[begin : begin + 300, sensor] = np.nan
    model = GaussianModel.fit(values, missing="estimate")
    np.testing.assert_allclose(explained(model), explained(truth), atol=0.03)


def test_with_gaps_the_estimate_is_that_of_greatest_likelihood(monkeypatch):
    """Two sensors, the second missing after 40 rows: the known closed form (Anderson 1957)."""
    rng = np.random.default_rng(6)
    x = rng.normal(size=100)
    y = np.where(np.arange(100) < 40, 0.8 * x + 0.3 * rng.normal(size=100), np.nan)
    monkeypatch.setattr("aftlib.core.covariance._best_share", lambda *_: 0.0)
    model = GaussianModel.fit(np.column_stack([x, y]), missing="estimate", shrinkage=1e-9)
    slope, intercept = np.polyfit(x[:40], y[:40], 1)
    assert model.mean[1] == pytest.approx(intercept + slope * x.mean(), abs=1e-3)
    assert model.covariance[0, 1] / model.covariance[0, 0] == pytest.approx(slope, abs=1e-3)


def test_an_estimate_of_whole_rows_is_the_usual_fit():
    values, _ = with_gaps(0.0, rows=200, sensors=10)
    whole, usual = GaussianModel.fit(values, missing="estimate"), GaussianModel.fit(values)
    np.testing.assert_array_equal(whole.covariance, usual.covariance)


@pytest.mark.parametrize("rows", [8, 20, 59])
def test_fewer_rows_than_keys_are_fitted_by_shrinkage(rows):
    values, truth = with_gaps(0.0, rows=rows)
    model = GaussianModel.fit(values, shrinkage="auto")
    np.testing.assert_allclose(np.diag(model.covariance), values.var(axis=0, ddof=1))
    off = ~np.eye(60, dtype=bool)
    error = model.covariance - truth.covariance
    independent = np.diag(np.diag(model.covariance)) - truth.covariance
    assert (error[off] ** 2).sum() < (independent[off] ** 2).sum()


def test_one_gap_does_not_shrink_twice():
    whole = np.random.default_rng(0).normal(size=(200, 3)) @ np.diag([1.0, 2, 3]) + 1
    whole[:, 1] += whole[:, 0]
    gappy = whole.copy()
    gappy[7, 1] = np.nan
    fits = [
        GaussianModel.fit(values, missing="estimate", shrinkage=0.3).covariance
        for values in (whole, gappy)
    ]
    np.testing.assert_allclose(fits[0], fits[1], rtol=0.05, atol=0.05)


def test_shrinkage_vanishes_as_rows_grow():
    values, _ = with_gaps(0.0, rows=20_000, sensors=10)
    shrunk, usual = GaussianModel.fit(values, shrinkage="auto"), GaussianModel.fit(values)
    np.testing.assert_allclose(shrunk.covariance, usual.covariance, atol=1e-3)
    assert GaussianModel.fit(values, shrinkage=1).covariance[0, 1] == 0


def test_gaps_that_contradict_each_other_still_give_a_covariance():
    values = np.full((6, 3), np.nan)  # a = b in some rows, b = c in some, a = −c in the others
    values[:2, 0] = values[:2, 1] = [-1, 1]
    values[2:4, 1] = values[2:4, 2] = [-1, 1]
    values[4:, 0], values[4:, 2] = [-1, 1], [1, -1]
    model = GaussianModel.fit(values, missing="estimate")
    assert np.linalg.eigvalsh(model.covariance)[0] > 0


def test_two_sensors_that_never_report_together_are_refused():
    values = with_gaps(0.0, rows=100, sensors=5)[0]
    values[:50, 1] = values[50:, 3] = np.nan
    with pytest.raises(ValueError, match="occur together in two rows, got fewer for 'X2' and 'X4'"):
        GaussianModel.fit(values, missing="estimate")
    GaussianModel.fit(np.delete(values, 3, axis=1), missing="estimate")  # as the message says


FITTED = pd.DataFrame({"a": [1.0, 2, 3, 4, 6], "b": [1.5, 3, 2, 4.5, 5]})

test_what_cannot_be_fitted_names_its_columns = refused(
    lambda b, options: GaussianModel.fit(FITTED.assign(b=b), **options),
    (20.0, {}, "each key must have two different values, got none in 'b'; drop it"),
    ([9.0, 7, 5, 3, -1], {}, "keys must differ, got 'a' and 'b', which are perfectly correlated"),
    ([1.0, *[np.nan] * 4], {"missing": "estimate"}, "two different values, got none in 'b'"),
    ([np.inf, 1, 2, 3, 4], {"missing": "estimate"}, "frame must be finite.* in 'b'"),
    (FITTED["b"], {"missing": "drop"}, "missing must be one of refuse, estimate, got 'drop'"),
    (FITTED["b"], {"shrinkage": 2}, r"shrinkage must be 'auto' or inside \[0, 1\], got 2"),
)


@pytest.mark.parametrize("groups", [1, 3])
def test_cholesky_and_precision_are_the_whole_matrixs_by_groups_and_at_once(groups):
    rng, n, covariance = np.random.default_rng(groups), 300, np.zeros((300, 300))
    of = rng.integers(0, groups, n)
    for g in range(groups):
        (at,) = np.nonzero(of == g)
        spread = rng.normal(size=(len(at), len(at) + 50))
        covariance[np.ix_(at, at)] = spread @ spread.T / len(at)
    model = GaussianModel(np.zeros(n), covariance)
    assert len(model.groups) == groups
    np.testing.assert_allclose(model.cholesky @ model.cholesky.T, covariance, atol=1e-12)
    assert np.array_equal(model.cholesky, np.tril(model.cholesky))
    np.testing.assert_allclose(model.precision @ covariance, np.eye(n), atol=1e-8)
    assert np.array_equal(model.precision, model.precision.T)
    assert not model.precision.flags.writeable and not model.cholesky.flags.writeable


def test_the_digest_is_of_the_bytes_without_a_copy_of_them():
    model = block_model(300, 3)
    wanted = hashlib.sha256(model.mean.tobytes() + model.covariance.tobytes()).hexdigest()
    tracemalloc.start()
    digest = model.digest().hexdigest()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert digest == wanted
    assert peak < model.covariance.nbytes / 20
    assert block_model(300, 5).digest().hexdigest() != wanted


@pytest.mark.parametrize("share", [0.3, 0.5])
def test_a_short_record_with_many_gaps_claims_no_smaller_variance_than_the_true_one(share):
    rng, n = np.random.default_rng(1), 20
    mixture = rng.standard_normal((n, 3))
    truth = mixture @ mixture.T + np.diag(rng.uniform(0.2, 1, n))
    values = rng.multivariate_normal(np.zeros(n), truth, 200)
    values[rng.random(values.shape) < share] = np.nan
    precision = GaussianModel.fit(values, missing="estimate").precision
    errors = precision / np.diag(precision)[:, None]  # X_i minus its estimate from the others
    claimed, actual = 1 / np.diag(precision), np.diag(errors @ truth @ errors.T)
    assert 0.8 < (claimed / actual).mean() < 2
