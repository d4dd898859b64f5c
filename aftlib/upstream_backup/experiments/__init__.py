"""D4: ways to stand by, what is sent again after a failure, and what each costs."""

from __future__ import annotations

from aftlib.upstream_backup.experiments.beyond import (
    either_node,
    in_a_row,
    orders,
    real_kills,
    settings_of_hwang,
    unequal_nodes,
)
from aftlib.upstream_backup.experiments.parameters import NotebookParameters
from aftlib.upstream_backup.experiments.recoveries import (
    Sweep,
    comparison,
    example,
    example_table,
    overheads,
    recoveries,
    saved,
    savings,
    summary,
)
from aftlib.upstream_backup.experiments.references import (
    against_closed_form,
    against_ns3,
    agreement,
    counted_traffic,
    explained,
    same_system,
    tcp_parts,
    tcp_table,
)

__all__ = [
    "NotebookParameters", "Sweep", "against_closed_form", "against_ns3", "agreement",
    "comparison", "counted_traffic", "either_node", "example", "example_table", "explained",
    "in_a_row", "orders", "overheads", "real_kills", "recoveries", "same_system", "saved",
    "savings", "settings_of_hwang", "summary", "tcp_parts", "tcp_table", "unequal_nodes",
]  # fmt: skip
