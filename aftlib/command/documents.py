"""The documents and what this project adds, each with its notebook, claims and parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from aftlib.documents.approximately_once import claims as approximately_once
from aftlib.documents.checkpoint_planning import claims as checkpoint_planning
from aftlib.documents.exponential_histogram import claims as exponential_histogram
from aftlib.documents.shared_state import claims as shared_state
from aftlib.documents.upstream_backup import claims as upstream_backup
from aftlib.notebook.claims import Claim, Summary
from aftlib.notebook.parameters import ParameterModel
from aftlib.notebook.scorecard import ClaimRecord
from aftlib.recovery_comparison import claims as does_it_pay
from aftlib.sensor_plans import claims as sensor_plans


@dataclass(frozen=True)
class Document:
    """A document, the notebook that judges it (without ``.ipynb``), and its package's modules.

    G and P are no documents but what this project adds; they are listed alike.
    """

    id: str
    title: str
    authors: str
    notebook: str
    module: ModuleType

    @property
    def parameters(self) -> type[ParameterModel]:
        """The model of the notebook's parameters, with which its package summarizes a run."""
        return self.module.NotebookParameters

    @property
    def claims(self) -> Sequence[Claim]:
        """The claims that the notebook judges, in order; some may be of another document."""
        return self.module.CLAIMS

    def summarize(
        self, records: Mapping[str, ClaimRecord], parameters: Mapping[str, Any]
    ) -> Summary:
        """Return the box of a run with these records by claim and these parameters by name."""
        return self.module.summarize(records, self.parameters(**parameters))


_UNKNOWN = "Japanese, authors unknown"
_OURS = "this project"
DOCUMENTS = [
    Document("D1", "Approximately-once recovery", _UNKNOWN,
             "01_approximately_once", approximately_once),
    Document("D2", "Checkpoints and partial replay",
             "Takao, Sugiura, Ishikawa: "
             "チェックポインティングを考慮した近似的耐障害性保証, DEIM 2020",
             "02_checkpoint_planning", checkpoint_planning),
    Document("D3", "State shared through a database", _UNKNOWN,
             "03_shared_state", shared_state),
    Document("D4", "Upstream backup with a working secondary",
             "Nagano, Itokawa, Kitasuka, Aritsugi: An Approach to Reducing Recovery Cost for "
             "High-Availability Stream Processing Systems, in Japanese",
             "04_upstream_backup", upstream_backup),
    Document("D5", "Exponential histogram",
             "Meijer: イベント ストリームを使いこなす: 高速概算集計",
             "05_exponential_histogram", exponential_histogram),
    Document("G", "A guarantee for any data", _OURS,
             "06_your_sensors", sensor_plans),
    Document("P", "Does approximate recovery pay?", _OURS,
             "07_does_it_pay", does_it_pay),
]  # fmt: skip
