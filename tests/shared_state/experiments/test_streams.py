"""Parameters of the report: refused beforehand, or fine to the end."""

import ast
import json

import numpy as np
import pytest

from aftlib.core.paths import notebooks_dir
from aftlib.shared_state import experiments
from aftlib.shared_state.experiments.streams import (
    FEWEST,
    LEAST,
    LEAST_OF_EACH,
    MOST_CHECKPOINTS,
    check_parameters,
)


def parameters():
    """What the notebook says by itself."""
    cells = json.loads((notebooks_dir() / "03_shared_state.ipynb").read_text())["cells"]
    (cell,) = [c for c in cells if "parameters" in c["metadata"].get("tags", [])]
    found = {}
    for node in ast.parse("".join(cell["source"])).body:
        target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
        found[target.id] = ast.literal_eval(node.value)
    return found


def test_the_notebooks_own_parameters_are_fine():
    assert check_parameters(**parameters()) is None


AWKWARD = [
    -1,
    0,
    0.5,
    2.0,
    float("nan"),
    float("inf"),
    None,
    True,
    "x",
    [],
    [0],
    [1.5],
    ["x"],
    [[1]],
]


@pytest.mark.parametrize("wrong", AWKWARD, ids=repr)
@pytest.mark.parametrize("name", [*LEAST, *LEAST_OF_EACH])
def test_awkward_values_are_refused_by_their_name(name, wrong):
    fine = {("seed", 0), ("large_tuples", 0), ("large_skews", "[]"), ("large_skews", "[1.5]")}
    fine.add(("large_skews", "[0]"))
    given = parameters() | {name: wrong}
    if (name, wrong if not isinstance(wrong, list) else repr(wrong)) in fine and wrong is not False:
        assert check_parameters(**given) is None
        return
    with pytest.raises(ValueError, match=rf"\b{name}\b.* got "):
        check_parameters(**given)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"skews": [1.4, 2.0]}, r"skews must hold 0 .*, got \[1.4, 2.0\]: add 0"),
        ({"skews": [0.0, 1.2]}, r"skews must hold one of 1.4 or more, got \[0.0, 1.2\]: add 1.4"),
        ({"modelled_tasks": [1, 8]}, r"modelled_tasks must hold 8 and 24, .*: add \[24\]"),
        ({"tasks": [1]}, r"tasks must hold 2 or more, .*, got \[1\]: add 2"),
        ({"tasks": [1, 2.0]}, "each of tasks must be a whole number at least 1, got 2.0"),
        ({"tuples": 9_999}, "tuples must be a whole number at least 10000, got 9999"),
        ({"tuples": 2e6}, "tuples must be a whole number at least 10000, got 2000000.0"),
        ({"large_tuples": 10}, "large_tuples must be 0 for none or at least 10000, got 10"),
        ({"every": 19_999}, "every must be at least failure_tuples / 100 = 20000, got 19999"),
        ({"after": 10**6}, "after must be at most 983040, which each of 2 tasks .*, got 1000000"),
        ({"failure_tuples": 60_000}, "after must be at most 0, .* failure_tuples = 60000, got"),
    ],
)
def test_what_the_report_could_not_go_by_is_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        check_parameters(**parameters() | wrong)


@pytest.mark.parametrize("wrong", [{"tuple": 1}, {"seeds": 2}])
def test_names_that_are_not_the_notebooks(wrong):
    with pytest.raises(TypeError, match="check_parameters takes"):
        check_parameters(**parameters() | wrong)


def test_the_least_that_is_accepted_works_without_spark(tmp_path):
    assert len(experiments.checkpoints(["memory"], LEAST["stream_tuples"], runs=1)) == 3
    assert np.isfinite(experiments.merges(experiments.EMBEDDED, [1], 1, 0)["merges_per_s"]).all()
    locality = experiments.states_or_locality([2, 1, 1], 1, skew=1.4, repeats=1, seed=0)
    assert locality["keys"].unique().tolist() == [1, 2]
    assert len(locality) == 10
    sharing = experiments.servers_and_tasks_crash(tmp_path, LEAST["shared_tuples"], seed=0)
    assert (sharing["error"] == 0).all()


def test_one_key_and_the_fewest_tuples_work_in_spark(spark, tmp_path):
    drawn = {"skews": [0, 1.4], "tuples": FEWEST, "keys": 1, "seed": 0}
    given = experiments.inputs(spark, tmp_path, **drawn)
    streams = [each.stream for each in given]
    measured = experiments.measured(spark, given[:1], [1, 2], 1, warm_up=False)
    assert (measured["states"] == 1).all()
    imbalance = experiments.imbalances(spark, streams, [1, 2, 8, 24])
    costs = experiments.fitted(measured, imbalance, streams)
    for pipelined in (False, True):
        model = experiments.modelled(costs, imbalance, streams, 1, pipelined)
        assert np.isfinite(model["throughput"]).all()
    assert np.isfinite(experiments.held_out(measured, costs, imbalance, streams)["ratio"]).all()
    failures = experiments.one_task_crashes(
        spark, given[1], 2, every=FEWEST // MOST_CHECKPOINTS, after=FEWEST
    )
    assert (failures["error"] == 0).all()
    assert len(failures) == 3
