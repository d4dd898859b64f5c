"""Estimates of unobserved keys by a Gaussian model (D1 eqs (1), (2))."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from aftlib.core.checks import require_instance, require_number
from aftlib.core.labels import frame_of_keys

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Posterior:
    """Distribution of the k keys that were not observed, given those that were.

    Attributes
    ----------
    names : tuple of str
        Names of the k keys, in the model's order.
    mean : ndarray, shape (k,) or (rows, k)
        μ_{Y|o} (D1 eq. (1)); one row per row of observed values where several were given.
    variance : ndarray, shape (k,)
        The diagonal of the covariance.
    covariance : ndarray, shape (k, k)
        Σ_{Y|o} (D1 eq. (2)), the same for all rows.
    rows : tuple
        Labels of the rows; empty for one row.

    Examples
    --------
    >>> import numpy as np
    >>> from aftlib import GaussianModel
    >>> model = GaussianModel([18, 19], [[4, 3], [3, 4]], ["kitchen", "hall"])
    >>> posterior = model.condition({"hall": [19, 20, 21]})
    >>> posterior.mean.ravel(), posterior.variance
    (array([18.  , 18.75, 19.5 ]), array([1.75]))
    >>> posterior.sample(1000, np.random.default_rng(1)).shape
    (1000, 3, 1)
    """

    names: tuple[str, ...]
    mean: np.ndarray
    variance: np.ndarray
    covariance: np.ndarray = field(repr=False)
    rows: tuple[Any, ...] = field(default=(), repr=False)

    def to_frame(self) -> pd.DataFrame:
        """Return one row per key, or per row and key: mean, variance, standard deviation `sd`."""
        columns = {"mean": self.mean, "variance": self.variance, "sd": np.sqrt(self.variance)}
        if self.mean.ndim == 1:
            return frame_of_keys(columns, self.names)
        import pandas as pd  # here, because recovery makes no frames and pandas takes long to load

        labels = pd.MultiIndex.from_product([self.rows, self.names], names=["row", "key"])
        repeated = {
            name: np.broadcast_to(v, self.mean.shape).ravel() for name, v in columns.items()
        }
        return pd.DataFrame(repeated, labels)

    def sample(self, size: int, rng: np.random.Generator) -> np.ndarray:
        """Draw `size` joint values of the keys, shape (size, k) or (size, rows, k)."""
        require_number("size", size, least=1, whole=True)
        require_instance("rng", rng, np.random.Generator)
        zero, shape = np.zeros(len(self.names)), (size, *self.mean.shape[:-1])
        return self.mean + rng.multivariate_normal(zero, self.covariance, shape, method="eigh")
