"""The cost model's constants, its predictions, and the break-even read rates.

The constants come from the shortest windows. Longer windows and limited rates are predicted.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import numpy as np
import pandas as pd

from aftlib.core.recovery_costs import RecoveryCosts
from aftlib.does_it_pay.schemes import EXACT, EXACT_PROCESS, GUARD, MODEL, PARTIAL

#: Approximate schemes, and the exact one that loses the same memory.
COMPARED = {MODEL: EXACT, GUARD: EXACT, PARTIAL: EXACT_PROCESS}
#: Schemes of D2's process; the others run in D1's workers.
BY_PROCESS = (EXACT_PROCESS, PARTIAL)


def measured_costs(recoveries: pd.DataFrame, sample_s: float) -> dict[str, RecoveryCosts]:
    """Return four constants of each scheme, from its recoveries in the shortest windows.

    The start is a median over all schemes with the same kind of process, because it varies most and
    they start in the same way. It includes the time to open the log where a scheme reads again.
    """
    costs, shortest = {}, recoveries[recoveries["width"] == recoveries["width"].min()]
    by_process = shortest["scheme"].isin(BY_PROCESS)
    for scheme, rows in shortest.groupby("scheme", sort=False):
        alike = by_process if scheme in BY_PROCESS else ~by_process
        start = shortest.loc[alike, "start_s"].median()
        unlimited = rows[np.isinf(rows["rate"])]
        opening = (unlimited["read_s"] - sample_s * unlimited["again"]).median()
        costs[str(scheme)] = RecoveryCosts(
            start_s=float(start + max(0.0, opening)),
            sample_s=sample_s,
            estimate_s=float(rows["estimate_s"].median()),
            checkpoint_s=float(rows["commit_s"].median()),
        )
    return costs


def expected_again(recoveries: pd.DataFrame, scheme: str, width: int) -> float:
    """Return the samples that a scheme is expected to read again after a failure.

    The guard decides by the data: it is expected to read the same share of the lost samples again
    as in the shortest windows.
    """
    means = recoveries.groupby(["scheme", "width"])["again"].mean()
    if scheme != GUARD:
        return float(means[scheme, width])
    shortest = recoveries["width"].min()
    return float(means[EXACT, width] * means[GUARD, shortest] / means[EXACT, shortest])


def compare_with_model(
    recoveries: pd.DataFrame, costs: Mapping[str, RecoveryCosts]
) -> pd.DataFrame:
    """Return the measured and the predicted time, one row per scheme, window and rate.

    Columns: scheme, width, rate; seconds, the median, with min and max; kills; predicted_s.
    """
    by_point = recoveries.groupby(["scheme", "width", "rate"], sort=False)["seconds"]
    points = by_point.agg(["median", "min", "max", "size"]).reset_index()
    points = points.rename(columns={"median": "seconds", "size": "kills"})
    for i, scheme, width, rate in points[["scheme", "width", "rate"]].itertuples():
        again = expected_again(recoveries, scheme, width)
        points.loc[i, "predicted_s"] = costs[scheme].recovery_s(again, scheme in COMPARED, rate)
    return points


def break_evens(recoveries: pd.DataFrame) -> pd.DataFrame:
    """Return predicted and measured break-even rates, one row per approximate scheme and window.

    The extra time of an approximate recovery is the difference of both schemes' mean work (reading,
    estimating, committing) without the wait for the read rate. Where it is not above 0, the
    break-even rate is infinite: the scheme is faster at every rate.

    Columns: scheme, width; saved: samples that it reads fewer; extra_ms; predicted, from the extra
    time in the shortest windows; measured.
    """
    times = recoveries[["read_s", "estimate_s", "commit_s"]].sum(axis=1)
    work = (times - recoveries["again"] / recoveries["rate"]).groupby(
        [recoveries["scheme"], recoveries["width"]]
    )
    means, rows = work.mean(), []
    widths = sorted(recoveries["width"].unique())
    for width, (scheme, exact) in product(widths, COMPARED.items()):
        extra = means[scheme] - means[exact]
        saved = expected_again(recoveries, exact, width)
        saved -= expected_again(recoveries, scheme, width)
        rates = _rate(saved, extra[widths[0]]), _rate(saved, extra[width])
        rows.append((scheme, width, saved, 1e3 * extra[width], *rates))
    columns = ["scheme", "width", "saved", "extra_ms", "predicted", "measured"]
    return pd.DataFrame(rows, columns=columns)


def _rate(saved: float, extra_s: float) -> float:
    """Return the read rate below which estimating is faster; 0 if no sample is saved."""
    if saved <= 0:
        return 0.0
    return saved / extra_s if extra_s > 0 else np.inf
