"""What the experiments say about D5's claims."""

from __future__ import annotations

import numpy as np
import pandas as pd

from aftlib.exponential_histogram.experiments.costs import DOCUMENT_RATE
from aftlib.reports.claims import Settled, settle

FAR_ABOVE = 10
"""Times the document's rate that one event a call must reach for D5-4."""


def verdicts(
    figure_3: pd.DataFrame,
    swept: pd.DataFrame,
    smallest: pd.DataFrame,
    sizes: pd.DataFrame,
    long_run: pd.DataFrame,
    rates: pd.DataFrame,
) -> list[Settled]:
    """Settle D5-1 … D5-4.

    Parameters
    ----------
    figure_3, swept, smallest, sizes, long_run, rates : DataFrame
        Results of `figure_3`, `sweep`, `counterexamples`, `sizes`, `long_run` and `rates`.
    """
    return [
        _figure_3(figure_3),
        _error(swept, smallest),
        _memory(sizes),
        _rate(long_run, rates),
    ]


def _figure_3(table: pd.DataFrame) -> Settled:
    return settle(
        "D5-1",
        expected=len(table),
        measured=int(table["same"].sum()),
        holds=bool(table["same"].all()),
        note="Rows of figure 3 whose buckets, total, query and exact count all come out.",
    )


def _error(swept: pd.DataFrame, smallest: pd.DataFrame) -> Settled:
    shown = "; ".join(
        f"ε = {p['epsilon']:g}: {p['ones']:.0f} ones → {p['article']:.0f}, "
        f"{p['article_error']:.2%} off"
        for p in smallest.dropna(subset=["ones"]).to_dict("records")
    )
    article = max(*_worst(swept, "article", "article_young"), *_worst(smallest, "worst"))
    sound = max(*_worst(swept, "sound", "sound_young"), *_worst(smallest, "sound_worst"))
    broken = int((swept["article_missed"] > 0).sum())
    also = int((swept["sound_missed"] > 0).sum())
    return settle(
        "D5-2",
        expected="≤ 1",
        measured=float(article),
        holds=bool(article <= 1 + 1e-9),
        note="Largest relative error of the article's estimate ⌈total − last/2⌉, as a multiple of "
        f"ε. A few ones in the window are enough: {shown}. Broken at {broken} of {len(swept)} "
        f"points of the sweep. The sound estimate total − (last − 1)/2 on the same buckets: at "
        f"most {sound:.4f} ε, broken at {also}.",
    )


def _worst(table: pd.DataFrame, *columns: str) -> list[float]:
    """Largest error of each column as a multiple of ε."""
    return [float((table[column] / table["epsilon"]).max()) for column in columns]


def _memory(sizes: pd.DataFrame) -> Settled:
    largest = sizes[sizes["window"] == sizes["window"].max()]
    share = float((largest["buckets"] / largest["window"]).max())
    fits = [_line(each) for _, each in sizes.groupby("epsilon")]
    known = [fit for fit in fits if np.isfinite(fit)]
    least = min(known, default=float("nan"))
    over = int((sizes["buckets"] > sizes["bound"]).sum())
    return settle(
        "D5-3",
        expected="a line in log N (R² ≥ 0.99), buckets ≪ N",
        measured=least,
        holds=least >= 0.99 and over == 0 and share <= 0.01,
        note=f"Smallest R² of buckets against log₂ N, for windows full of ones of more than 4/ε "
        f"events, of the {len(known)} values of ε with three such windows or more; at N = "
        f"{int(largest['window'].iloc[0]):,} buckets are at most {share:.2g} of N. "
        f"Above the bound (k/2 + 1)(log₂(2N/k + 1) + 1) + 1: {over} of {len(sizes)}.",
    )


def _line(each: pd.DataFrame) -> float:
    """R² of a straight line in log N, where the window is large enough for the logarithm.

    NaN for fewer than three such windows: any two lie on a line.
    """
    grown = each[each["window"] > 4 / each["epsilon"]]
    if len(grown) < 3:
        return float("nan")
    x, y = np.log2(grown["window"]), grown["buckets"]
    return float(np.corrcoef(x, y)[0, 1] ** 2)


def _rate(long_run: pd.DataFrame, rates: pd.DataFrame) -> Settled:
    last = long_run.iloc[-1]
    bulk = float(last["at"] / last["seconds"])
    single = float(rates.loc[rates["chunk"] == 1, "update"].iloc[0])
    return settle(
        "D5-4",
        expected=f"≥ {FAR_ABOVE} × {DOCUMENT_RATE:,.0f} events/s",
        measured=min(bulk, single),
        holds=min(bulk, single) >= FAR_ABOVE * DOCUMENT_RATE,
        note=f"The slower of one event a call from Python ({single:,.0f} events/s) and figure 5's "
        f"run in bulk ({bulk:,.0f} events/s over {int(last['at']):,} events, drawing them not "
        "counted), on one core.",
    )
