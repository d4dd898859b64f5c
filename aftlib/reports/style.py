"""One look for all figures: colours that the colour-blind can tell apart, readable axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

BLUE, GREEN, ORANGE = "#0072B2", "#009E73", "#E69F00"
PURPLE, GREY, RED = "#CC79A7", "#7A7A7A", "#D55E00"
HEIGHT = 430


def styled(figure: go.Figure, title: str, x: str, y: str, height: int = HEIGHT) -> go.Figure:
    """Give a figure its title, axis titles and the common look; returns the same figure."""
    figure.update_layout(
        title={"text": title, "x": 0, "xanchor": "left", "font": {"size": 17}},
        template="plotly_white",
        height=height,
        margin={"l": 70, "r": 20, "t": 70, "b": 60},
        font={"family": "system-ui, sans-serif", "size": 13},
        hovermode="x unified",
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 1, "xanchor": "right"},
    )
    figure.update_xaxes(title_text=x, showline=True, linecolor="#999", ticks="outside")
    figure.update_yaxes(title_text=y, showline=True, linecolor="#999", ticks="outside")
    return figure


def with_slider(
    figure: go.Figure, label: str, frames: Mapping[str, Sequence[Mapping]], active: int
) -> go.Figure:
    """Add a slider that exchanges the data of all traces and leaves the legend's choices alone.

    `label` says what it chooses; `frames` has for each position the new attributes of every trace,
    in the traces' order, and the figure shows number `active` of them. Returns the same figure.
    """
    steps = []
    for name, traces in frames.items():
        keys = traces[0].keys()
        arguments = {key: [trace[key] for trace in traces] for key in keys}
        steps.append({"label": name, "method": "restyle", "args": [arguments]})
    slider = {
        "active": active,
        "currentvalue": {"prefix": f"{label} = ", "font": {"size": 14}},
        "pad": {"t": 50, "r": 30},
        "steps": steps,
    }
    figure.update_layout(sliders=[slider], height=HEIGHT + 90)
    return figure
