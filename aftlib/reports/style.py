"""One look for all figures, and their sliders."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

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

    `label` names the choice; `frames` has for each position the new attributes of every trace,
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


def is_live() -> bool:
    """Return whether this process is the kernel of a notebook that is open in JupyterLab.

    Its server names the notebook in the environment; papermill and nbconvert name none.
    """
    return bool(os.environ.get("JPY_SESSION_NAME"))


def explorable(draw: Callable[..., go.Figure], **controls: tuple[str, Sequence[Any], Any]) -> Any:
    """Return the figure that `draw` makes, in JupyterLab below a slider for each argument.

    Parameters
    ----------
    draw
        Called with one value per control, by name.
    **controls
        For each argument of `draw`: a label, the values to choose from, and the first value, which
        joins the others where it is missing.

    Returns
    -------
    widget or figure
        An ``ipywidgets.interactive`` that draws again whenever a slider is moved; the figure of the
        first values where no notebook is open, or ipywidgets is not installed.
    """
    first = {name: value for name, (_, _, value) in controls.items()}
    if not is_live():
        return draw(**first)
    try:
        from ipywidgets import SelectionSlider, interactive
    except ModuleNotFoundError:
        return draw(**first)
    sliders = {
        name: SelectionSlider(
            options=[(f"{option:g}", option) for option in sorted({*options, value})],
            value=value,
            description=label,
            continuous_update=False,
        )
        for name, (label, options, value) in controls.items()
    }
    return interactive(draw, {"auto_display": True}, **sliders)
