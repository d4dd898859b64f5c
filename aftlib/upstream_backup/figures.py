"""Figures of D4."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, groupby, pairwise

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from aftlib.upstream_backup.parameters import MS, NODES
from aftlib.upstream_backup.recursion import Simulated
from aftlib.upstream_backup.routes import NEVER, Route, acknowledged, checkpointed, stored_results
from aftlib.workbench.style import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    RED,
    line_figure,
    line_look,
    named,
    styled,
    with_slider,
)

LOOK = {
    "passive standby": line_look(ORANGE, "triangle-up", "dash"),
    "upstream backup": line_look(RED, "square", "dot"),
    "active standby": line_look(GREEN, "diamond", "dashdot"),
    "active standby (WAN)": line_look(PURPLE, "x", "longdash"),
    "proposed": line_look(BLUE),
}
_BESIDE = {"orientation": "v", "x": 1.02, "xanchor": "left", "y": 1, "yanchor": "top"}
AFTER_MS = 25  # time drawn after the last tuple of a recovery
_PLACES = {"upstream": 0, "primary": 1, "secondary": 2, "downstream": 3}
_KINDS: Mapping[str, tuple[str, str, tuple[str, ...]]] = {
    "tuples": (BLUE, "solid", ("data",)),
    "results": (GREEN, "solid", ("result",)),
    "ACKs": (GREY, "dot", ("ACK 0", "ACK 1")),
    "heartbeats": (PURPLE, "dot", ("heartbeat", "answer")),
    "request": (RED, "solid", ("request",)),
    "sent again": (RED, "dash", ("data, again", "result, again")),
}
HEADINGS = {
    "rate": "tuples per second",
    "ratio": "proposed / upstream backup",
    "mean": "mean difference",
    "switch": "setting of TCP",
    "initial_window": "initial window",
    "nagle_adds": "added by Nagle's algorithm",
    "gap_with_nagle": "gap with Nagle's algorithm",
    "window_1_adds": "added by a window of one segment",
    "resent": "tuples sent again",
    "reprocessed": "tuples processed again",
    "recovery_ms": "recovery, ms",
    "restored_ms": "restored, ms",
    "caught_up_ms": "caught up, ms",
    "share_of_all": "overhead / all traffic",
    "relative": "overhead / stream without fault tolerance",
    "relative_to_input": "overhead / input",
    "share": "share of the faster primary",
    "primary_load": "load of the primary",
    "secondary_load": "load of the secondary",
    "wrong": "wrong results without sorting",
    "delay_ms": "mean delay by sorting, ms",
    "late": "results out of order",
    "waiting": "results held back",
    "longest_ms": "longest delay, ms",
    "failure_ms": "failure at, ms",
    "twice": "results sent twice",
    "requests": "requests for the queue",
    "unnoticed_ms": "until detected, ms",
    "unnoticed_ms_simulated": "until detected, simulated, ms",
    "resent_simulated": "tuples sent again, simulated",
    "recovery_ms_simulated": "recovery, simulated, ms",
    "duplicates": "results sent twice",
    "lost": "results lost",
}
"""Column headings of the notebook's tables."""


def _mark(scheme: Hashable, size: int, kind: str = "") -> dict:
    marker = LOOK[str(scheme)]["marker"]
    return marker | {"symbol": marker["symbol"] + kind, "size": size}


def _against_rate(
    frame: pd.DataFrame, measure: str, title: str, y: str, bounds: tuple[str, str] | None = None
) -> go.Figure:
    titles = title, "input rate (tuples/s, logarithmic)", y
    figure = line_figure(frame, "rate", measure, "scheme", LOOK, titles, bounds=bounds)
    ticks = sorted(frame["rate"].unique())
    texts = [f"{v / 1000:g}k" if v >= 1000 else f"{v:g}" for v in ticks]  # short: they lie close
    for place, (tick, above) in enumerate(pairwise(ticks)):
        if above < 1.5 * tick:
            texts[place] = ""
    figure.update_xaxes(type="log", tickvals=ticks, ticktext=texts)
    return figure.update_layout(legend=_BESIDE)


def by_rate(
    means: pd.DataFrame, measure: str, title: str, y: str, ns3: pd.DataFrame | None = None
) -> go.Figure:
    """A measure of `summary` against the input rate with intervals; ns-3's means as open marks.

    `ns3` is a frame of `against_ns3`; if it is empty, the title says that ns-3 has no such runs.
    """
    if ns3 is not None and ns3.empty:
        title += "; simulation only: ns-3 ran the default parameters"
    figure = _against_rate(means, measure, title, y, (f"{measure}_low", f"{measure}_high"))
    figure.for_each_trace(lambda line: line.update(legendgroup=line.name))
    for scheme, rows in ns3.groupby("scheme", sort=False) if ns3 is not None else ():
        if f"{measure}_ns3" not in rows or str(scheme) not in set(means["scheme"]):
            continue
        figure.add_scatter(
            x=rows["rate"], y=rows[f"{measure}_ns3"], name=f"{scheme}, ns-3", legendgroup=scheme,
            mode="markers", showlegend=scheme == "proposed", marker=_mark(scheme, 13, "-open"),
            error_y={"array": rows[f"{measure}_ns3_half"], "thickness": 0.8, "width": 8},
        )  # fmt: skip
    buttons = [
        {
            "label": label,
            "method": "relayout",
            "args": [{"yaxis.type": kind, "yaxis.autorange": True}],
        }
        for label, kind in (("linear", "linear"), ("logarithmic", "log"))
    ]
    menu = {
        "type": "buttons", "direction": "left", "buttons": buttons,
        "x": 0, "xanchor": "left", "y": -0.2, "yanchor": "top",
    }  # fmt: skip
    return figure.update_layout(updatemenus=[menu], margin={"b": 100}, height=480)


def tcp_parts(parts: pd.DataFrame, title: str) -> go.Figure:
    """Upstream backup's recovery time with each part of TCP changed, one colour per rate."""
    figure = go.Figure()
    colors = cycle([BLUE, GREEN, ORANGE, PURPLE, GREY, RED])
    means = parts.groupby(["rate", "switch"], sort=False)["ns3_ms"].mean().reset_index()
    for (rate, rows), color in zip(means.groupby("rate"), colors, strict=False):
        name, mark = f"{rate:,.0f} tuples/s", {"color": color}
        figure.add_bar(x=rows["switch"], y=rows["ns3_ms"], name=name, marker=mark)
    styled(figure, title, "setting of TCP", "recovery time (ms, ns-3)")
    return figure.update_layout(barmode="group", legend=_BESIDE)


def real_kills(kills: pd.DataFrame, title: str) -> go.Figure:
    """Tuples sent again and recovery times of real kills, by the time until detection."""
    shown = {"resent": "tuples sent again", "recovery_ms": "recovery time (ms)"}
    figure = make_subplots(cols=2, horizontal_spacing=0.12)
    for scheme, rows in kills.groupby("scheme", sort=False):
        for of, name, mark in (
            ("", "processes", _mark(scheme, 10)),
            ("_simulated", "simulated means", _mark(scheme, 15, "-open")),
        ):
            for col, column in enumerate(shown, 1):
                figure.add_scatter(
                    x=rows[f"unnoticed_ms{of}"], y=rows[f"{column}{of}"], col=col, row=1,
                    name=f"{scheme}: {name}", showlegend=col == 1, mode="markers", marker=mark,
                )  # fmt: skip
    first, second = shown.values()
    styled(figure, title, "from the kill until the request (ms)", first)
    figure.update_yaxes(rangemode="tozero").update_yaxes(title_text=second, col=2)
    below = {"orientation": "h", "x": 0, "xanchor": "left", "y": -0.2, "yanchor": "top"}
    return figure.update_layout(hovermode="closest", legend=below)


def by_share(recoveries: pd.DataFrame, matching: float, title: str) -> go.Figure:
    """Recovery time against the primary's share of the stream, by the node that fails."""
    looks = {node: line_look(color) for node, color in zip(NODES, (BLUE, ORANGE), strict=True)}
    titles = title, "primary's share of the tuples", "recovery time (ms)"
    figure = line_figure(recoveries, "share", "recovery_ms", "failed", looks, titles)
    figure.for_each_trace(lambda line: line.update(name=f"the {line.name} fails"))
    figure.add_annotation(  # along the line: at its end it would widen the axis
        x=matching, y=0.5, yref="paper", text="both nodes loaded alike", textangle=-90,
        showarrow=False, xanchor="right",
    )  # fmt: skip
    return figure.add_vline(matching, line={"color": GREY, "dash": "dash"})


def overhead(costs: pd.DataFrame, column: str, title: str, y: str) -> go.Figure:
    """Bandwidth overhead against the input rate, by scheme."""
    figure = _against_rate(costs, column, title, y)
    return figure.update_yaxes(tickformat=".0%", rangemode="tozero")


def sequence(run: Simulated, title: str, begin_ms: float, every_ms: float = 5.0) -> go.Figure:
    """Time–sequence diagram of a recovery from `begin_ms` on, stepped through with the slider."""
    recovery, arrows = run.recoveries[0], messages(run)
    downtime = recovery.downtime
    # soon after the last tuple that was sent again, everything is as before the failure
    over = max([downtime.request, *recovery.done, *recovery.delivered]) + AFTER_MS * MS
    arrows = [one for one in arrows if one.arrived <= over] or arrows
    end_ms = arrows[-1].arrived / MS
    steps = [begin_ms + i * every_ms for i in range(1, int((end_ms - begin_ms) / every_ms) + 2)]
    frames = {f"{now:g} ms": _drawn(run, arrows, begin_ms, now) for now in steps}
    active = min(range(len(steps)), key=lambda i: abs(steps[i] - downtime.request / MS - every_ms))
    figure, first = go.Figure(), [*frames.values()][active]
    for (name, (color, dash, _)), shown in zip(_KINDS.items(), first, strict=False):
        figure.add_scatter(
            **shown, name=name, mode="lines+markers", hoverinfo="skip",
            line={"color": color, "dash": dash, "width": 1.6},
            marker={"symbol": "arrow", "angleref": "previous", "size": 9, "color": color},
        )  # fmt: skip
    for shown, place, size in zip(
        first[-2:], ("top center", "middle right"), (11, 14), strict=True
    ):
        figure.add_scatter(
            **shown, mode="text", showlegend=False, textposition=place, textfont={"size": size},
            hoverinfo="skip",
        )  # fmt: skip

    named(styled(figure, title, "", "time (ms)"), x="place of the node")
    victim, crash = _PLACES[downtime.failure.node], downtime.crash / MS
    for x in _PLACES.values():
        stop = crash if x == victim else end_ms
        figure.add_shape(type="line", x0=x, x1=x, y0=begin_ms, y1=stop, line={"color": "#bbb"})
    font = {"color": RED, "size": 15}
    figure.add_annotation(x=victim, y=crash, text="✘ crash", showarrow=False, font=font,
                          bgcolor="#fff")  # fmt: skip
    figure.update_xaxes(tickvals=[*_PLACES.values()], ticktext=[*_PLACES], range=[-0.35, 3.35])
    figure.update_xaxes(showgrid=False)
    figure.update_yaxes(range=[end_ms, begin_ms - 14])
    figure.update_layout(hovermode=False)
    figure.update_layout(meta={"least": 640})  # pixels: on a phone it is scrolled
    return with_slider(figure, "time", frames, active).update_layout(height=820)


def _drawn(
    run: Simulated, arrows: Sequence[Message], begin_ms: float, now_ms: float
) -> list[dict[str, list]]:
    """Data of every trace at the time `now_ms`: messages until then, their tuples, and the queues.

    An arrow is drawn as far as its message has travelled; None separates two arrows.
    """
    numbers: dict[str, list] = {"x": [], "y": [], "text": []}
    lines: dict[str, dict[str, list]] = {name: {"x": [], "y": [], "text": []} for name in _KINDS}
    kinds = {kind: name for name, (_, _, kinds) in _KINDS.items() for kind in kinds}
    for one in arrows:
        sent, arrived, line = one.sent / MS, one.arrived / MS, lines[kinds[one.kind]]
        if not begin_ms <= sent <= now_ms:
            continue
        share = min(1.0, (now_ms - sent) / (arrived - sent))
        begin, end = _PLACES[one.source], _PLACES[one.target]
        line["x"] += [begin, begin + share * (end - begin), None]
        line["y"] += [sent, sent + share * (arrived - sent), None]
        if one.tuples:  # above arrows to the right, below arrows to the left, each place once
            x, y = (begin + 0.12, sent) if end > begin else (begin - 0.12, sent + 4)
            if (x, y) not in zip(numbers["x"], numbers["y"], strict=True):
                numbers["x"].append(x)
                numbers["y"].append(y)
                numbers["text"].append(", ".join(map(str, one.tuples)))
    queues = {name: queued_tuples(run, name, round(now_ms * MS)) for name in NODES}
    text = "   ".join(
        f"kept for the {name}: {', '.join(map(str, ids)) or '–'}" for name, ids in queues.items()
    )
    return [*lines.values(), numbers, {"x": [-0.3], "y": [begin_ms - 9], "text": [text]}]


@dataclass(frozen=True, order=True)
class Message:
    """One message between nodes; times in nanoseconds.

    Kinds: "data", "result" (both with ", again" if sent again), "ACK 0", "ACK 1",
    "heartbeat", "answer", "request". Checkpoint messages are not drawn.
    """

    arrived: int
    sent: int
    kind: str
    source: str
    target: str
    tuples: tuple[int, ...] = ()  # that it carries or acknowledges


def messages(run: Simulated) -> list[Message]:
    """Every message of a simulated stream, in order of arrival."""
    hop, sent = run.parameters.hop_ns, list[Message]()
    for route in run.routes:
        sent += _carried(run, route)
        sent += _acknowledgements(run, route) if run.scheme.trimmed_by == "ack" else ()
    every, phase = run.parameters.cycle("heartbeat")
    for beat in range(phase, run.until, every):
        for monitor, target in (NODES, NODES[::-1]):
            if _is_up(run, monitor, beat):
                sent.append(Message(beat + hop, beat, "heartbeat", monitor, target))
            there = beat + hop
            if _is_up(run, monitor, there) and _is_up(run, target, there):
                sent.append(Message(there + hop, there, "answer", target, monitor))
    for at in (recovery.downtime for recovery in run.recoveries):
        sent.append(Message(at.request, at.detected, "request", at.failure.other, "upstream"))
    return sorted(sent)


def queued_tuples(run: Simulated, node: str, time: int) -> tuple[int, ...]:
    """Tuples in the queue kept for a node's failure, at a time in nanoseconds.

    In active standby the secondary keeps results for the primary's failure.
    """
    if run.scheme.both:
        taken_over = any(time >= r.downtime.detected for r in run.recoveries)
        keeps = run.scheme.trimmed_by == "ack" and _is_up(run, NODES[1], time)
        if node != NODES[0] or taken_over or not keeps:
            return ()
        primary, secondary = run.routes
        return tuple(range(*stored_results(run.parameters, primary, secondary, time + 1)))
    for route in run.routes:
        if route.feed.node == node and route.feed.begin <= time < route.feed.end:
            if run.scheme.trimmed_by == "ack":
                first = acknowledged(run.parameters, route, time)
            else:  # a secondary sends no checkpoints
                first = checkpointed(run.parameters, route, time) if node == NODES[0] else 0
            return tuple(route.feed.ids[first : route.queued_before(time + 1)].tolist())
    return ()


def _is_up(run: Simulated, node: str, time: int) -> bool:
    downs = (r.downtime for r in run.recoveries if r.downtime.failure.node == node)
    return not any(d.crash <= time < (NEVER if run.scheme.both else d.back) for d in downs)


def _carried(run: Simulated, route: Route) -> Iterator[Message]:
    """Messages of segments to a node and of its results; tuples sent again have messages apart."""
    node, ids, delay = route.feed.node, route.feed.ids.tolist(), run.parameters.link.delay_ns
    again = route.feed.queued > run.written[route.feed.ids]
    known = again
    if run.scheme.both and run.recoveries and node == NODES[1]:
        known = np.isin(route.feed.ids, run.recoveries[0].resent)  # its results only
    hops = (
        ("data", "upstream", node, route.sent, again),
        ("result", node, "downstream", route.delivered - delay, known),
    )
    for kind, source, target, times, repeated in hops:
        tuples = zip(times.tolist(), repeated.tolist(), ids, strict=True)
        for (sent, twice), group in groupby(tuples, key=lambda one: one[:2]):
            if sent < NEVER - delay:
                name = f"{kind}, again" if twice else kind
                carried = tuple(i for *_, i in group)
                yield Message(sent + delay, sent, name, source, target, carried)


def _acknowledgements(run: Simulated, route: Route) -> Iterator[Message]:
    """Level-0 ACKs for new results of a node, and the ACKs that a working node forwards."""
    feed, hop = route.feed, run.parameters.hop_ns
    every, phase = run.parameters.cycle("ack")
    backs = (r.downtime.back for r in run.recoveries if r.downtime.request == feed.end)
    ticks = np.arange(every + phase, run.until + every, every)
    ticks = ticks[(ticks > feed.begin) & (ticks <= next(backs, NEVER))]

    arrived = route.delivered < NEVER
    counts = np.searchsorted(route.delivered[arrived], ticks, side="right")
    newest = np.maximum.accumulate(feed.ids[arrived])
    for tick, count, more in zip(ticks, counts, np.diff(counts, prepend=0) > 0, strict=True):
        if not more:
            continue
        heard, named = int(tick) + hop, (int(newest[count - 1]),)
        yield Message(heard, int(tick), "ACK 0", "downstream", feed.node, named)
        if heard < feed.crash and not (run.scheme.both and feed.node == NODES[1]):
            to = NODES[1] if run.scheme.both else "upstream"
            yield Message(heard + hop, heard, "ACK 1", feed.node, to)
