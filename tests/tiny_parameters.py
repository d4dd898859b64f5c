"""The model of the tiny notebooks' parameters, which their kernels import, too."""

from __future__ import annotations

from aftlib.workbench.parameters import ParameterModel, parameter


class NotebookParameters(ParameterModel):
    """Of the first notebook, with or without a seed."""

    m: int = parameter(4, "number of workers", least=1, smoke=3)
    epsilons: list[float] = parameter([0.65, 0.7], "tolerances")
    path: str | None = parameter(None, "a file of one's own")
    seed: int = parameter(1)
