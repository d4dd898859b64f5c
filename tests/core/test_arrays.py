"""Arrays as one value."""

import numpy as np
import pytest

from aftlib.core.labels import pack_arrays, unpack_arrays


def test_arrays_come_back_from_their_bytes():
    arrays = {"a.b": np.array([[1.5, np.nan]]), "number": np.array(3)}
    data = pack_arrays(**arrays)
    copies = unpack_arrays(data)
    assert copies.keys() == arrays.keys()
    assert all(np.array_equal(copies[n], arrays[n], equal_nan=True) for n in arrays)
    assert pack_arrays(**copies) == data
    with pytest.raises(ValueError, match="allow_pickle=False"):
        pack_arrays(bad=np.array([object()]))
