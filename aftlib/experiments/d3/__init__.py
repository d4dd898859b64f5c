"""D3: state shared through a database instead of a shuffle."""

from aftlib.experiments.d3.engines import memory_stored, other_engines
from aftlib.experiments.d3.examples import table_1
from aftlib.experiments.d3.failures import one_task_dies
from aftlib.experiments.d3.locality import states_or_locality
from aftlib.experiments.d3.model import costs_table, fitted, imbalances, modelled
from aftlib.experiments.d3.parameters import require_parameters
from aftlib.experiments.d3.sharing import servers_and_tasks_die
from aftlib.experiments.d3.stores import EMBEDDED, checkpoints, merges
from aftlib.experiments.d3.streams import Input, inputs
from aftlib.experiments.d3.throughputs import measured
from aftlib.experiments.d3.verdicts import verdicts

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
