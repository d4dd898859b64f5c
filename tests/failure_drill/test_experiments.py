"""Parameters that the notebook refuses before anything runs, and the table of a schedule."""

from itertools import cycle, islice, product

import pytest

from aftlib.checkpoint_planning.operator import ReplayQuery
from aftlib.core.generators import block_model
from aftlib.core.requirement import Requirement
from aftlib.failure_drill import experiments
from aftlib.failure_drill.schedule import PATTERNS, draw_drill
from aftlib.failure_drill.schemes_process import METHODS, TUPLES
from tests.failure_drill.conftest import SMALL

GIVEN = SMALL | {"windows": 150, "faults": 8}
SCHEMES = ["no fault tolerance", "exactly once"]


def check(**changed):
    experiments.NotebookParameters(**GIVEN | {"schemes": SCHEMES} | changed)


def test_what_is_well_passes():
    check()
    check(schemes=[*experiments.SCHEMES])
    check(width=4)
    check(width=experiments.LEAST_OF_D2, schemes=[*experiments.SCHEMES])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"sensors": 13}, "sensors must be a multiple of 3 and of workers = 4, got 13"),
        ({"sensors": 2}, "sensors must be at least 12, got 2"),
        ({"width": 3}, "width must be at least 4, got 3"),
        (
            {"width": 6, "schemes": [*SCHEMES, *METHODS]},
            "width must be at least 7 for 'D2.*15% of a window again and needs a whole step, got 6",
        ),
        ({"calm": 0.05}, "calm must leave 4 micro-batches undisturbed, got 0.05"),
        ({"calm": 1.0}, "calm must be above 0 and below 1, got 1.0"),
        ({"pause_s": 0}, "pause_s must be above 0 and at most 60, got 0"),
        ({"faults": 100}, "faults must fit between step 600 and 1500, got 100"),
        ({"schemes": "all"}, r"schemes must fit list\[str\], got 'all'"),
        ({"schemes": [*SCHEMES, ["D1"]]}, "each of schemes must fit .* got .*'D1'"),
        ({"schemes": [*SCHEMES, "exactly once"]}, "schemes must be .* each once, got"),
        ({"schemes": ["exactly once"]}, "schemes must begin with 'no fault tolerance'"),
        ({"schemes": ["no fault tolerance"]}, "schemes must begin with .* and hold 'exactly once'"),
    ],
)
def test_what_could_not_run_is_refused(changed, message):
    with pytest.raises(ValueError, match=message):
        check(**changed)


def test_the_shortest_window_has_a_plan_of_d2_whatever_epsilon():
    width, n = experiments.LEAST_OF_D2, GIVEN["sensors"]
    for epsilon_sd, method in product((1e-6, 100), METHODS.values()):
        requirement, budget = Requirement(epsilon_sd, 0.05), int(experiments.BUDGET * width * n)
        query = ReplayQuery(block_model(n, 3), width, requirement, TUPLES, budget, method)
        assert query.first_plan.times[-1] == width


def test_the_schedule_is_shown_event_by_event(tmp_path):
    shown = experiments.schedule_table(draw_drill(tmp_path, **GIVEN))
    assert list(shown["pattern"]) == [*islice(cycle(PATTERNS), len(shown))]
    assert shown["kind"][4] == "pause" and shown["kind"][1] == "kill"
    assert shown["workers"][3].count(",") == 1
