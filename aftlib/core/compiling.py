"""numba's compiler, as the kernels use it.

Only kernels import this module, and only bulk updates import the kernels: importing numba takes
most of a second, which those who do not use it do not pay.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

try:
    import numba
    from numba.core.cgutils import ir as ir
    from numba.extending import intrinsic as intrinsic
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        "arrays of events, the guard and the parser need numba, which is not installed: "
        "pip install 'aftlib[fast]'",
        name="numba",
    ) from missing

# Arguments may be read-only and start anywhere, as Arrow's buffers do.
OCTETS, LONGS, DOUBLES = (
    f"Array({kind}, 1, 'C', readonly=True, aligned=False)" for kind in ("uint8", "int64", "float64")
)


def jit(signature: str | None = None) -> Callable[[Any], Any]:
    """Compile at once for numba's `signature`, else when first called; kept on disk if possible."""

    def compiled(function: Any) -> Any:
        try:
            return numba.njit(signature, cache=True, error_model="numpy")(function)
        except RuntimeError:  # numba found no folder to keep it in
            return numba.njit(signature, error_model="numpy")(function)

    return compiled
