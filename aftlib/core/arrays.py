"""The arrays of a state, packed into one value for a transaction."""

from __future__ import annotations

import io
from typing import Any

import numpy as np


def pack_arrays(**arrays: Any) -> bytes:
    """Return arrays as bytes; the same arrays give the same bytes."""
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **arrays)
    return file.getvalue()


def unpack_arrays(data: bytes) -> dict[str, np.ndarray]:
    """Return the arrays that `pack_arrays` packed; ValueError or numpy's error for other data."""
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        return dict(arrays)
