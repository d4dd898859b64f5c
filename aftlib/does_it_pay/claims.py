"""The claims P-1 … P-4, which are the project's own, and D1-6, judged by `measured`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from aftlib.core.intervals import ratio_interval, share_interval
from aftlib.does_it_pay.break_even import COMPARED
from aftlib.does_it_pay.experiments import Measurements
from aftlib.does_it_pay.schemes import EXACT, MODEL, NOTHING, PARTIAL
from aftlib.workbench.claims import FEWEST, HOLDS_IF, Claim, Finding, Summary, Threshold

HALF, FACTOR, LITTLE_MS = 0.5, 1.5, 10.0
SLOW = "reading the lost samples again takes longer than starting a replacement"
TWICE = "reading the lost samples again takes twice as long as starting a replacement"


def nothing_is_lost(measured: Measurements) -> Finding:
    """P-1: results lost, doubled or wrong, over all schemes but the one that recovers nothing."""
    outcomes = measured.outcomes.set_index("scheme")
    rows = outcomes.drop(index=NOTHING)
    harmed = int(rows[["lost", "doubled", "wrong"]].to_numpy().sum())
    kills, skipped = int(rows["kills"].sum()), outcomes.loc[[NOTHING], "lost"].sum()
    most = share_interval(0, kills)[1]
    return Finding(
        harmed,
        n=kills,
        counted="kills",
        control=bool(skipped > 0),  # a schedule under which nothing can be lost proves nothing
        sensitivity=f"Excludes harm in more than {most:.1%} of kills. Without recovery "
        f"{skipped:g} results are lost.",
    )


def time_ratio(
    measured: Measurements, scheme: str, rate: float
) -> tuple[float, tuple[float, float]]:
    """Return the ratio of mean times of approximate and exact recovery in the longest windows."""
    rows = measured.recoveries
    rows = rows[(rows["width"] == rows["width"].max()) & (rows["rate"] == rate)]
    seconds = rows.set_index("scheme")["seconds"]
    return ratio_interval(seconds[scheme].to_numpy(), seconds[COMPARED[scheme]].to_numpy())


def largest_ratio(measured: Measurements, ratios: Sequence[tuple]) -> Finding:
    """Return the finding of the ratio whose interval ends highest."""
    value, interval = max(ratios, key=lambda ratio: ratio[1][1])
    kills = int(measured.points["kills"].min())
    return Finding(value, interval if kills >= FEWEST else None, n=kills, counted="kills of each")


def outage_is_halved(measured: Measurements) -> Finding:
    """P-2: recovery time of D1 by model and of D2 against exact replay, where reading is slow."""
    slowest = float(measured.recoveries["rate"].min())
    ratios = {name: time_ratio(measured, name, slowest) for name in COMPARED}
    finding = largest_ratio(measured, [ratios[MODEL], ratios[PARTIAL]])
    shares = ", ".join(f"{name} {ratio:.2f}" for name, (ratio, _) in ratios.items())
    free = ", ".join(f"{name} {time_ratio(measured, name, np.inf)[0]:.2f}" for name in COMPARED)
    return replace(finding, sensitivity=f"{shares}. Without a limit: {free}.")


def times_are_predicted(measured: Measurements) -> Finding:
    """P-3: the factor between measured and predicted times that 90 % of the points keep."""
    points = measured.points
    points = points[np.isfinite(points["rate"]) & (points["scheme"] != NOTHING)]
    factors = np.exp(np.abs(np.log(points["seconds"] / points["predicted_s"])))
    return Finding(
        float(factors.quantile(0.9)),
        n=len(factors),
        counted="points",
        sensitivity=f"Median factor {factors.median():.2f}.",
    )


def costs_little(measured: Measurements) -> Finding:
    """P-4: the time that an update or a checkpoint adds while nothing fails."""
    rows = measured.outcomes[measured.outcomes["scheme"].isin([*COMPARED])]
    rows = rows[(rows["width"] == rows["width"].max()) & (rows["additions"] > 0)]
    each = (rows["added_ms"] / rows["additions"]).set_axis(rows["scheme"])
    return Finding(
        float(each.max()),
        n=int(measured.outcomes["kills"].min()),
        counted="windows or more",
        sensitivity="; ".join(f"{name} {value:.2f} ms" for name, value in each.items()),
    )


def recovers_faster(measured: Measurements) -> Finding:
    """D1-6: D1 by model against exact replay at every limited rate; D1 reads nothing again."""
    rates = [rate for rate in measured.recoveries["rate"].unique() if np.isfinite(rate)]
    finding = largest_ratio(measured, [time_ratio(measured, MODEL, rate) for rate in rates])
    again = measured.recoveries.groupby("scheme")["again"].max()
    text = f"Samples read again: {again[MODEL]:.0f} against {again[EXACT]:.0f}."
    return replace(finding, sensitivity=text)


CLAIMS = [
    Claim(
        "D1-6",
        "Recovery has less overhead than exact recovery, because no input is sent again.",
        "abstract",
        "Time until all due windows are out, D1 by model over exact replay, at the limited rate "
        "where they are closest: “no input is sent again” saves reading only.",
        recovers_faster,
        expected="below 1",
        threshold=Threshold("the document: less", high=1.0, strict=True),
        condition=SLOW,
        unit="of exact replay's time",
        timed=True,
        recorded=HOLDS_IF,
    ),
    Claim(
        "P-1",
        "Whenever a process is killed, no result is lost, doubled, or wrong without being marked "
        "as an estimate.",
        "",
        "All schemes that recover, in all kills before and after a window is emitted.",
        nothing_is_lost,
        expected="0",
        threshold=Threshold("exactness: none", high=0),
        unit="results",
        project=True,
    ),
    Claim(
        "P-2",
        "D1 by model and D2 halve the outage.",
        "",
        "Mean time until all due windows are out, over that of an exact recovery that loses the "
        "same memory, at the slowest rate and longest window.",
        outage_is_halved,
        expected=f"≤ {HALF}",
        threshold=Threshold("ours: 0.35 to 1 give the same verdict", high=HALF),
        condition=TWICE,
        unit="of the exact recovery's time",
        project=True,
        timed=True,
        recorded=HOLDS_IF,
    ),
    Claim(
        "P-3",
        f"Four constants predict 90 % of the recovery times within a factor of {FACTOR}.",
        "",
        "Constants from the shortest windows, of which unlimited kills give the time to open the "
        "log; all limited rates predicted.",
        times_are_predicted,
        expected=f"≤ {FACTOR}",
        threshold=Threshold("ours: close enough to choose a scheme by", high=FACTOR),
        unit="times",
        project=True,
        timed=True,
    ),
    Claim(
        "P-4",
        f"While nothing fails, an update of the guard or a checkpoint of D2 costs at most "
        f"{LITTLE_MS:g} ms.",
        "",
        "Mean time of the guard's update per window, and of D2's commit per checkpoint.",
        costs_little,
        expected=f"≤ {LITTLE_MS:g}",
        threshold=Threshold("ours: 5 to 1,000 ms give the same verdict", high=LITTLE_MS),
        unit="ms",
        project=True,
        timed=True,
    ),
]
SUMMARY = Summary(
    claimed="Does estimating pay?",
    found="Half the time is saved if reading again takes twice as long as starting a replacement. "
    "At full speed D2 saves next to nothing, D1 milliseconds.",
    sure="{P-1.n:,} kills: {P-1.measured:g} results lost, doubled, or wrong unmarked.",
    limits="One machine, where a closed pipe reveals a crash at once; with a timeout every scheme "
    "waits for it, and approximate recovery saves a smaller share.",
)
