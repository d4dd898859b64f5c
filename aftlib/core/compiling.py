"""Numba's compiler for kernels, which run as Python code, far slower, without numba.

Importing numba takes most of a second. So only kernels import this module, and only bulk updates
import the kernels.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

try:
    import numba
except ModuleNotFoundError:
    COMPILED = False
else:
    COMPILED = True

# Arguments may be read-only and start at any address, as Arrow's buffers do.
OCTETS = "Array(uint8, 1, 'C', readonly=True, aligned=False)"
LONGS = "Array(int64, 1, 'C', readonly=True, aligned=False)"


def jit(signature: str | None = None) -> Callable[[Any], Any]:
    """Return a decorator that compiles for numba's `signature`; if that is None, at the first call.

    Compiled kernels are stored on disk if possible. They contain functions and constants of other
    kernels of their package, so a change of any kernel module there makes them compile again.
    Without numba the decorator returns the function itself; as in compiled code, integers wrap
    around and a division by zero is infinite, without a warning.
    """

    def compile_kernel(function: Any) -> Any:
        if not COMPILED:
            return np.errstate(all="ignore")(function)
        kernel = numba.njit(function, error_model="numpy", nogil=True)
        with suppress(RuntimeError):  # numba has no folder to store it in
            kernel.enable_caching()
            stored = kernel._cache._cache_file
            stored._source_stamp = _hash_kernels(Path(inspect.getfile(function)).parent)
        if signature is not None:
            kernel.compile(signature)
            kernel.disable_compile()
        return kernel

    return compile_kernel


@cache
def _hash_kernels(package: Path) -> str:
    """Return a hash of this module, `intrinsics`, and the kernels' modules in the folder `package`.

    A module with kernels mentions this module.
    """
    here = Path(__file__)
    sources = [here.read_bytes(), here.with_name("intrinsics.py").read_bytes()]
    sources += [path.read_bytes() for path in sorted(package.rglob("*.py"))]
    digest = hashlib.sha256()
    for source in sources:
        if b"compiling" in source:
            digest.update(source)
    return digest.hexdigest()
