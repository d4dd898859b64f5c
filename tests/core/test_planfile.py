"""The plan that a stream reads: every field that is missing or damaged is named."""

import json

import pytest

from aftlib import Promise
from aftlib.core.planfile import StreamData, StreamPlan, StreamQuestion
from tests.plans import write_plan

FIELDS = [
    "assignment", "question.epsilon", "question.delta", "question.window", "question.slide",
    "question.query", "question.horizons", "data.step_seconds", "data.seasons_in_windows",
    "learned",
]  # fmt: skip


def whole(path):
    changes = {"assignment": [["a"], ["b"]], "question.epsilon": {"a": 1.0, "b": 2.0}}
    return write_plan(path, None, [(0, 10, ["a"])], **changes)


def test_a_plan_is_read_with_types(tmp_path):
    plan = StreamPlan.read(whole(tmp_path / "plan.json"))
    assert plan == StreamPlan(
        assignment=(("a",), ("b",)),
        question=StreamQuestion(
            epsilon={"a": 1.0, "b": 2.0}, delta=0.1, window=10, slide=5, query="mean", horizons=5
        ),
        data=StreamData(step_seconds=3600, seasons_in_windows=(4.8,)),
        learned=None,
    )
    assert StreamPlan.from_json(plan.to_json()) == plan
    assert Promise.from_plan(tmp_path / "plan.json").sensors == ["a", "b"]


@pytest.mark.parametrize("value", [..., "?", -1, None, [None], {"a": "1"}, True, float("inf")])
@pytest.mark.parametrize("name", FIELDS)
def test_a_damaged_field_is_named(tmp_path, name, value):
    """It is missing, or has a value of another kind; `from_plan` lets no other error pass."""
    path = whole(tmp_path / "plan.json")
    plan = json.loads(path.read_text())
    part, _, within = name.partition(".")
    holder, key = (plan[part], within) if within else (plan, part)
    if value is ...:
        del holder[key]
    else:
        holder[key] = value
    path.write_text(json.dumps(plan))
    allowed = {("data.step_seconds", None), ("question.query", "?"), ("question.delta", -1)}
    allowed |= {("learned", "?")}
    if (name, value) == ("learned", None):
        return
    if value is not ... and (name, value) in [*allowed]:
        match = "without step_seconds|query must be|delta must be|learned must be"
        with pytest.raises(ValueError, match=match):
            Promise.from_plan(path)
        return
    with pytest.raises(ValueError, match=rf"{name}.*make a new plan") as refused:
        Promise.from_plan(path)
    assert "plan.json" in str(refused.value)


@pytest.mark.parametrize("part", ["question", "data"])
def test_a_part_of_another_kind_is_refused(tmp_path, part):
    changes = {"assignment": [["a"]], "question.epsilon": {"a": 1.0}, part: []}
    path = write_plan(tmp_path / "plan.json", None, [(0, 10, ["a"])], **changes)
    with pytest.raises(ValueError, match=rf"{part} must be an object, got \[\].*make a new plan"):
        StreamPlan.read(path)


@pytest.mark.parametrize(
    ("contents", "reason"),
    [
        ('{"version": 2}', "version must be 4, got 2"),
        ("{}", "version must be 4, got None"),
        ("[3]", r"plan must be an object of JSON, got \[3\]"),
        ("{", "Expecting property name"),
        (None, "No such file"),
    ],
)
def test_another_version_and_a_file_that_is_no_plan_are_refused(tmp_path, contents, reason):
    path = tmp_path / "plan.json"
    if contents is not None:
        path.write_text(contents)
    with pytest.raises(ValueError, match=f"plan must name a file .*{reason}.*make a new plan with"):
        Promise.from_plan(path)
