"""numba where it is installed, and nothing in its place where it is not.

Only kernels import this module, and only bulk updates import the kernels: importing numba takes
most of a second, which those who do not use it do not pay.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any


def _numba() -> Any:
    try:
        return importlib.import_module("numba")
    except ImportError:  # kernels then run as plain Python on NumPy, with the same results
        return None


numba = _numba()
#: Compiled kernels read bits eight at a time, as little-endian words.
COMPILED = numba is not None and sys.byteorder == "little"

# Arguments may be read-only and start anywhere, as Arrow's buffers do.
OCTETS, WORDS, LONGS, DOUBLES = (
    f"Array({kind}, 1, 'C', readonly=True, aligned=False)"
    for kind in ("uint8", "uint64", "int64", "float64")
)


def jit(signature: str | None = None) -> Callable[[Any], Any]:
    """Compile at once for numba's `signature`, else when first called; kept on disk if possible."""

    def compiled(function: Any) -> Any:
        try:
            return numba.njit(signature, cache=True, error_model="numpy")(function)
        except RuntimeError:  # numba found no folder to keep it in
            return numba.njit(signature, error_model="numpy")(function)

    return compiled if COMPILED else lambda function: function
