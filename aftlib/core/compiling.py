"""Numba's compiler, as the kernels use it; without numba they run as Python, and far slower.

Only kernels import this module, and only bulk updates import the kernels: importing numba takes
most of a second, which those who do not use it do not pay.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

try:
    import numba
    from numba.core.cgutils import ir as ir
    from numba.extending import intrinsic as intrinsic
except ModuleNotFoundError:
    COMPILED = False
else:
    COMPILED = True

# Arguments may be read-only and start anywhere, as Arrow's buffers do.
OCTETS, LONGS, DOUBLES = (
    f"Array({kind}, 1, 'C', readonly=True, aligned=False)" for kind in ("uint8", "int64", "float64")
)


def __getattr__(name: str) -> Any:
    """Refuse what only numba has, which the parser of lines needs."""
    if name in ("numba", "ir", "intrinsic"):
        raise ModuleNotFoundError(
            "the parser of lines needs numba, which is not installed: pip install 'aftlib[fast]'",
            name="numba",
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def jit(signature: str | None = None) -> Callable[[Any], Any]:
    """Compile at once for numba's `signature`, else when first called; kept on disk if possible.

    Without numba the function itself is the result. As in compiled code, integers wrap around and
    a division by zero is infinite, without a warning.
    """

    def compiled(function: Any) -> Any:
        if not COMPILED:
            return np.errstate(all="ignore")(function)
        try:
            return numba.njit(signature, cache=True, error_model="numpy")(function)
        except RuntimeError:  # numba found no folder to keep it in
            return numba.njit(signature, error_model="numpy")(function)

    return compiled


def emitted(python: Any) -> Callable[[Any], Any]:
    """Compile a function by LLVM's own instructions, or let `python` stand in without numba."""
    return intrinsic if COMPILED else lambda _: python
