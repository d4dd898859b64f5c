"""D5's claims, and how the frames of its experiments judge them."""

from __future__ import annotations

import numpy as np
import pandas as pd

from aftlib.core.claims import DEVIATES, Claim, Finding, Threshold, Value, nothing
from aftlib.exponential_histogram.experiments.costs import DOCUMENT_RATE


def figure_3(table: pd.DataFrame) -> Finding:
    """D5-1, from `experiments.figure_3`."""
    return Finding(
        table["same"].sum(),
        expected=len(table),
        threshold=Threshold("fig. 3: every row", low=len(table)),
        note="Rows of figure 3 whose buckets, total, query and exact count all come out.",
    )


def article_error(swept: pd.DataFrame, smallest: pd.DataFrame, sizes: pd.DataFrame) -> Finding:
    """D5-2, from `experiments.sweep` and `experiments.counterexamples`."""
    shown = "; ".join(
        f"ε = {p['epsilon']:g}: {p['ones']:.0f} ones → {p['article']:.0f}, "
        f"{p['article_error']:.2%} off"
        for p in smallest.dropna(subset=["ones"]).to_dict("records")
    )
    worst = max(_worst(swept, "article", "article_young"), _worst(smallest, "worst"))
    broken = int((swept["article_missed"] > 0).sum())
    kept, more = _worst(smallest, "datar_worst"), float((sizes["datar"] / sizes["buckets"]).max())
    return Finding(
        _finite(worst),
        note="Largest relative error of the article's estimate ⌈total − last/2⌉, as a multiple of "
        f"ε. A few ones in the window are enough: {shown}. Broken at {broken} of {len(swept)} "
        "points of the sweep. One cause is the estimate: total − (last − 1)/2 on the same buckets "
        "keeps ε (D5-5). The other is the number of buckets: the article keeps ⌈k/2⌉ … ⌈k/2⌉ + 1 "
        f"of each size. With k … k + 1 its own estimate errs by at most {kept:.2f} ε for the same "
        f"few ones, and needs up to {more:.1f} times the buckets.",
    )


def sound_error(swept: pd.DataFrame, smallest: pd.DataFrame) -> Finding:
    """D5-5, from `experiments.sweep` and `experiments.counterexamples`.

    An error far below ε would mean that more buckets are kept than ε asks for.
    """
    worst = max(_worst(swept, "sound", "sound_young"), _worst(smallest, "sound_worst"))
    broken = int((swept["sound_missed"] > 0).sum())
    return Finding(
        _finite(worst),
        conditions=broken == 0,
        note="Largest relative error of the library's default estimate, as a multiple of ε. Broken "
        f"at {broken} of {len(swept)} points of the sweep.",
    )


def _worst(table: pd.DataFrame, *columns: str) -> float:
    """Largest error of the columns as a multiple of ε."""
    return max(float((table[column] / table["epsilon"]).max()) for column in columns)


def _finite(worst: float) -> Value:
    return worst if np.isfinite(worst) else "infinite"


def memory(sizes: pd.DataFrame) -> Finding:
    """D5-3, from `experiments.sizes`; not run without three windows over 4/ε for some ε."""
    largest = sizes[sizes["window"] == sizes["window"].max()]
    share = float((largest["buckets"] / largest["window"]).max())
    over = int((sizes["buckets"] > sizes["bound"]).sum())

    # R² of a straight line in log N, where the window is large enough for the logarithm; any two
    # windows lie on a line.
    grown = sizes[sizes["window"] > 4 / sizes["epsilon"]].groupby("epsilon")
    lines = [each for _, each in grown if each["window"].nunique() >= 3]
    fits = [float(np.corrcoef(np.log2(e["window"]), e["buckets"])[0, 1] ** 2) for e in lines]
    if not fits:
        return nothing("size_windows has no three windows of more than 4/ε events for any ε.")
    return Finding(
        min(fits),
        n=len(sizes),
        counted="windows",
        conditions=over == 0 and share <= 0.01,
        note=f"Smallest R² of buckets against log₂ N, for windows full of ones of more than 4/ε "
        f"events, of the {len(fits)} values of ε with three such windows or more; at N = "
        f"{int(largest['window'].iloc[0]):,} buckets are at most {share:.2g} of N. "
        f"Above the bound (k/2 + 1)(log₂(2N/k + 1) + 1) + 1: {over} of {len(sizes)}. The article's "
        "update visits each bucket at most once and its query two numbers, so the number of "
        "buckets bounds its time, too.",
    )


def speed(long_run: pd.DataFrame, rates: pd.DataFrame) -> Finding:
    """D5-4, from `experiments.long_run` and `experiments.rates`."""
    last, single = long_run.iloc[-1], rates[rates["chunk"] == 1].iloc[0]
    bulk, largest = float(last["at"] / last["seconds"]), rates.sort_values("chunk").iloc[-1]
    return Finding(
        float(single["estimates"]),
        note="Events/s on one core with one Python call per event and one per query, the best of "
        f"several rounds. Without queries: {single['update']:,.0f}. Figure 5's run in bulk: "
        f"{bulk:,.0f} over {int(last['at']):,} events. Rows of {int(largest['chunk']):,} events "
        f"with an answer after each: {largest['estimates']:,.0f}.",
    )


SOUND = r"|\text{estimate} - \text{exact}| \le \varepsilon \cdot \text{exact}"

CLAIMS = [
    Claim(
        "D5-1", "Figure 3 comes out row by row: buckets, total, query and exact count.", figure_3,
        source="fig. 3", expected="all rows", unit="rows", figure="Buckets step by step (fig. 4)",
    ),
    Claim(
        "D5-2", "The relative error of the estimate is at most ε, always.", article_error,
        source="section 2", expected="≤ 1",
        threshold=Threshold("section 2: at most ε", high=1 + 1e-9), unit="× ε",
        figure="Few ones break the article's promise", formula=SOUND, recorded=DEVIATES,
    ),
    Claim(
        "D5-3",
        "Time and space are logarithmic in N: buckets are far fewer than the window's events.",
        memory, source="section 2", expected="a line in log N (R² ≥ 0.99), buckets ≪ N",
        threshold=Threshold("ours: nearly a line", low=0.99), unit="R²",
        figure="Memory of a window full of ones", formula=r"O(\tfrac{1}{\varepsilon} \log N)",
    ),
    Claim(
        "D5-4", "The histogram processes 100,000 events/s, also with a query after each.", speed,
        source="fig. 5", expected=f"≥ {DOCUMENT_RATE:,.0f} events/s",
        threshold=Threshold("fig. 5: 100,000 events/s", low=DOCUMENT_RATE), unit="events/s",
        timed=True, figure="Speed on one core",
    ),
    Claim(
        "D5-5",
        "With total − (last − 1)/2 on the same buckets (the default here) the relative error "
        "is at most ε, always, and comes close to it.",
        sound_error, project=True, expected="0.9 … 1",
        threshold=Threshold("Datar et al.: at most ε; ours: close is a tenth", 0.9, 1 + 1e-9),
        unit="× ε", figure="Largest relative error measured", formula=SOUND,
    ),
]  # fmt: skip
