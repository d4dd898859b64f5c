"""The standby schemes: the three of Hwang et al. with a WAN variant, and D4's proposal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from aftlib.core.checks import require_choice


@dataclass(frozen=True)
class Scheme:
    """One standby scheme.

    `trimmed_by` names what removes tuples from the queue. "ack": level-0 and level-1 ACKs.
    "checkpoint": the secondary's message once it has a checkpoint. "copy": nothing, because each
    result is sent twice anyway (WAN).
    """

    name: str
    both: bool = False  # both nodes process every tuple (active standby); else one of them
    switching: bool = False  # upstream alternates between the nodes; else the primary gets all
    trimmed_by: Literal["ack", "checkpoint", "copy"] = "ack"
    opens: bool = False  # the connection that recovery needs is opened at recovery only
    warm: bool = False  # this connection has carried data before, so its window is open


PASSIVE = Scheme("passive standby", trimmed_by="checkpoint")
UPSTREAM = Scheme("upstream backup", opens=True)
ACTIVE = Scheme("active standby", both=True, opens=True)
ACTIVE_WAN = Scheme("active standby (WAN)", both=True, trimmed_by="copy", warm=True)
PROPOSED = Scheme("proposed", switching=True, warm=True)
SCHEMES = {scheme.name: scheme for scheme in (PASSIVE, UPSTREAM, ACTIVE, ACTIVE_WAN, PROPOSED)}


def scheme_named(name: str) -> Scheme:
    """The scheme with the given name; ValueError if no scheme has it."""
    require_choice("scheme", name, SCHEMES)
    return SCHEMES[name]
