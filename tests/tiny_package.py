"""A document of two claims for the tests of reports; the kernels of its notebooks import it."""

from __future__ import annotations

from aftlib.notebook.claims import Claim, Finding, Summary, Threshold
from aftlib.notebook.parameters import ParameterModel, parameter


class NotebookParameters(ParameterModel):
    m: int = parameter(4, "number of workers", least=1, smoke=3)
    epsilons: list[float] = parameter([0.65, 0.7], "tolerances")
    path: str | None = parameter(None, "a file of your own")


CLAIMS = [
    Claim(
        *("D1-1", "Workers <scale>.", "6.1", "m is at least 3"),
        lambda m: Finding(m, n=m, counted="workers"),
        threshold=Threshold("ours", low=3),
    ),
    Claim(
        *("D1-2", "Workers are even.", "6.2", "m is even", lambda m: Finding(m, holds=m % 2 == 0)),
        timed=True,
    ),
]


def summarize(records, parameters):
    workers = records["D1-1"]
    found = f"With {workers.measured} workers it {workers.verdict}."
    return Summary("All works.", found, "Very.", "Here.")
