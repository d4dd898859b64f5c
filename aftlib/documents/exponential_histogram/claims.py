"""D5's claims, each judged by the variables of notebook 05."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from aftlib.documents.exponential_histogram.experiments import (
    DOCUMENT_RATE,
    FIGURE_3_EPSILON,
    FIGURE_3_WINDOW,
    ROUNDING,
    NotebookParameters,
    counterexamples,
)
from aftlib.notebook.claims import Claim, Finding, Summary, Threshold
from aftlib.notebook.scorecard import ClaimRecord, sentences_by_verdict

#: N and ε of figure 5.
DOCUMENT_WINDOW = 10**6
DOCUMENT_EPSILON = 0.01
NOT_ZERO = "An estimate is not 0 where the window has no ones."


def reproduces_figure_3(steps: pd.DataFrame) -> Finding:
    """D5-1: rows of figure 3 whose buckets, total, query and exact count are all reproduced."""
    rows = len(steps)
    same = int(steps["same"].sum())
    return Finding(
        same,
        text=f"{same} of {rows} rows",
        holds=same == rows,
        n=rows,
        counted="events of fig. 3",
        sensitivity=f"Only fig. 3's N = {FIGURE_3_WINDOW} and ε = {FIGURE_3_EPSILON:g} are "
        "compared.",
    )


def keeps_its_bound(few: pd.DataFrame, swept: pd.DataFrame) -> Finding:
    """D5-2: largest error of the article's estimate, as a multiple of ε."""
    errors = few["article_error"] / few["epsilon"]
    worst = few.iloc[int(errors.argmax())]
    sentences = []
    if len(examples := counterexamples(few)):
        fewest = examples.nsmallest(1, "ones").iloc[0]
        missed = int((swept["article_missed"] > 0).sum())
        sentences += [
            "The estimate of D5-5 on the same buckets.",
            f"The fewest ones that break it at these ε: {fewest['ones']:.0f}, answered as "
            f"{fewest['article']:.0f} at ε = {fewest['epsilon']:g}.",
            f"Broken on {missed} of {len(swept)} streams, too.",
        ]
        largest = errors.groupby(few["epsilon"]).max()
        if len(kept := largest[largest <= ROUNDING]):
            met = kept[kept >= 1 / ROUNDING]
            exactly = f" (exactly 1 ε at {list_epsilons(met)})" if len(met) else ""
            sentences.append(f"It keeps ε for ε of {list_epsilons(kept)}{exactly}.")
    return Finding(
        float(errors.max()),
        text=f"{errors.max():.4g} ε: {worst['ones']:.0f} ones are answered as "
        f"{worst['article']:.0f} at ε = {worst['epsilon']:g}",
        n=few["epsilon"].nunique(),
        counted=f"values of ε, every total up to {few['ones'].max():,}",
        sensitivity=" ".join(sentences),
    )


def list_epsilons(values: pd.Series) -> str:
    """Return the values of ε that index a series, as text."""
    return " and ".join(f"{epsilon:g}" for epsilon in values.index)


def sound_keeps_its_bound(few: pd.DataFrame, swept: pd.DataFrame) -> Finding:
    """D5-5: largest error of total − (last − 1)/2 on the same buckets, as a multiple of ε."""
    errors = pd.concat([few["sound_error"] / few["epsilon"], swept["sound"] / swept["epsilon"]])
    finite = errors[np.isfinite(errors)]
    return Finding(
        float(finite.max()),
        text=f"{finite.max():.4g} ε at worst",
        n=len(swept),
        counted=f"streams, and every total up to {few['ones'].max():,}",
        sensitivity="A proof is in notebook 05.",
        fails=NOT_ZERO if len(finite) < len(errors) else "",
        control=not swept["sound_missed"].any(),
    )


def needs_logarithmic_space(sizes: pd.DataFrame) -> Finding:
    """D5-3: most buckets of a window full of ones, divided by Datar et al.'s bound."""
    at = (sizes["window"] == DOCUMENT_WINDOW) & (sizes["epsilon"] == DOCUMENT_EPSILON)
    ratio = float((sizes["buckets"] / sizes["bound"]).max())
    document = "".join(
        f"; {row['buckets']:,} buckets of {row['levels']} sizes at fig. 5's N and ε"
        for row in sizes[at].to_dict("records")
    )
    return Finding(
        ratio,
        text=f"{ratio:.3g} × the bound at most{document}",
        n=len(sizes),
        counted="windows and ε",
        sensitivity="Time by argument, not measured.",
    )


def is_fast_enough(speeds: pd.DataFrame) -> Finding:
    """D5-4: events per second, one Python call per event and one per query."""
    rates = speeds[speeds["method"] == "one event and a query"]["events per second"]
    middle = float(rates.median())
    slowest = float(rates.min())
    return Finding(
        middle,
        text=f"{middle / 1e6:.3g} million events/s",
        n=len(rates),
        counted=f"rounds, {slowest / 1e6:.3g} to {rates.max() / 1e6:.3g} million",
        sensitivity=f"Reversed on a machine {slowest / DOCUMENT_RATE:.2g} times slower; the "
        "document's has a dual core of 2.4 GHz and Windows 7.",
    )


CLAIMS = [
    Claim(
        "D5-1",
        "Buckets, total, query and exact count step by step.",
        "fig. 3",
        "every row of the figure",
        reproduces_figure_3,
        expected="all rows",
        basis="exact",
    ),
    Claim(
        "D5-2",
        "The relative error of the estimate is at most ε, always.",
        "集計とは",
        "the article's estimate ⌈total − last/2⌉, for every total",
        keeps_its_bound,
        expected="at most 1",
        threshold=Threshold("the document's sentence", high=1 + 1e-9),
        basis="exact",
        unit="× ε",
        recorded="does not hold",
    ),
    Claim(
        "D5-3",
        "Time and space are logarithmic in N.",
        "summary, figs 2, 5",
        "most buckets, divided by the logarithmic bound of Datar et al.; time by argument: an "
        "event merges at most once per size of bucket, and on average at most once",
        needs_logarithmic_space,
        expected="at most 1",
        threshold=Threshold("Datar et al.: the bound on their buckets", high=1),
        basis="exact",
        unit="× the bound",
    ),
    Claim(
        "D5-4",
        "The histogram processes 100,000 events per second.",
        "figs 5, 6",
        "one call per event, and a query after each",
        is_fast_enough,
        expected=f"at least {DOCUMENT_RATE:,.0f}",
        threshold=Threshold("the document's rate", low=DOCUMENT_RATE),
        unit="events/s",
        timed=True,
    ),
    Claim(
        "D5-5",
        "The estimate total − (last − 1)/2 on the same buckets errs by at most ε, always.",
        "ours",
        "largest error over all totals and streams. Proof: 1 to s of the oldest bucket's s ones "
        "are inside, so the middle is off by at most (s − 1)/2, which the buckets keep within ε",
        sound_keeps_its_bound,
        expected="at most 1",
        threshold=Threshold("Datar et al.: at most ε", high=1 + 1e-9),
        basis="exact",
        unit="× ε",
        project=True,
    ),
]


def summarize(records: Mapping[str, ClaimRecord], parameters: NotebookParameters) -> Summary:
    """Return the box of a run from its verdicts and values."""
    clauses = {
        "D5-3": "space is logarithmic",
        "D5-5": "counting (s+1)/2 of the oldest bucket's s ones keeps ε",
        "D5-2": "the article's s/2 does (error up to {0.measured:.2f} ε)",
    }
    return Summary(
        claimed="A few buckets count a window's ones within ε.",
        found=sentences_by_verdict(records, clauses),
        sure="Exact, speed measured.",
        limits="Events must come in order.",
    )
