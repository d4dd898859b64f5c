"""Obvious twins of D3's fast code, and small inputs."""

from collections import defaultdict

import numpy as np

from aftlib.documents.shared_state.sums import Partials

MERGE = {
    "sum": lambda a, b: a + b,
    "mean": lambda a, b: a + b,
    "min": min,
    "max": max,
    "count": max,
}


def slow_rows(rows, aggregate="sum"):
    """Slice, key, value and count of rows (slice, key, value), merged one by one."""
    found = {}
    for part, key, value in rows:
        before, count = found.get((part, key), (None, 0))
        merged = value if before is None else MERGE[aggregate](before, value)
        found[part, key] = merged, count + 1
    return [(*at, *found[at]) for at in sorted(found)]


def slow_windows(rows, windows):
    """Window start, key, value and count of rows (time, key, value), added up one by one."""
    found = defaultdict(lambda: [0, 0])
    for time, key, value in rows:
        for start in range(0, time + 1, windows.slide):
            if time < start + windows.width:
                found[start, key][0] += value
                found[start, key][1] += 1
    return [(*at, *found[at]) for at in sorted(found)]


def listed(partials):
    return list(map(tuple, partials.rows.tolist()))


def partials(rows):
    """Rows of slice start, key, value and count as partials."""
    return Partials.of(np.array(rows, np.int64).reshape(-1, 4))


def text_of(rows):
    return "".join(f"{t},{k},{v}\n" for t, k, v in rows).encode()
