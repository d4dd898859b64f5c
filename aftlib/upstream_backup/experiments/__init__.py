"""D4: four ways to stand by, what is sent again after a failure, and what each costs."""

from aftlib.upstream_backup.experiments.beyond import (
    in_a_row,
    matching_share,
    orders,
    unequal_nodes,
)
from aftlib.upstream_backup.experiments.cases import Case
from aftlib.upstream_backup.experiments.examples import EXAMPLE, example, example_table
from aftlib.upstream_backup.experiments.overhead import comparison, overheads
from aftlib.upstream_backup.experiments.recoveries import (
    against_closed_form,
    against_ns3,
    agreement,
    recoveries,
    same_system,
    saved,
    side_by_side,
    summary,
)
from aftlib.upstream_backup.experiments.tcp import explained, tcp_parts, tcp_table
from aftlib.upstream_backup.verdicts import verdicts

__all__ = [
    "EXAMPLE",
    "Case",
    "against_closed_form",
    "against_ns3",
    "agreement",
    "comparison",
    "example",
    "example_table",
    "explained",
    "in_a_row",
    "matching_share",
    "orders",
    "overheads",
    "recoveries",
    "same_system",
    "saved",
    "side_by_side",
    "summary",
    "tcp_parts",
    "tcp_table",
    "unequal_nodes",
    "verdicts",
]
