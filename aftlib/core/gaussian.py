"""The multivariate Gaussian model of correlated sensors (D1 section 3.2, D2 section 3)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import cho_factor, cho_solve, cholesky, issymmetric, solve_triangular

from aftlib.core.checks import listed, require_choice, require_number
from aftlib.core.covariance import fit_moments, independent_groups, invert_factored
from aftlib.core.labels import as_numbers, in_one_order, labels_of, values_by_name
from aftlib.core.windows import AGGREGATES, divisor

if TYPE_CHECKING:  # recovery does not need pandas, which takes long to load
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

    Examples
    --------
    >>> from aftlib import GaussianModel
    >>> model = GaussianModel([18, 19], [[4, 3], [3, 4]], ["kitchen", "hall"])
    >>> posterior = model.condition({"hall": [19, 20, 21]})
    >>> posterior.mean.ravel(), posterior.variance
    (array([18.  , 18.75, 19.5 ]), array([1.75]))
    """

    names: tuple[str, ...]
    mean: np.ndarray
    variance: np.ndarray
    covariance: np.ndarray = field(repr=False)


@dataclass(frozen=True, eq=False)
class GaussianModel:
    """N(μ, Σ) over n keys; an immutable value.

    Once the keys O are observed to be o, the others Y have the mean μ_Y + Σ_YO Σ_OO⁻¹ (o − μ_O) and
    the covariance Σ_YY − Σ_YO Σ_OO⁻¹ Σ_OY (D1 eqs (1), (2)).

    Parameters
    ----------
    mean : array_like or Series, shape (n,)
        μ, in sensor units.
    covariance : array_like or DataFrame, shape (n, n)
        Σ, symmetric (but for rounding) positive definite, squared sensor units.
    names : sequence of str, optional
        n different names; default the labels of `mean` or `covariance`, else "X1" … "Xn". Labelled
        pandas objects are put in the order of the names.

    Raises
    ------
    ValueError
        When sizes or labels do not fit, a number is not finite, names repeat, or Σ is not
        symmetric positive definite.

    Notes
    -----
    The Cholesky factor and the precision Λ = Σ⁻¹ are computed once, on first use: O(n³), or O(Σ
    n_g³) for independent groups of n_g keys. With Σ itself these are three matrices of 8 n² bytes.

    Examples
    --------
    >>> from aftlib import GaussianModel
    >>> model = GaussianModel([18, 19], [[4, 3], [3, 4]], ["kitchen", "hall"])
    >>> model.condition({"hall": 20})
    Posterior(names=('kitchen',), mean=array([18.75]), variance=array([1.75]))
    """

    mean: np.ndarray
    covariance: np.ndarray
    names: tuple[str, ...]

    def __init__(
        self, mean: ArrayLike, covariance: ArrayLike, names: Sequence[str] | None = None
    ) -> None:
        mean, covariance, names = in_one_order(mean, covariance, names)
        mu = np.array(mean, dtype=float)
        sigma = np.array(covariance, dtype=float)
        n = mu.size
        if mu.ndim != 1 or n == 0:
            raise ValueError(f"mean must have shape (n,) with n ≥ 1, got {mu.shape}")
        if sigma.shape != (n, n):
            raise ValueError(f"covariance must have shape ({n}, {n}), got {sigma.shape}")

        labels = tuple(f"X{i}" for i in range(1, n + 1)) if names is None else tuple(names)
        if not len(labels) == len(set(labels)) == n:
            raise ValueError(f"names must be {n} different ones, one per key, got {listed(labels)}")

        for argument, values in (("mean", mu), ("covariance", sigma)):
            if not np.isfinite(values).all():
                raise ValueError(
                    f"{argument} must be finite, got {int((~np.isfinite(values)).sum())} NaN or "
                    "infinite values; fit on rows without missing values"
                )
        if not issymmetric(sigma):
            gap = np.abs(sigma - sigma.T).max()
            if gap > 1e-8 * np.abs(sigma).max():
                raise ValueError(
                    f"covariance must be symmetric, got entries that differ by {gap:.3g} from "
                    "those across the diagonal; use (C + C.T) / 2 if rounding is the cause"
                )
            sigma = (sigma + sigma.T) / 2

        mu.flags.writeable = sigma.flags.writeable = False
        object.__setattr__(self, "mean", mu)
        object.__setattr__(self, "covariance", sigma)
        object.__setattr__(self, "names", labels)
        _ = self.cholesky  # positive definite, or refused now

    @classmethod
    def fit(
        cls,
        frame: pd.DataFrame | ArrayLike,
        *,
        missing: str = "refuse",
        shrinkage: float | str = 0.0,
    ) -> GaussianModel:
        """Estimate μ and Σ (unbiased) from rows of simultaneous values.

        Parameters
        ----------
        frame : DataFrame or array_like, shape (rows, n)
            One row per time, one column per key; column labels become names.
        missing : {"refuse", "estimate"}
            "refuse" raises an error for gaps (NaN). "estimate" takes the μ and Σ of greatest
            likelihood, by expectation maximization. Gaps must not depend on the missing values.
            The part of the error that gaps cause shrinks the correlations, whatever `shrinkage` is.
        shrinkage : float or "auto"
            Share λ in [0, 1] by which correlations shrink to 0. "auto", for few rows, takes the λ
            of least expected squared error (Schäfer and Strimmer 2005).

        Raises
        ------
        ValueError
            When a value is infinite, or missing and that is refused; when a key has no two
            different values; when two keys never occur together; or when there are too few rows
            for n keys without shrinkage.

        Examples
        --------
        >>> import numpy as np
        >>> import pandas as pd
        >>> from aftlib import GaussianModel
        >>> frame = pd.DataFrame({"a": [1.0, 2, 3, 4, 6], "b": [1.5, np.nan, 2, 4.5, 5]})
        >>> GaussianModel.fit(frame, missing="estimate").condition({"a": 5.0}).mean.round(2)
        array([4.31])
        """
        values = as_numbers("frame", frame)
        if values.ndim != 2:
            raise ValueError(
                f"frame must have shape (rows, n), got {values.shape}; one row per time"
            )
        require_choice("missing", missing, ("refuse", "estimate"))
        if shrinkage != "auto" and not (isinstance(shrinkage, int | float) and 0 <= shrinkage <= 1):
            raise ValueError(f"shrinkage must be 'auto' or inside [0, 1], got {shrinkage!r}")
        columns = getattr(frame, "columns", [f"X{i + 1}" for i in range(values.shape[1])])
        names = [str(column) for column in columns]
        return cls(*fit_moments(values, names, missing, shrinkage), names)

    @property
    def size(self) -> int:
        """Number n of keys."""
        return len(self.names)

    @cached_property
    def groups(self) -> tuple[np.ndarray, ...]:
        """Key indices of the independent groups, between which every covariance is exactly 0."""
        return tuple(independent_groups(self.covariance))

    @cached_property
    def cholesky(self) -> np.ndarray:
        """Lower factor L with Σ = L Lᵀ, shape (n, n)."""
        lower = partial(cholesky, lower=True, check_finite=False)
        try:
            factor = self._each_group(lower, self.covariance)
        except np.linalg.LinAlgError:
            factor = np.zeros_like(self.covariance)
        rounding = self.size * np.finfo(float).eps * np.diag(self.covariance)
        if not np.all(np.diag(factor) ** 2 > rounding):
            worst = np.linalg.eigvalsh(self.covariance)[0]
            raise ValueError(
                f"covariance must be positive definite, got smallest eigenvalue {worst:.3g}; "
                "remove keys that repeat others, or fit on more rows"
            )
        factor.flags.writeable = False
        return factor

    @cached_property
    def precision(self) -> np.ndarray:
        """Λ = Σ⁻¹, shape (n, n)."""
        inverse = self._each_group(invert_factored, self.cholesky)
        inverse.flags.writeable = False
        return inverse

    def _each_group(
        self, act: Callable[[np.ndarray], np.ndarray], matrix: np.ndarray
    ) -> np.ndarray:
        """Apply `act` to the block of each independent group; return 0 between groups."""
        if len(self.groups) == 1:
            return act(matrix)
        blocks = np.zeros_like(matrix)
        for group in self.groups:
            at = np.ix_(group, group)
            blocks[at] = act(matrix[at])
        return blocks

    def condition(self, observed: Mapping[str, ArrayLike] | pd.DataFrame) -> Posterior:
        """Posterior of the other keys given some values (D1 eqs (1), (2)).

        Parameters
        ----------
        observed : mapping of str to float, Series, or DataFrame
            Value of each observed key, in sensor units; may be empty. Lists of equal length, or a
            DataFrame with the keys as columns, are several rows; each row has its own posterior.

        Raises
        ------
        ValueError
            When a name is unknown, or a value is not a finite number.
        """
        names = labels_of(observed, self.names)
        if names is None:
            raise ValueError(
                f"observed must name its keys, got {observed!r:.80}: give {{key: value}}"
            )
        o = self.indices("observed", names)
        values = values_by_name("observed", observed, names)  # (keys,), or (rows, keys)
        if not np.isfinite(values).all():
            raise ValueError(
                f"observed must be finite, got {observed!r:.300}; leave missing keys out, and call "
                "once for each set of missing keys"
            )
        y = np.setdiff1d(np.arange(self.size), o)
        gain = self.gain(o, y)
        mean = self.mean[y] + (values - self.mean[o]) @ gain.T
        covariance = self.covariance[np.ix_(y, y)] - gain @ self.covariance[np.ix_(o, y)]
        variance = np.maximum(np.diag(covariance), 0)
        return Posterior(tuple(self.names[i] for i in y), mean, variance, covariance)

    def gain(self, observed: ArrayLike, wanted: ArrayLike) -> np.ndarray:
        """Σ_YO Σ_OO⁻¹ of two lists of key indices, shape (wanted, observed) (D1 eq. (1))."""
        o = self.indices("observed", observed)
        y = self.indices("wanted", wanted)
        if o.size == 0:
            return np.zeros((y.size, 0))
        factor = cho_factor(self.covariance[np.ix_(o, o)], lower=True)
        return np.asarray(cho_solve(factor, self.covariance[np.ix_(o, y)]).T)

    def conditional(self, observed: ArrayLike, wanted: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """Gain (see `gain`) and covariance (wanted, wanted) of unobserved keys, given the keys O.

        Y are all unobserved keys. If |Y| ≥ |O|, D1 eqs (1) and (2) are used. Otherwise
        Cov(X_Y | X_O) = (Λ_YY)⁻¹ and the gain is −(Λ_YY)⁻¹ Λ_YO with Λ = Σ⁻¹, in O(|Y|³ + n²).
        """
        o = self.indices("observed", observed)
        w = self.indices("wanted", wanted)
        rest = np.ones(self.size, dtype=bool)
        rest[o] = False
        (y,) = np.nonzero(rest)
        if len(y) >= len(o):
            gain = self.gain(o, w)
            return gain, self.covariance[np.ix_(w, w)] - gain @ self.covariance[np.ix_(o, w)]
        at = np.searchsorted(y, w)  # places of the wanted keys among the unobserved
        inverse = np.linalg.inv(self.precision[np.ix_(y, y)])[at]
        return -inverse @ self.precision[np.ix_(y, o)], inverse[:, at]

    def posterior_variance(self, observed: ArrayLike) -> np.ndarray:
        """Variance of every key once some are observed, shape (n,); 0 where observed (D1 eq. (2)).

        Parameters
        ----------
        observed : array_like of int or str
            Key indices, 0 … n − 1, or names, each at most once; may be empty.
        """
        o = self.indices("observed", observed)
        variance = np.diag(self.covariance).copy()
        if o.size:
            factor = cholesky(self.covariance[np.ix_(o, o)], lower=True)
            explained = solve_triangular(factor, self.covariance[o], lower=True)
            variance = np.maximum(variance - np.einsum("ij,ij->j", explained, explained), 0)
            variance[o] = 0
        return variance

    def block_variance(self, keys: ArrayLike) -> np.ndarray:
        """Variance of each key of a block given every key outside it, shape (len(keys),).

        Cov(X_A | X∖A) = (Λ_AA)⁻¹, so only a matrix of the block's size is inverted.
        """
        block = self.indices("keys", keys)
        return np.diag(np.linalg.inv(self.precision[np.ix_(block, block)])).copy()

    def digest(self) -> hashlib._Hash:
        """SHA-256 hash of the bytes of μ and Σ; a caller may update it further."""
        digest = hashlib.sha256(self.mean.data)
        digest.update(np.ascontiguousarray(self.covariance).data)
        return digest

    def aggregate(self, steps: int, query: str = "mean") -> GaussianModel:
        """Model of the keys' mean or sum over independent steps (D2 eqs (8)–(11)).

        Parameters
        ----------
        steps : int
            Number L ≥ 1 of time steps aggregated.
        query : {"mean", "sum"}
            Mean: (μ, Σ/L); sum: (Lμ, LΣ).

        Raises
        ------
        ValueError
            When steps < 1, or for another query.
        """
        require_number("steps", steps, least=1, whole=True)
        require_choice("query", query, AGGREGATES)
        number = divisor(query, steps)
        scale = steps / number  # of the mean
        return GaussianModel(self.mean * scale, self.covariance * scale / number, self.names)

    def indices(self, argument: str, keys: ArrayLike) -> np.ndarray:
        """Indices, shape (k,), of keys given as indices or names; errors name `argument`."""
        given = np.asarray(sorted(keys) if isinstance(keys, set | frozenset) else keys)
        if given.dtype.kind == "U":
            place = {name: i for i, name in enumerate(self.names)}
            given = np.array([place.get(name, -1) for name in given.ravel().tolist()])
        sequence = given.ndim == 1 and (given.dtype.kind in "iu" or given.size == 0)
        known = sequence and np.all((given >= 0) & (given < self.size))
        if not known or np.unique(given).size != given.size:
            raise ValueError(
                f"{argument} must be different keys, as a list of indices 0 … {self.size - 1} or "
                f"of names such as {listed(self.names)}, got {keys!r:.300}"
            )
        return given.astype(np.intp)
