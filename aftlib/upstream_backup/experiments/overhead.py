"""What each scheme costs on the links, and how long each takes to recover (D4 section 2.2)."""

from __future__ import annotations

import pandas as pd

from aftlib.upstream_backup.bandwidth import traffic
from aftlib.upstream_backup.experiments.cases import Case
from aftlib.upstream_backup.schemes import SCHEMES


def overheads(case: Case) -> pd.DataFrame:
    """Bandwidth overhead while nothing fails, with each denominator.

    Returns
    -------
    DataFrame
        scheme, rate, share_of_all, relative: to the plain stream, relative_to_input: to the stream
        into the node, and kbit/s of copies, acks, checkpoints, heartbeats.
    """
    rows = []
    for rate in case.rates:
        for scheme in SCHEMES.values():
            found = traffic(case.at(rate), scheme)
            parts = ("copies", "acks", "checkpoints", "heartbeats")
            shares = ("share_of_all", "relative", "relative_to_input")
            row = {"scheme": scheme.name, "rate": rate}
            row |= {name: getattr(found, name) for name in shares}
            rows.append(row | {f"{name}_kbps": getattr(found, name) * 8e-3 for name in parts})
    return pd.DataFrame(rows)


def comparison(means: pd.DataFrame, costs: pd.DataFrame, rate: float) -> pd.DataFrame:
    """All schemes at one rate: three recovery times and three overheads.

    Raises
    ------
    ValueError
        When the rate was not simulated.
    """
    if rate not in set(means["rate"]):
        known = ", ".join(f"{r:g}" for r in sorted(means["rate"].unique()))
        raise ValueError(f"rate must be one of {known}, got {rate!r}")
    times = ["scheme", "resent", "reprocessed", "recovery_ms", "restored_ms", "caught_up_ms"]
    shares = ["scheme", "share_of_all", "relative", "relative_to_input"]
    left, right = means[means["rate"] == rate][times], costs[costs["rate"] == rate][shares]
    return left.merge(right, on="scheme").set_index("scheme")
