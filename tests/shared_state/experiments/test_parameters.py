"""Parameters of the notebook: refused beforehand, or fine to the end."""

import numpy as np
import pytest

from aftlib.shared_state.experiments import parameters, servers, strategies
from aftlib.shared_state.experiments.parameters import FEWEST, NotebookParameters
from aftlib.shared_state.scaling import BROKEN
from aftlib.shared_state.tuplelog import TupleStream

DEFAULTS = {name: info.default for name, info in NotebookParameters.model_fields.items()}
AWKWARD = [-1, 0.5, float("nan"), float("inf"), None, True, "x", ["x"], [[1]], [-1], [1.5]]
FINE = {"large_skews": [[1.5]], "skews": []}


@pytest.mark.parametrize("wrong", AWKWARD, ids=repr)
@pytest.mark.parametrize("name", DEFAULTS)
def test_awkward_values_are_refused_by_their_name(name, wrong):
    if wrong in FINE.get(name, []):
        assert NotebookParameters(**DEFAULTS | {name: wrong})
        return
    with pytest.raises(ValueError, match=rf"\b{name}\b.* got "):
        NotebookParameters(**DEFAULTS | {name: wrong})


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"skews": [1.4, 2.0]}, r"skews must hold 0 .*, got \[1.4, 2.0\]"),
        ({"skews": [0.0, 1.2]}, r"skews must hold one of 1.4 or more, got \[0.0, 1.2\]"),
        ({"paced_tasks": [8, 24]}, r"paced_tasks must hold \(8, 24\) and more, got \[8, 24\]"),
        ({"paced_tasks": [8, 24, 50]}, r"paced_tasks must be divisors of 48, got \[8, 24, 50\]"),
        ({"tasks": [1]}, r"tasks must hold 2 or more, .*, got \[1\]"),
        ({"tuples": 9_999}, "tuples must be at least 10000, got 9999"),
        ({"large_tuples": 10}, "large_tuples must be 0 for none or at least 10000, got 10"),
        ({"every": 19_999}, "every must be at least failure_tuples / 100 = 20000, got 19999"),
        ({"after": 10**6}, "after must be at most 983040, which each of 2 tasks .*, got 1000000"),
        ({"failure_tuples": 60_000}, "after must be at most 0, .* failure_tuples = 60000, got"),
        ({"seeds": 2}, "seeds is no parameter of this notebook, got 2: write 'seed'"),
    ],
)
def test_values_that_do_not_fit_together_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        NotebookParameters(**DEFAULTS | wrong)


def test_values_at_their_bounds_are_accepted():
    bounds = {"after": 983_040, "every": 20_000, "large_tuples": FEWEST, "tasks": [2]}
    assert NotebookParameters(**DEFAULTS | bounds).smallest_input == 983_040


def test_the_least_that_is_accepted_works_without_spark():
    assert len(servers.checkpoints(["memory"], 2, runs=1)) == 3
    assert np.isfinite(servers.merges(servers.EMBEDDED, [1], 1, 0)["merges_per_s"]).all()


def test_one_key_and_the_fewest_tuples_work_in_spark(spark, tmp_path):
    streams = [TupleStream(FEWEST, 1, skew, 0) for skew in (0, 1.4)]
    inputs = parameters.inputs(spark, tmp_path, streams)
    measured = strategies.measured(spark, inputs[:1], [2], 1, warm_up=False)
    assert (measured["states"] == 1).all()
    failures = strategies.one_task_crashes(spark, inputs[1], 2, every=FEWEST // 10, after=FEWEST)
    errors = failures.set_index("strategy")["error"]
    assert errors.pop(BROKEN) > 0
    assert (errors == 0).all() and len(errors) == 3
