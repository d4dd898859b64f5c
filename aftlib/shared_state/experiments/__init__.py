"""D3's experiments: from a checked parameter to a frame."""

from aftlib.shared_state.experiments.failures import one_task_crashes, servers_and_tasks_crash
from aftlib.shared_state.experiments.stores import EMBEDDED, checkpoints, merges, states_or_locality
from aftlib.shared_state.experiments.streams import Input, check_parameters, inputs
from aftlib.shared_state.experiments.throughputs import (
    measured,
    memory_stored,
    other_engines,
    served,
    table_1,
)
from aftlib.shared_state.scaling import (
    costs_table,
    fitted,
    held_out,
    imbalances,
    modelled,
)

__all__ = [
    "EMBEDDED", "Input", "check_parameters", "checkpoints", "costs_table", "fitted", "held_out",
    "imbalances", "inputs", "measured", "memory_stored", "merges", "modelled", "one_task_crashes",
    "other_engines", "served", "servers_and_tasks_crash", "states_or_locality", "table_1",
]  # fmt: skip
