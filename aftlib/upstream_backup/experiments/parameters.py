"""The parameters of notebook 04, and the system that they describe."""

from __future__ import annotations

from typing import Any, Self

from pydantic import model_validator

from aftlib.upstream_backup.parameters import NODES, Parameters, Tcp
from aftlib.upstream_backup.schemes import scheme_named
from aftlib.workbench.parameters import ParameterModel, parameter

INTERVAL: Any = {"least": 0.1, "most": 10_000}


class NotebookParameters(ParameterModel):
    """Parameters of notebook 04."""

    rates: list[int | float] = parameter(
        [200, 500, 1000, 2000, 5000, 10000, 15000, 20000],
        "tuples/s",
        above=0,
        smoke=[200, 1000, 20000],
    )
    rate: int | float = parameter(1000, "shown in the tables", above=0)
    trials: int = parameter(
        100, "failures at each rate, for intervals", least=2, smoke=10, full=200
    )
    document_trials: int = parameter(10, "the document's own number", least=2, smoke=2)
    document_seconds: int | float = parameter(
        30,
        "seconds until steady state; a node then fails within the same number of seconds",
        above=0,
        most=300,
        smoke=2,
    )
    ack_ms: float = parameter(25.0, "interval of level-0 ACKs", **INTERVAL)
    heartbeat_ms: float = parameter(100.0, "interval of heartbeats", **INTERVAL)
    switching_ms: float = parameter(100.0, "a node's turn in the proposal", **INTERVAL)
    checkpoint_ms: float = parameter(
        25.0,
        "interval of checkpoint messages (passive standby; not in the document)",
        **INTERVAL,
    )
    handshake: bool = parameter(
        True, "true: recovery opens connections that only it needs; false: they are open before"
    )
    initial_window: int | None = parameter(
        10, "segments that TCP sends before the first acknowledgement; null: no limit", least=1
    )
    scheme: str = parameter("proposed", "of the recovery to step through")
    slow_us: float = parameter(
        70.0, "time of a slower secondary per tuple, µs; the document's is 10 µs", above=0
    )
    slow_rate: int | float = parameter(
        12000, "tuples/s that a slower secondary is tried with", above=0
    )
    shares: list[float] = parameter(
        [0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.875],
        "of the tuples, to the faster primary",
        above=0,
        below=1,
        smoke=[0.3, 0.5, 0.875],
    )
    failing: list[str] = parameter(
        ["primary", "secondary", "primary", "primary"], "nodes that fail in a row"
    )
    kills: int = parameter(
        5,
        "of real processes, for upstream backup and for the proposal",
        least=1,
        smoke=2,
        full=50,
    )
    seed: int = parameter(1, "of the failure times", least=0)

    @model_validator(mode="after")
    def describe_systems(self) -> Self:
        """Refuse impossible systems: a link or node too slow for a rate, a turn without a tuple."""
        scheme_named(self.scheme)
        if not (self.failing and all(node in NODES for node in self.failing)):
            raise ValueError(
                f"failing must name {' or '.join(NODES)}, once or more, got {self.failing!r}"
            )
        slow = {"rate": self.slow_rate, "secondary_us": self.slow_us}
        systems: list[tuple[str, dict[str, Any]]] = [
            *(("rates", {"rate": value}) for value in self.rates),
            *(("slow_rate, slow_us or shares", slow | {"share": share}) for share in self.shares),
            ("rate", {"rate": self.rate}),
        ]
        for name, changed in systems:
            try:
                self._system(**changed)
            except ValueError as error:
                raise ValueError(f"{name}: with {changed}, {error}") from error
        return self

    @property
    def system(self) -> Parameters:
        """The system at the rate that the tables show."""
        return self._system(rate=self.rate)

    def _system(self, **changed: Any) -> Parameters:
        names = ("ack_ms", "heartbeat_ms", "switching_ms", "checkpoint_ms")
        tcp = Tcp(handshake=self.handshake, initial_window=self.initial_window)
        return Parameters(**{name: getattr(self, name) for name in names}, tcp=tcp, **changed)
