"""The data of Plotly figures: as a tidy CSV, or for each choice of their slider or menu."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from aftlib.core.checks import require_choice
from aftlib.reports.data_out import frame_csv

_COORDINATES = ("x", "y", "z", "r", "theta", "labels", "values")


def figure_csv(figure: Mapping[str, Any], series: Sequence[str] = ()) -> str:
    """Return the data of a Plotly figure as CSV: one row per point and position of its slider.

    If `series` has names, the CSV has only the traces of these names. The columns are the panel (if
    there are several), the series, the choice of the slider or menu, the coordinates, named by
    their axes, and the bounds of error bars, as values. An axis is named by its title or by
    ``columns`` of the layout's ``meta``.
    """
    import pandas as pd

    parts, layout = [pd.DataFrame()], figure.get("layout", {})
    places = [(t.get("xaxis") or "x", t.get("yaxis") or "y") for t in figure.get("data", [])]
    for choice, traces in states(figure):
        for called, trace in with_names(traces, series):
            columns = _columns(trace, layout)
            if length := max(map(len, columns.values()), default=0):
                values = {name: pd.Series(column, dtype=object) for name, column in columns.items()}
                about: dict[str, Any] = (
                    {"panel": _panel(layout, trace)} if len({*places}) > 1 else {}
                )
                about |= {"series": called} | choice | values
                parts.append(pd.DataFrame(about, range(length), dtype=object))
    return frame_csv(pd.concat(parts, ignore_index=True))


def with_names(
    traces: Sequence[Mapping[str, Any]], chosen: Sequence[str] = ()
) -> list[tuple[str, Mapping[str, Any]]]:
    """Return traces with their names; if `chosen` has names, only these (ValueError if unknown)."""
    names = [
        plain_text(str(trace.get("name") or f"series {number}"))
        for number, trace in enumerate(traces, 1)
    ]
    for name in chosen:
        require_choice("series", name, dict.fromkeys(names))
    named = zip(names, traces, strict=True)
    return [(name, trace) for name, trace in named if name in (chosen or names)]


def _axes(layout: Mapping[str, Any], trace: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the layout's x and y axis of a trace, by letter."""
    names = {letter: f"{letter}axis{str(trace.get(f'{letter}axis') or '')[1:]}" for letter in "xy"}
    return {letter: layout.get(name) or {} for letter, name in names.items()}


def _panel(layout: Mapping[str, Any], trace: Mapping[str, Any]) -> str:
    """Return the title above a trace's panel, or above its column; else the panel's axes."""
    axes = _axes(layout, trace)
    left, right = axes["x"].get("domain", (0, 1))
    top = axes["y"].get("domain", (0, 1))[1]
    titles = [
        (abs(text["y"] - top), plain_text(text.get("text", "")))
        for text in layout.get("annotations") or []
        if text.get("xref") == text.get("yref") == "paper" and left <= text["x"] <= right
        if text["y"] >= top - 1e-9
    ]
    return min(titles)[1] if titles else f"{trace.get('xaxis', 'x')} {trace.get('yaxis', 'y')}"


def states(figure: Mapping[str, Any]) -> Iterator[tuple[dict[str, str], list[dict[str, Any]]]]:
    """Yield each choice of the figure's slider or menu, by its name, with the traces it shows."""
    layout, data = figure.get("layout", {}), list(figure.get("data", []))
    sliders, menus = layout.get("sliders") or [], layout.get("updatemenus") or []
    choices = [s.get("steps", []) for s in sliders] + [m.get("buttons", []) for m in menus]
    prefix = sliders[0].get("currentvalue", {}).get("prefix", "") if sliders else ""
    name = plain_text(prefix).rstrip("=: ") or "choice"
    steps = [step for step in (choices or [[]])[0] if step.get("method") in ("restyle", "update")]
    if not steps:
        yield {}, data
    for step in steps:
        changes, *where = step.get("args") or [{}]
        named = (which for which in where if isinstance(which, list | int))  # `update` has a layout
        which = next(named, range(len(data)))
        traces = [dict(trace) for trace in data]
        for attribute, values in changes.items():
            for position, trace in enumerate([which] if isinstance(which, int) else which):
                if not isinstance(values, list | tuple):  # one for all
                    traces[trace][attribute] = values
                elif values:
                    traces[trace][attribute] = values[position % len(values)]
        label = plain_text(str(step.get("label", "")))
        yield {name: label}, [trace for trace in traces if trace.get("visible", True)]


def at_label(figure: Mapping[str, Any], at: str | None = None) -> tuple[dict[str, Any], str]:
    """Return a Plotly figure with its slider or menu at the label `at`, and that position in words.

    The words are such as ``ε = 0.12``, or empty without slider and menu. Without `at` the position
    is the one where the slider or menu begins. ValueError when there is no such label.
    """
    positions = [(name, label, traces) for s, traces in states(figure) for name, label in s.items()]
    layout = figure.get("layout", {})
    if not positions and at is None:
        return dict(figure), ""
    if not positions:
        raise ValueError(f"the figure has no slider or menu to be set, got {at!r}")
    begin = [*(layout.get("sliders") or []), *(layout.get("updatemenus") or [])][0].get("active", 0)
    labels = [label for _, label, _ in positions]
    if at is not None and at not in labels:
        raise ValueError(f"{positions[0][0]} must be one of {', '.join(labels)}, got {at!r}")
    name, label, traces = positions[begin if at is None else labels.index(at)]
    for trace in traces:
        for attribute in [key for key in trace if "." in key]:  # as Plotly's restyle names them
            part, _, leaf = attribute.partition(".")
            trace[part] = {**(trace.get(part) or {}), leaf: trace.pop(attribute)}
    return {**figure, "data": traces}, f"{name} = {label}"


def _columns(trace: Mapping[str, Any], layout: Mapping[str, Any]) -> dict[str, list]:
    """Return the coordinates of a trace's points by title; some columns may be shorter."""
    arrays = {name: unpack(trace[name]) for name in _COORDINATES if trace.get(name) is not None}
    arrays = {name: values for name, values in arrays.items() if values.ndim}
    if "y" in arrays and trace.get("type", "scatter") == "scatter" and "x" not in arrays:
        arrays["x"] = (trace.get("x0") or 0) + (trace.get("dx") or 1) * np.arange(len(arrays["y"]))
    for axis in ("x", "y"):
        bars = {**(trace.get(f"error_{axis}") or {})}
        bars |= {k.split(".")[1]: v for k, v in trace.items() if k.startswith(f"error_{axis}.")}
        if bars.get("array") is not None and axis in arrays:
            above, middle = _numbers(unpack(bars["array"])), _numbers(arrays[axis])
            less = bars.get("arrayminus")
            below = above if less is None else _numbers(unpack(less))
            if len(above) == len(below) == len(middle):
                arrays[f"{axis} low"], arrays[f"{axis} high"] = middle - below, middle + above
    if "z" in arrays and arrays["z"].ndim == 2:
        height, width = arrays["z"].shape
        x, y = arrays.get("x", np.arange(width)), arrays.get("y", np.arange(height))
        if (len(x), len(y)) == (width, height):
            arrays = {"x": np.tile(x, height), "y": np.repeat(y, width), "z": arrays["z"].ravel()}
            text = unpack(trace.get("text") or [])  # written into the cells
            if text.shape == (height, width):
                arrays["text"] = text.ravel()
    names = {letter: _title(layout, letter, trace) for letter in "xyz"}
    names |= {"x": "x", "y": "y"} if names["x"] == names["y"] else {}
    return {
        f"{names[name[0]]}{name[1:]}" if name[:1] in names else name: [
            plain_text(value) if isinstance(value, str) else value for value in values.tolist()
        ]
        for name, values in arrays.items()
        if values.ndim == 1
    }


def _title(layout: Mapping[str, Any], letter: str, trace: Mapping[str, Any]) -> str:
    """Return a trace's axis name: its title, or that of an axis in the same place, or a letter."""
    if letter == "z":
        near: list[Any] = [(trace.get("colorbar") or {})]
    else:
        own = _axes(layout, trace)[letter]
        every = [layout[name] or {} for name in sorted(layout) if re.match(f"{letter}axis", name)]
        near = [own, *(axis for axis in every if axis.get("domain") == own.get("domain"))]
    titles = [axis.get("title") or "" for axis in near]
    texts = [plain_text(t if isinstance(t, str) else t.get("text") or "") for t in titles]
    text = next(filter(None, texts), (layout.get("meta") or {}).get("columns", {}).get(letter, ""))
    text = re.sub(r"[ (,]+logarithmic\)$", lambda match: ")" * ("," in match[0]), text)
    return text if text not in ("", "panel", "series", "choice") else letter


def unpack(values: Any) -> np.ndarray:
    """Return an array of a figure, which Plotly may have packed as ``{dtype, bdata, shape}``."""
    if not isinstance(values, Mapping):
        kinds = {type(value) for value in values} if isinstance(values, Sequence) else set()
        mixed = len(kinds - {int, float}) > 0 and kinds != {list}
        try:
            return np.array(values, dtype=object) if mixed else np.array(values)
        except ValueError:  # rows of unequal length
            return np.array(values, dtype=object)
    flat = np.frombuffer(base64.b64decode(values["bdata"]), dtype=np.dtype(values["dtype"]))
    shape = values.get("shape")
    return flat.reshape([int(n) for n in str(shape).split(",")]) if shape else flat


def _numbers(values: np.ndarray) -> np.ndarray:
    """Return an array as numbers, NaN for other values, such as dates."""
    import pandas as pd

    return pd.to_numeric(pd.Series(values, dtype=object), errors="coerce").to_numpy(float)


def plain_text(text: str) -> str:
    """Return a label without its markup."""
    return re.sub(r"<[^>]*>", "", re.sub(r"<br */?>", " ", text)).strip()
