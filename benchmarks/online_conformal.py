"""Online conformal prediction: rules that set the half-width of an interval from earlier scores.

Each rule serves many streams at once, shape (H, n): horizon h of n sensors, whose outcome is known
h rounds after the decision. A score is |error|, or |error| divided by its predicted size; NaN where
the window did not come. A half-width is infinite until `LEAST` scores of its stream are known. The
names and constants are those of the papers.
"""

from __future__ import annotations

import numpy as np

LEAST, MEMORY = 50, 400
"""Scores before the first finite half-width, and scores of which quantiles are taken."""


class SplitConformal:
    """Quantile of the last `MEMORY` scores (rolling split conformal prediction).

    Vovk, Gammerman and Shafer, *Algorithmic Learning in a Random World*, 2005.
    """

    bound = "exchangeable data"

    def __init__(self, horizons: int, sensors: int, delta: float) -> None:
        self.delta = delta
        self.shape = horizons, sensors
        self.scores = np.full((horizons, sensors, MEMORY), -np.inf)
        self.count = np.zeros(self.shape, np.int64)

    def issue(self) -> np.ndarray:
        """Return what the next decisions rest on, shape (H, n, K)."""
        return np.zeros((*self.shape, 1))

    def learn(self, score: np.ndarray, issued: np.ndarray) -> None:
        """Learn scores (k, n) of the horizons 1 … k, whose decisions rested on `issued`."""
        h, i = np.nonzero(~np.isnan(score))
        self.scores[h, i, self.count[h, i] % MEMORY] = score[h, i]
        self.count[h, i] += 1

    def half_width(self) -> np.ndarray:
        """Return the half-widths of the next intervals, shape (H, n)."""
        return self.quantile(np.full(self.shape, self.delta))

    def quantile(self, alpha: np.ndarray) -> np.ndarray:
        """Return the quantile of each stream's scores that a share `alpha` should exceed."""
        known = np.minimum(self.count, MEMORY)
        rank = np.ceil((1 - alpha) * (known + 1)).astype(np.int64)
        ordered = np.sort(self.scores, axis=-1)  # those that are there come last
        place = np.clip(MEMORY - known + rank - 1, 0, MEMORY - 1)
        value = np.take_along_axis(ordered, place[..., np.newaxis], -1)[..., 0]
        value = np.where(rank > known, np.inf, np.where(rank < 1, -np.inf, value))
        return np.where(known >= LEAST, value, np.inf)


class ACI(SplitConformal):
    """Adaptive conformal inference: α falls after a miss and rises after a hit.

    Gibbs and Candès, NeurIPS 2021, eq. (2), with their γ = .005.
    """

    bound = "all rounds, any data"
    steps = np.array([0.005])

    def __init__(self, horizons: int, sensors: int, delta: float) -> None:
        super().__init__(horizons, sensors, delta)
        self.alpha = np.full((horizons, sensors, self.steps.size), delta)

    def issue(self) -> np.ndarray:
        """Return the levels α of each stream."""
        return self.alpha.copy()

    def learn(self, score: np.ndarray, issued: np.ndarray) -> None:
        """Compare the level β at which the score would just be covered with the issued levels."""
        known = np.minimum(self.count[: len(score)], MEMORY)
        above = (self.scores[: len(score)] >= score[..., np.newaxis]).sum(-1)
        beta = np.where(known > 0, (above + 1) / (known + 1), 1.0)[..., np.newaxis]
        scored = ~np.isnan(score) & (known >= LEAST)
        self.adapt(scored[..., np.newaxis], beta, issued)
        super().learn(score, issued)

    def adapt(self, scored: np.ndarray, beta: np.ndarray, issued: np.ndarray) -> None:
        """Take a step of every level; it missed if β lies below it."""
        change = self.steps * (self.delta - (beta <= issued))
        self.alpha[: len(beta)] += np.where(scored, change, 0.0)

    def half_width(self) -> np.ndarray:
        """Return the quantile at the level of each stream."""
        return self.quantile(self.alpha[..., 0])


class DtACI(ACI):
    """ACI with eight step sizes, which are weighted by their quantile losses.

    Gibbs and Candès, JMLR 25, 2024, Algorithm 1, with their candidates γ and an interval of 500.
    """

    steps = 0.001 * 2.0 ** np.arange(8)
    interval = 500

    def __init__(self, horizons: int, sensors: int, delta: float) -> None:
        super().__init__(horizons, sensors, delta)
        spread = (1 - delta) ** 2 * delta**3 + delta**2 * (1 - delta) ** 3
        choices = np.log(self.interval * self.steps.size) + 2
        self.sigma = 1 / (2 * self.interval)
        self.eta = np.sqrt(3 / self.interval * choices / spread)
        self.weight = np.full(self.alpha.shape, 1 / self.steps.size)

    def adapt(self, scored: np.ndarray, beta: np.ndarray, issued: np.ndarray) -> None:
        """Weigh each step size by the quantile loss of its level, then take all steps."""
        loss = self.delta * (beta - issued) - np.minimum(0.0, beta - issued)
        past = self.weight[: len(beta)]
        weight = past * np.exp(-self.eta * loss)
        weight /= weight.sum(-1, keepdims=True)
        mixed = (1 - self.sigma) * weight + self.sigma / self.steps.size
        self.weight[: len(beta)] = np.where(scored, mixed, past)
        super().adapt(scored, beta, issued)

    def half_width(self) -> np.ndarray:
        """Return the quantile at the weighted mean of the levels."""
        return self.quantile((self.weight * self.alpha).sum(-1))


class SFOGD(SplitConformal):
    """Scale-free online gradient descent on the quantile loss of the half-width.

    Bhatnagar, Wang, Xiong and Bai, ICML 2023, Algorithm 2. The step is D/√3, and D is √3 times the
    largest of the first scores.
    """

    bound = "all rounds, any data"

    def __init__(self, horizons: int, sensors: int, delta: float) -> None:
        super().__init__(horizons, sensors, delta)
        self.step = np.zeros(self.shape)
        self.radius = np.full(self.shape, np.inf)
        self.squares = np.zeros(self.shape)

    def issue(self) -> np.ndarray:
        """Return the half-width of each stream."""
        return self.radius[..., np.newaxis].copy()

    def learn(self, score: np.ndarray, issued: np.ndarray) -> None:
        """Take a gradient step; the first `LEAST` scores give the beginning and D."""
        k = len(score)
        super().learn(score, issued)
        started = np.isfinite(issued[..., 0]) & ~np.isnan(score)
        gradient = np.where(score > issued[..., 0], self.delta - 1, self.delta)
        self.squares[:k] += np.where(started, gradient**2, 0.0)
        change = self.step[:k] * gradient / np.sqrt(np.maximum(self.squares[:k], 1e-12))
        self.radius[:k] -= np.where(started, change, 0.0)
        first = ~np.isnan(score) & (self.count[:k] == LEAST)
        if first.any():
            begin = self.quantile(np.full(self.shape, self.delta))[:k]
            self.radius[:k] = np.where(first, begin, self.radius[:k])
            largest = self.scores[:k].max(-1)
            self.step[:k] = np.where(first, largest, self.step[:k])

    def half_width(self) -> np.ndarray:
        """Return the half-width of each stream."""
        return self.radius


class SAOCP(SFOGD):
    """Strongly adaptive: SF-OGD experts of limited lifetime, weighted by coin betting.

    Bhatnagar, Wang, Xiong and Bai, ICML 2023, Algorithm 1, with lifetimes of 8·2ʲ rounds.
    """

    multiple = 8

    def __init__(self, horizons: int, sensors: int, delta: float) -> None:
        super().__init__(horizons, sensors, delta)
        self.round = 0
        self.born = np.zeros(0, np.int64)
        self.experts = np.zeros((0, 4, *self.shape))  # half-width, squares, Σ g, Σ w·g
        self.mean = np.full(self.shape, np.inf)

    def learn(self, score: np.ndarray, issued: np.ndarray) -> None:
        """Update the experts and their bets, end the old ones, and begin a new one."""
        k = len(score)
        super().learn(score, issued)
        known = ~np.isnan(score) & np.isfinite(self.mean[:k])
        radius, squares, gains, bets = self.experts[:, :, :k].swapaxes(0, 1)
        loss = self.loss(score, self.mean[:k]) - self.loss(score, radius)
        weight = self.weights()[:, :k]
        scale = np.maximum(self.step[:k] * np.sqrt(3) * (1 - self.delta), 1e-12)
        gain = np.clip(loss / scale, np.where(weight > 0, -1.0, 0.0), 1.0)
        gain = np.where(known, gain, 0.0)
        gradient = np.where(score > radius, self.delta - 1, self.delta)
        squares += np.where(known, gradient**2, 0.0)
        change = self.step[:k] * gradient / np.sqrt(np.maximum(squares, 1e-12))
        radius -= np.where(known, change, 0.0)
        gains += gain
        bets += weight * gain
        self.round += 1
        self.renew()

    def renew(self) -> None:
        """End experts whose lifetime is over; begin one at the mean half-width."""
        lifetime = self.multiple * (self.born & -self.born)
        alive = self.round - self.born < lifetime
        new = np.zeros((1, 4, *self.shape))
        started = np.isfinite(self.mean)
        new[0, 0] = np.where(started, self.mean, np.where(np.isfinite(self.radius), self.radius, 0))
        self.experts = np.concatenate([self.experts[alive], new])
        self.born = np.append(self.born[alive], self.round)
        prior = 1 / (self.born**2.0 * (1 + np.floor(np.log2(self.born))))
        weight = prior[:, np.newaxis, np.newaxis] * np.maximum(self.weights(), 0.0)
        total = weight.sum(0)
        even = prior[:, np.newaxis, np.newaxis] / prior.sum()
        share = np.where(total > 0, weight / np.where(total > 0, total, 1.0), even)
        mean = (share * self.experts[:, 0]).sum(0)
        self.mean = np.where(self.count >= LEAST, mean, np.inf)

    def weights(self) -> np.ndarray:
        """Return the bet of each expert, (experts, H, n)."""
        age = np.maximum(self.round - self.born, 1)[:, np.newaxis, np.newaxis]
        return np.asarray(self.experts[:, 2] / age * (1 + self.experts[:, 3]))

    def loss(self, score: np.ndarray, radius: np.ndarray) -> np.ndarray:
        """Return the quantile loss of half-widths."""
        below = score - radius
        return np.maximum((1 - self.delta) * below, -self.delta * below)

    def issue(self) -> np.ndarray:
        """Return the mean half-width of each stream."""
        return self.mean[..., np.newaxis].copy()

    def half_width(self) -> np.ndarray:
        """Return the mean half-width of each stream."""
        return self.mean


RULES = {
    "split conformal": SplitConformal,
    "ACI": ACI,
    "DtACI": DtACI,
    "SF-OGD": SFOGD,
    "SAOCP": SAOCP,
}
