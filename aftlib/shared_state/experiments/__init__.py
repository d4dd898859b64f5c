"""D3: state shared through a database instead of a shuffle."""

from aftlib.shared_state.experiments.engines import memory_stored, other_engines
from aftlib.shared_state.experiments.examples import table_1
from aftlib.shared_state.experiments.failures import one_task_dies
from aftlib.shared_state.experiments.locality import states_or_locality
from aftlib.shared_state.experiments.model import costs_table, fitted, imbalances, modelled
from aftlib.shared_state.experiments.parameters import require_parameters
from aftlib.shared_state.experiments.sharing import servers_and_tasks_die
from aftlib.shared_state.experiments.stores import EMBEDDED, checkpoints, merges
from aftlib.shared_state.experiments.streams import Input, inputs
from aftlib.shared_state.experiments.throughputs import measured
from aftlib.shared_state.verdicts import verdicts

__all__ = [
    "EMBEDDED",
    "Input",
    "checkpoints",
    "costs_table",
    "fitted",
    "imbalances",
    "inputs",
    "measured",
    "memory_stored",
    "merges",
    "modelled",
    "one_task_dies",
    "other_engines",
    "require_parameters",
    "servers_and_tasks_die",
    "states_or_locality",
    "table_1",
    "verdicts",
]
