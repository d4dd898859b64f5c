"""D4: ways to stand by, what is sent again after a failure, and what each costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aftlib.core.checks import require_number, require_numbers
from aftlib.upstream_backup.experiments.beyond import in_a_row, orders, real_kills, unequal_nodes
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
from aftlib.upstream_backup.parameters import NODES, Parameters, Tcp
from aftlib.upstream_backup.schemes import scheme_named

__all__ = [
    "Sweep", "against_closed_form", "against_ns3", "agreement", "check_parameters",
    "comparison", "counted_traffic", "example", "example_table", "explained", "in_a_row",
    "orders", "overheads", "real_kills", "recoveries", "same_system", "saved", "savings",
    "summary", "tcp_parts", "tcp_table", "unequal_nodes",
]  # fmt: skip


def check_parameters(
    *,
    rates: Sequence[float],
    rate: float,
    trials: int,
    document_trials: int,
    document_seconds: float,
    ack_ms: float,
    heartbeat_ms: float,
    switching_ms: float,
    checkpoint_ms: float,
    handshake: bool,
    initial_window: int | None,
    scheme: str,
    slow_us: float,
    slow_rate: float,
    shares: Sequence[float],
    failing: Sequence[str],
    kills: int,
    seed: int,
) -> Parameters:
    """Refuse what the notebook cannot work with; return the system that it describes.

    A ValueError says the parameter, its value and what is wanted.
    """
    intervals: dict[str, Any] = {
        "ack_ms": ack_ms, "heartbeat_ms": heartbeat_ms, "switching_ms": switching_ms,
        "checkpoint_ms": checkpoint_ms,
    }  # fmt: skip
    for name, value in intervals.items():
        require_number(name, value, least=0.1, most=10_000)
    counts = {"trials": (trials, 2), "document_trials": (document_trials, 2), "kills": (kills, 1)}
    for name, (count, least) in (counts | {"seed": (seed, 0)}).items():
        require_number(name, count, least=least, whole=True)
    for name, value in {"rate": rate, "slow_us": slow_us, "slow_rate": slow_rate}.items():
        require_number(name, value, above=0)
    require_number("document_seconds", document_seconds, above=0, most=300)
    require_numbers("rates", rates, above=0)
    require_numbers("shares", shares, above=0, below=1)
    if not isinstance(handshake, bool):
        raise ValueError(f"handshake must be True or False, got {handshake!r}")
    scheme_named(scheme)
    if not (isinstance(failing, list) and failing and all(node in NODES for node in failing)):
        raise ValueError(f"failing must name {' or '.join(NODES)}, once or more, got {failing!r}")

    # together: links and nodes must bear each rate, and a turn must hold a tuple
    tcp = Tcp(handshake=handshake, initial_window=initial_window)
    slow = {"rate": slow_rate, "secondary_us": slow_us}
    systems: list[tuple[str, dict[str, Any]]] = [
        *(("rates", {"rate": value}) for value in rates),
        *(("slow_rate, slow_us or shares", slow | {"share": share}) for share in shares),
        ("rate", {"rate": rate}),
    ]
    for name, changed in systems:
        try:
            system = Parameters(**intervals, tcp=tcp, **changed)
        except ValueError as error:
            raise ValueError(f"{name}: with {changed}, {error}") from error
    return system
