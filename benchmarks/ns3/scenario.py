"""Compile and run the ns-3 scenario, where ns-3 is installed."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

import pandas as pd

from aftlib.upstream_backup.parameters import MS, NODES, Link, Parameters, Phases
from aftlib.upstream_backup.schemes import Scheme

SOURCE = Path(__file__).with_name("standby.cc")
LIBRARIES = ("point-to-point", "internet", "traffic-control", "bridge", "stats", "network", "core")
HEADER = Path("ns3/core-module.h")
OPTIONS = {
    **{name: f"{name}_ms" for name in ("ack", "heartbeat", "switching", "checkpoint", "write")},
    **{name: f"{name}_bytes" for name in ("tuple", "message", "state")},
    **{"rate": "rate", "processing": "processing_us"},
}
"""Options of the scenario that are attributes of the parameters."""
INCLUDES = (Path("/usr/include"), Path("/usr/local/include"), Path("/opt/homebrew/include"))


def missing() -> str | None:
    """What is missing to run ns-3 here, as a sentence with the way out; None if nothing."""
    if shutil.which("g++") is None:
        return "no g++ on the PATH: install a C++ compiler"
    if not any((folder / HEADER).exists() for folder in INCLUDES):
        return "no ns-3 headers: install ns-3 3.37 or newer (Debian, Ubuntu: package libns3-dev)"
    return None


@dataclass(frozen=True)
class Scenario:
    """The compiled scenario."""

    program: Path

    @classmethod
    def compiled(cls, directory: Path) -> Scenario:
        """Compile the scenario into a directory.

        A FileNotFoundError when the compiler or ns-3 is missing, a RuntimeError when it does not
        compile.
        """
        if lacks := missing():
            raise FileNotFoundError(lacks)
        program = directory / "standby"
        libraries = [f"-lns3-{name}" for name in LIBRARIES]
        _done(["g++", "-std=c++17", "-O2", "-o", str(program), str(SOURCE), *libraries])
        return cls(program)

    def run(
        self,
        parameters: Parameters,
        scheme: Scheme,
        failures_ms: Sequence[float],
        phases: Sequence[Phases] | None = None,
        nagle: bool = False,
        delayed_acks: int = 1,
        failed: str = "primary",
    ) -> pd.DataFrame:
        """One run of a node's failure at each time, of as many systems that differ in `phases`.

        `phases`: one a failure, by default those of the parameters. `nagle`: on all connections.
        `delayed_acks`: segments a TCP acknowledgement. `failed`: the node that dies.

        Columns: failure_ms, queue_at_crash, resent, recovery_ms, caught_up_ms, and the bytes a
        second on all links until the crash, of stream, copies, acks, checkpoints, heartbeats
        (…_bps). A ValueError for what the scenario does not have, a RuntimeError when ns-3 stops
        with an error, as where a node is taken for dead before it died.
        """
        link, tcp, speeds = parameters.link, parameters.tcp, (None, parameters.processing_us)
        for name, value, known, why in (
            ("header_bytes", link.header_bytes, (Link().header_bytes,), "its TCP makes them"),
            ("share", parameters.share, (0.5,), "its turns are even"),
            ("secondary_us", parameters.secondary_us, speeds, "its nodes are of one speed"),
            ("failed", failed, NODES if scheme.switching else NODES[:1], "no other node works"),
        ):
            if value not in known:
                wanted = " or ".join(map(str, known))
                raise ValueError(f"{name} must be {wanted} with ns-3, got {value!r}: {why}")

        drawn = phases or [parameters.phases] * len(failures_ms)
        trials = []
        for time, one in zip(failures_ms, drawn, strict=True):
            system = replace(parameters, phases=one)
            begins = [system.cycle(f.name)[1] / MS for f in fields(Phases)]
            trials.append(":".join(f"{value:.6f}" for value in (time, *begins)))
        options = {option: getattr(parameters, name) for option, name in OPTIONS.items()} | {
            "scheme": re.sub(r"[ ()]+", "-", scheme.name).strip("-").lower(),
            "failed": failed, "trials": ",".join(trials),
            "bandwidth": link.bandwidth_mbps, "delay": link.delay_ms,
            "segment": parameters.tuples_per_segment * parameters.tuple_bytes,
            "initialWindow": tcp.initial_window or 1_000_000, "handshake": int(tcp.handshake),
            "nagle": int(nagle), "delayedAcks": delayed_acks,
        }  # fmt: skip
        said = _done([str(self.program), *(f"--{name}={value}" for name, value in options.items())])
        return pd.read_csv(io.StringIO(said))


def _done(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed: {done.stderr.strip()[-2000:] or 'no message'}")
    return done.stdout
