"""The guard's own claims, judged by back-tests of real sets and by streams with trouble."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from aftlib.core.intervals import bootstrap_share
from aftlib.notebook.claims import (
    MEASURED,
    Claim,
    Finding,
    Summary,
    Threshold,
    not_run,
)
from aftlib.notebook.scorecard import ClaimRecord, sentences_by_verdict
from aftlib.notebook.texts import percent
from aftlib.sensor_plans.backtest import GUARD, MANY, Walk
from aftlib.sensor_plans.experiments import (
    SAMPLES,
    SENSORS,
    NotebookParameters,
    SetBacktest,
    against_adversary,
)

TENTH = 0.1


def keeps_guarantee(sets: Mapping[str, SetBacktest], walks: Mapping[str, Walk]) -> Finding:
    """G-1: the largest share of the permitted wrong estimates that were wrong in any stream."""
    delta = next(iter(sets.values())).walk.delta
    certified = sum(each.guarantees for each in sets.values())
    if certified < MANY:
        return not_run(f"fewer than {MANY} windows of the real sets were certified")
    real = {each.title: each.walk.share_of_bound for each in sets.values()}
    shares = dict(real)
    for trouble, walk in walks.items():
        shares[f"the stream with {trouble}"] = walk.share_of_bound
    for attacked in (1, SENSORS):
        stream = f"the stream whose adversary attacks {attacked} of {SENSORS} sensors"
        shares[stream] = against_adversary(delta, attacked)
    worst_stream = max(shares, key=lambda name: shares[name])
    worst_set = max(real, key=lambda name: real[name])
    alone = "; ".join(
        f"{each.title}, {percent(each.within_below, 1)} of {each.guarantees:,} certified"
        for each in sets.values()
        if each.within_below is not None
    )
    return Finding(
        shares[worst_stream],
        n=len(shares),
        counted="streams",
        text=f"{percent(shares[worst_stream])} of the wrong estimates that the bound permits "
        f"({worst_stream}); of the real sets at most {percent(real[worst_set])} ({worst_set})",
        sensitivity=f"Reversed without the slack for {alone}." if alone else "",
    )


def price(sets: Mapping[str, SetBacktest], small_windows: Mapping[str, SetBacktest]) -> Finding:
    """G-3: how many fewer windows than a model that was tuned in hindsight, where it is most.

    The interval resamples the guard's segments of time; the model's share is held fixed.
    """
    every = [*sets.values(), *small_windows.values()]
    worst = max(every, key=lambda each: each.price)
    by_segment, _ = worst.walk.weighted_counts(GUARD).sum(1).shares
    hindsight_share = worst.price + by_segment.mean()
    ends = bootstrap_share(by_segment, np.ones(by_segment.size), np.random.default_rng(1))
    low, high = sorted(float(hindsight_share - end) for end in ends)
    largest = max(sets.values(), key=lambda each: each.price)
    shares_of_sets = ", ".join(
        f"{percent(each.lines[GUARD].certified)} of the windows of {each.title}"
        for each in sets.values()
    )
    gains = sum(each.price < 0 for each in sets.values())
    enough = sum(each.always_suffices for each in sets.values())
    return Finding(
        worst.price,
        (min(low, worst.price), max(high, worst.price)),
        n=by_segment.size,
        counted="segments of time",
        text=f"at most {percent(worst.price, 1)} of the windows [{percent(low, 1)}, "
        f"{percent(high, 1)}] ({worst.title}, {worst.samples} samples a window)",
        sensitivity=f"With {largest.samples} samples at most {percent(largest.price, 1)} "
        f"({largest.title}). The guard then certifies {shares_of_sets}. This is more than the "
        f"model on {gains} of {len(sets)} sets, and always estimating suffices on {enough}. The "
        "price with fewer samples was not tested. The rule of proposing was chosen on parts of "
        "three of the sets.",
    )


own_claim = partial(Claim, basis=MEASURED, project=True)
# G-2 is merged into G-1: one row has the theorem for real sets, troubles and adversaries.
CLAIMS = [
    own_claim(
        "G-1",
        "Of the certified estimates whose windows come, at most a share δ and a fixed slack is "
        "wrong, whatever the data.",
        "theorem; back-test",
        "No stream has more wrong estimates than δN and the slack: four real sets, three streams "
        "with trouble, and two that an adversary chose. Windows that are really lost never come: "
        "for them it needs losses that are independent of the data.",
        keeps_guarantee,
        expected="≤ 100 %",
        threshold=Threshold("the theorem's bound", high=1.0),
        unit="of the permitted wrong estimates",
    ),
    own_claim(
        "G-3",
        "On four real sets the guard certifies at most a tenth of the windows fewer than the "
        "documents' model tuned in hindsight.",
        "back-test",
        "The model certifies the sensors, chosen by their errors afterwards, with which at most a "
        "share δ is wrong. One sensor per machine; ε is half a standard deviation; windows of "
        f"{SAMPLES // 2} and {SAMPLES} samples. The set and window with the largest price decide.",
        price,
        expected="≤ 10 %",
        threshold=Threshold(
            "ours; it replaces “at least as many as the model in hindsight”, which did not hold",
            high=TENTH,
        ),
        unit="of the windows",
    ),
]


def summarize(records: Mapping[str, ClaimRecord], parameters: NotebookParameters) -> Summary:
    """Return the box of notebook 06 from a run's records."""
    found = {
        "G-1": "on each of {0.n} streams at most that many are wrong",
        "G-3": "on four real sets it certifies at most {0.measured:.1%} of the windows fewer than "
        "the documents' model tuned in hindsight",
    }
    return Summary(
        claimed="A guard certifies which lost windows may be estimated: at most a share "
        f"δ = {parameters.delta:g} of these, plus a slack, errs by more than ε.",
        found=sentences_by_verdict(records, found).replace("%", " %"),
        sure="A theorem; back-tests.",
        limits="Losses must be independent of the data.",
    )
