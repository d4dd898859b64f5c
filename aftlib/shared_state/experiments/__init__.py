"""D3's experiments: from the notebook's parameters to frames."""

from aftlib.shared_state.experiments.parameters import Input, NotebookParameters, inputs
from aftlib.shared_state.experiments.servers import (
    EMBEDDED,
    checkpoints,
    merges,
    other_engines,
    paced,
    served,
    servers_and_tasks_crash,
    stored_memory,
)
from aftlib.shared_state.experiments.strategies import measure, measured, one_task_crashes, table_1

__all__ = [
    "EMBEDDED", "Input", "NotebookParameters", "checkpoints", "inputs", "measure", "measured",
    "merges", "one_task_crashes", "other_engines", "paced", "served", "servers_and_tasks_crash",
    "stored_memory", "table_1",
]  # fmt: skip
