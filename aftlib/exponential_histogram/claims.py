"""D5's claims, each judged by the frames of its experiments."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from aftlib.exponential_histogram.experiments.costs import DOCUMENT_RATE
from aftlib.workbench.old_claims import DERIVED, DEVIATES, Claim, Finding, Threshold, Value

DOCUMENT_WINDOW, DOCUMENT_EPSILON = 10**6, 0.01
"""N and ε of figure 5."""
LOGARITHMIC = Threshold("Datar et al.: the bound on their buckets, logarithmic in N", high=1)


def figure_3(table: pd.DataFrame) -> Finding:
    """D5-1: figure 3 is reproduced; judged by the result of `experiments.figure_3`."""
    return Finding(
        table["same"].sum(),
        expected=len(table),
        threshold=Threshold("fig. 3: every row", low=len(table)),
        note="The value counts rows of figure 3 whose buckets, total, query and exact count are "
        "all reproduced.",
    )


def article_error(swept: pd.DataFrame, smallest: pd.DataFrame) -> Finding:
    """D5-2: the article's error is at most ε; judged by `sweep` and `counterexamples`."""
    shown = "; ".join(
        f"ε = {p['epsilon']:g}: {p['ones']:.0f} ones → {p['article']:.0f}, "
        f"{p['article_error']:.2%} off"
        for p in smallest.dropna(subset=["ones"]).to_dict("records")
    )
    costs = ", ".join(
        f"{p['more_buckets']:.0f} instead of {p['buckets']:.0f} at ε = {p['epsilon']:g}"
        for p in smallest.to_dict("records")
    )
    worst = max(_worst(swept, "article", "article_young"), _worst(smallest, "worst"))
    broken, peak = int((swept["article_missed"] > 0).sum()), _worst(smallest, "more_worst")
    return Finding(
        _finite(worst),
        n=len(swept),
        counted="points of the sweep",
        note="The value is the largest relative error of the article's estimate ⌈total − last/2⌉, "
        f"as a multiple of ε. A few ones in the window are enough: {shown}. The bound is broken at "
        f"{broken} of {len(swept)} points of the sweep. Either of two changes mends it. The "
        "estimate total − (last − 1)/2 on the same buckets keeps ε (D5-5). The other change keeps "
        "the article's estimate, with up to k + 1 buckets of count 1 instead of ⌈k/2⌉ + 1: with 1 "
        f"to 600 ones it errs by at most {peak:.2f} ε. The number of buckets of larger counts "
        f"stays the same. Buckets that this change needs with 600 ones: {costs}.",
    )


def sound_error(swept: pd.DataFrame, smallest: pd.DataFrame) -> Finding:
    """D5-5: the sound error is at most ε; judged by `sweep` and `counterexamples`.

    An error far below ε would mean that more buckets are kept than ε needs.
    """
    worst = max(_worst(swept, "sound", "sound_young"), _worst(smallest, "sound_worst"))
    broken = int((swept["sound_missed"] > 0).sum())
    return Finding(
        _finite(worst),
        conditions=broken == 0,
        n=len(swept),
        counted="points of the sweep",
        note="The value is the largest relative error of the library's default estimate, as a "
        f"multiple of ε. The bound is broken at {broken} of {len(swept)} points of the sweep.",
    )


def _worst(table: pd.DataFrame, *columns: str) -> float:
    """Largest error of the columns as a multiple of ε."""
    return max(float((table[column] / table["epsilon"]).max()) for column in columns)


def _finite(worst: float) -> Value:
    return worst if np.isfinite(worst) else "infinite"


def memory(sizes: pd.DataFrame) -> Finding:
    """D5-3: memory is logarithmic in N; judged by the result of `experiments.sizes`."""
    used = sizes["buckets"] / sizes["bound"]
    document = sizes[(sizes["window"] == DOCUMENT_WINDOW) & (sizes["epsilon"] == DOCUMENT_EPSILON)]
    sentence = "".join(
        f" At fig. 5's N = {window:,} and ε = {DOCUMENT_EPSILON} there are {buckets:,} buckets, "
        f"{buckets / window:.2%} of N."
        for window, buckets in zip(document["window"], document["buckets"], strict=True)
    )
    return Finding(
        float(used.max()),
        n=len(sizes),
        counted="windows and ε",
        note="The value is the most buckets of a window full of ones, divided by the bound (k/2 + "
        f"1)(log₂(2N/k + 1) + 1) + 1, which is logarithmic in N. {(used > 1).sum()} of "
        f"{len(sizes)} windows exceed it.{sentence}",
    )


def update_time(sizes: pd.DataFrame) -> Finding:
    """D5-6: an event's time is logarithmic in N; derived from `experiments.sizes`, not timed."""
    return replace(
        memory(sizes),
        note="Derived from fig. 2 and the number of buckets (D5-3), not timed. The merging loop "
        "handles one bucket per step: it skips the bucket or removes it. A query reads two "
        "numbers. So the time of an event is at most proportional to the buckets. The value is "
        "that of D5-3.",
    )


def speed(long_run: pd.DataFrame, rates: pd.DataFrame) -> Finding:
    """D5-4: events per second are at least the document's; judged by `long_run` and `rates`."""
    last, single = long_run.iloc[-1], rates[rates["chunk"] == 1].iloc[0]
    bulk, largest = float(last["at"] / last["seconds"]), rates.sort_values("chunk").iloc[-1]
    return Finding(
        float(single["estimates"]),
        n=int(single["rounds"]),
        counted="rounds, of which the best counts",
        note="Events/s on one core with one Python call per event and one per query. Without "
        f"queries: {single['update']:,.0f}. In bulk, over {int(last['at']):,} events of figure 5's "
        f"10⁸: {bulk:,.0f}. With {int(largest['chunk']):,} events per call, and an answer after "
        f"each event: {largest['estimates']:,.0f}. The document's machine is older.",
    )


SOUND = r"|\text{estimate} - \text{exact}| \le \varepsilon \cdot \text{exact}"

CLAIMS = [
    Claim(
        "D5-1", "Figure 3 is reproduced row by row: buckets, total, query, exact count.", figure_3,
        source="fig. 3", expected="all rows", unit="rows", figure="Buckets step by step (fig. 4)",
    ),
    Claim(
        "D5-2", "The relative error of the estimate is at most ε, always.", article_error,
        source="section 集計とは (aggregation)", expected="≤ 1",
        threshold=Threshold("section 集計とは: always at most ε", high=1 + 1e-9), unit="× ε",
        figure="Few ones break the article's guarantee", formula=SOUND, recorded=DEVIATES,
    ),
    Claim(
        "D5-3", "Space is logarithmic in N, and fig. 5's buckets are far fewer than its events.",
        memory, source="fig. 2, fig. 5", expected="≤ 1", threshold=LOGARITHMIC, unit="× the bound",
        figure="Memory of a window full of ones", formula=r"O(\tfrac{1}{\varepsilon} \log N)",
    ),
    Claim(
        "D5-4", "The histogram processes 100,000 events/s, also with a query after each.", speed,
        source="fig. 5 for the rate, fig. 6 for the query",
        expected=f"≥ {DOCUMENT_RATE:,.0f} events/s",
        threshold=Threshold("fig. 5: 100,000 events/s", low=DOCUMENT_RATE), unit="events/s",
        timed=True, figure="Speed on one core",
    ),
    Claim(
        "D5-5",
        "With total − (last − 1)/2 on the same buckets (the default here) the relative error "
        "is at most ε, always, and comes close to it.",
        sound_error, project=True, expected="0.9 … 1",
        threshold=Threshold(
            "Datar et al.: at most ε; ours: “close” means within a tenth", 0.9, 1 + 1e-9
        ),
        unit="× ε", figure="Largest relative error measured", formula=SOUND,
    ),
    Claim(
        "D5-6", "The time of an event is logarithmic in N.", update_time,
        source="summary: logarithmic time and space", expected="≤ 1", threshold=LOGARITHMIC,
        unit="× the bound on buckets", basis=DERIVED, figure="Memory of a window full of ones",
        formula=r"O(\tfrac{1}{\varepsilon} \log N)",
    ),
]  # fmt: skip
