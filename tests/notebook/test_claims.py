"""A claim's verdict follows from its main reading alone."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import t

from aftlib.notebook.claims import Claim, Finding, Threshold, mean_ratio, not_run
from tests.refusals import refused

ABOVE = Threshold("ours", low=3)


def claim(**about) -> Claim:
    usual = {"id": "D1-1", "quote": "It is so.", "section": "6", "main": "m is at least 3"}
    usual |= {"judge": lambda m: Finding(m), "threshold": ABOVE}
    return Claim(**usual | about)


@pytest.mark.parametrize(
    ("interval", "verdict"),
    [((3, 5), "holds"), ((1, 2.9), "does not hold"), ((2, 4), "open"), ((1, 3), "open")],
)
def test_the_interval_decides(interval, verdict):
    assert claim().decide(Finding(4.0, interval, n=20)) == verdict


@pytest.mark.parametrize(("value", "verdict"), [(3, "holds"), (2.99, "does not hold")])
def test_without_an_interval_the_value_decides(value, verdict):
    assert claim().decide(Finding(value)) == verdict


def test_a_strict_bound_is_outside():
    strict = claim(threshold=Threshold("the document's sentence", low=3, strict=True))
    assert strict.decide(Finding(3)) == "does not hold"
    assert strict.decide(Finding(3.01)) == "holds"


def test_a_condition_makes_holds_if_and_nothing_else():
    conditional = claim(condition="there are 10⁵ keys", recorded="holds if")
    assert conditional.decide(Finding(4)) == "holds if"
    assert conditional.decide(Finding(2)) == "does not hold"
    assert conditional.decide(Finding(4, (2, 6), n=9)) == "open"


def test_an_experiment_that_could_not_show_the_contrary_leaves_open():
    assert claim().decide(Finding(4, control=False)) == "open"
    assert claim().decide(Finding(2, control=False)) == "does not hold"


def test_a_fact_decides_where_there_is_no_threshold():
    fact = claim(threshold=None)
    assert fact.decide(Finding("lost 0", holds=True)) == "holds"
    assert fact.decide(Finding("lost 3", holds=False)) == "does not hold"
    with pytest.raises(ValueError, match="D1-1 needs a threshold, or a finding with `holds`"):
        fact.decide(Finding(4))


@pytest.mark.parametrize("holds", [True, False])
def test_a_fact_beside_a_threshold_is_refused_and_a_second_condition_has_its_reason(holds):
    with pytest.raises(ValueError, match=f"None beside a threshold, got {holds}: use `fails` for"):
        claim().decide(Finding(4, holds=holds))
    assert claim().decide(Finding(4, fails="T_res is 2.6 ms.")) == "does not hold"
    assert claim(threshold=None).decide(Finding(4, holds=True, fails="no")) == "does not hold"


def test_a_text_cannot_be_compared():
    with pytest.raises(ValueError, match="D1-1 compares a number with bounds, got 'many'"):
        claim().decide(Finding("many"))


def test_what_could_not_be_judged_is_not_run():
    assert claim().decide(not_run("no Spark")) == "not run"


def test_fewer_than_five_observations_have_no_interval():
    with pytest.raises(ValueError, match="at least 5 observations, got n = 4: leave it None"):
        Finding(1.0, (0.5, 1.5), n=4)
    assert Finding(1.0, (0.5, 1.5), n=5).interval == (0.5, 1.5)


@pytest.mark.parametrize("finding", [Finding(4, n=2), Finding(2, n=4), Finding(4, n=2, fails="no")])
def test_fewer_than_five_measured_times_decide_nothing(finding):
    assert claim(timed=True).decide(finding) == "open"
    assert claim().decide(finding) != "open"
    assert claim(timed=True).decide(Finding(4, n=5)) == "holds"
    assert claim(timed=True).decide(Finding(4)) == "holds"


def test_five_turns_have_an_interval_around_their_mean_ratio():
    """Against scipy's own t interval of the logarithms."""
    logs = np.array([0.1, 0.3, 0.2, 0.5, 0.4])
    mean, interval = mean_ratio(np.exp(logs))
    expected = t(4, logs.mean(), logs.std(ddof=1) / np.sqrt(5)).interval(0.95)
    assert (mean, *interval) == pytest.approx((np.exp(0.3), *np.exp(expected)))
    assert mean_ratio(np.exp(logs[:4]))[1] is None


def test_an_interval_runs_upwards():
    with pytest.raises(ValueError, match="interval must run from low to high"):
        Finding(1.0, (2.0, 1.0))


def test_numpy_values_become_plain():
    finding = Finding(np.float64(0.5), n=np.int64(7))
    assert (type(finding.value), type(finding.n)) == (float, int)


def test_the_judge_gets_the_variables_that_it_names():
    judged = claim(judge=lambda frame, other=1: Finding(frame + other))
    assert judged.find({"frame": 4, "more": 0}).value == 5
    with pytest.raises(ValueError, match="D1-1 is judged by frame, but there is no 'frame'"):
        judged.find({})


test_refusals = refused(
    lambda about: claim(**about),
    ({"id": "one"}, "id must be a document, a hyphen and a number"),
    ({"recorded": "undecided"}, "recorded of D1-1"),
    ({"condition": "it rains"}, "condition of D1-1 must be given exactly if"),
    ({"recorded": "holds if"}, "condition of D1-1 must be given exactly if"),
)
