"""The cost model's constants, its predictions, and the break-even read rates.

The constants come from the shortest windows. Longer windows and limited rates are predicted.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import numpy as np
import pandas as pd

from aftlib.core.intervals import ratio_interval
from aftlib.core.recovery_costs import RecoveryCosts, break_even_rate
from aftlib.notebook.claims import FEWEST
from aftlib.recovery_comparison.schemes import BY_PROCESS, EXACT, MODEL, exact_of


def measured_costs(recoveries: pd.DataFrame, sample_s: float) -> dict[str, RecoveryCosts]:
    """Return four constants of each scheme, from its recoveries in the shortest windows.

    The start is a median over all schemes with the same kind of process, because it varies most and
    they start in the same way. It includes the time to open the log where a scheme reads again.
    """
    costs = {}
    shortest = recoveries[recoveries["width"] == recoveries["width"].min()]
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

    The guard and added schemes may decide by the data: they are expected to read the same share of
    the lost samples again as in the shortest windows.
    """
    means = recoveries.groupby(["scheme", "width"])["again"].mean()
    if scheme == MODEL or exact_of(scheme) != EXACT:
        return float(means[scheme, width])
    shortest = recoveries["width"].min()
    return float(means[EXACT, width] * means[scheme, shortest] / means[EXACT, shortest])


def compare_with_model(
    recoveries: pd.DataFrame, costs: Mapping[str, RecoveryCosts]
) -> pd.DataFrame:
    """Return the measured and the predicted time, one row per scheme, window and rate.

    Columns: scheme, width, rate; seconds, the median, with min and max; kills; predicted_s.
    """
    by_point = recoveries.groupby(["scheme", "width", "rate"], sort=False)["seconds"]
    points = by_point.agg(["median", "min", "max", "size"]).reset_index()
    points = points.rename(columns={"median": "seconds", "size": "kills"})
    predicted = [
        costs[scheme].recovery_s(
            expected_again(recoveries, scheme, width), exact_of(scheme) is not None, rate
        )
        for scheme, width, rate in points[["scheme", "width", "rate"]].itertuples(index=False)
    ]
    return points.assign(predicted_s=predicted)


def compare_with_exact(recoveries: pd.DataFrame, points: pd.DataFrame) -> pd.DataFrame:
    """Return the time of each approximate recovery over that of the exact one, by window and rate.

    `points` are those of `compare_with_model`. Columns: scheme, width, rate; kills: of each; ratio
    of the mean times, with its 95 % interval low, high, NaN below five kills; predicted.
    """
    by_point = recoveries.groupby(["scheme", "width", "rate"], sort=False)["seconds"]
    seconds = {point: times.to_numpy() for point, times in by_point}
    predicted = points.set_index(["scheme", "width", "rate"])["predicted_s"].to_dict()
    rows = []
    for point, times in seconds.items():
        scheme, width, rate = point
        exact = exact_of(str(scheme))
        if exact is None:
            continue
        same = (exact, width, rate)
        ratio, interval = ratio_interval(times, seconds[same])
        if len(times) < FEWEST:
            interval = (np.nan, np.nan)
        rows.append((*point, len(times), ratio, *interval, predicted[point] / predicted[same]))
    columns = ["scheme", "width", "rate", "kills", "ratio", "low", "high", "predicted"]
    return pd.DataFrame(rows, columns=columns)


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
    means = work.mean()
    rows = []
    widths = sorted(recoveries["width"].unique())
    for width, scheme in product(widths, recoveries["scheme"].unique()):
        exact = exact_of(scheme)
        if exact is None:
            continue
        extra = means[scheme] - means[exact]
        saved = expected_again(recoveries, exact, width)
        saved -= expected_again(recoveries, scheme, width)
        rates = break_even_rate(saved, extra[widths[0]]), break_even_rate(saved, extra[width])
        rows.append((scheme, width, saved, 1e3 * extra[width], *rates))
    columns = ["scheme", "width", "saved", "extra_ms", "predicted", "measured"]
    return pd.DataFrame(rows, columns=columns)
