"""Common parts of all pages: Jinja templates, texts of values, times, verdicts and notes."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from aftlib.workbench.claims import VERDICTS, Value

_PACKAGES = ("workbench", "reports")
TEMPLATES = [Path(__file__).parents[1] / package / "templates" for package in _PACKAGES]
SYMBOLS = {"holds": "✔", "deviates": "✘", "undecided": "≈", "not run": "○"}
MOST_WORDS = 25  # of a note's first part; the rest is folded


def render(template: str, **values: Any) -> str:
    """Return a page made from `template`; texts are escaped unless marked as HTML."""
    loader = jinja2.FileSystemLoader(TEMPLATES)
    environment = jinja2.Environment(
        loader=loader, autoescape=template.endswith(".html.j2"), undefined=jinja2.StrictUndefined
    )
    literal = partial(json.dumps, ensure_ascii=False, default=str)
    functions: list[Any] = [asset, count_text, duration, not_default, reading_counts, shown]
    functions += [shown_interval, slug, start_time, tally, why_and_rest]
    named = {each.__name__: each for each in functions}
    environment.filters |= named | {"literal": literal}
    environment.globals |= named | {"symbols": SYMBOLS}
    return environment.get_template(template).render(values)


def asset(name: str) -> Markup:
    """Return a style sheet or script of the templates folder, unescaped."""
    return Markup((TEMPLATES[1] / name).read_text(encoding="utf-8"))


def slug(text: str) -> str:
    """Return the anchor of a heading."""
    return re.sub(r"\W+", "-", re.sub(r"<[^>]+>|&\w+;", "", text)).strip("-").lower()


def start_time(record: Mapping[str, Any]) -> str:
    """Return when the run of `record` began, as ``2026-03-01 14:05 UTC``."""
    return f"{datetime.fromisoformat(record['started']):%Y-%m-%d %H:%M} UTC"


def duration(seconds: float) -> str:
    """Return a duration in words.

    >>> [duration(seconds) for seconds in (7.6, 65, 3725)]
    ['8 s', '1 min 05 s', '1 h 02 min']
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def shown(value: Value) -> str:
    """Return a value as text: four digits of a float, grouped thousands, a dash for None.

    >>> [shown(value) for value in (None, "≤ 1", 12345, 0.049123, 1e-9)]
    ['–', '≤ 1', '12,345', '0.04912', '1e-09']
    """
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def shown_interval(interval: tuple[float, float] | None) -> str:
    """Return an interval as text, a dash for None.

    >>> shown_interval((0.0412345, 2.0)), shown_interval(None)
    ('[0.04123, 2]', '–')
    """
    return "–" if interval is None else f"[{shown(interval[0])}, {shown(interval[1])}]"


def tally(verdicts: Iterable[str]) -> dict[str, int]:
    """Return how many claims have each verdict, zeros included."""
    counts = Counter(verdicts)
    return {verdict: counts[verdict] for verdict in VERDICTS}


def count_text(verdict: str, count: int) -> str:
    """Return a count of verdicts such as ``✔ 5 hold``."""
    plural = {"holds": "hold", "deviates": "deviate"}
    word = plural.get(verdict, verdict) if count > 1 else verdict
    return f"{SYMBOLS[verdict]} {count} {word}"


def reading_counts(readings: Mapping[str, str], what: str = "Other readings") -> str:
    """Return how the verdicts under other readings, or of parts, are distributed.

    >>> reading_counts({"by all traffic": "0.34, deviates", "by the input": "1.02, holds"})
    'Other readings: 1 holds, 1 deviates'
    """
    counts = tally(reading.rpartition(", ")[2] for reading in readings.values())
    shown = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
    return f"{what}: {shown}"


def not_default(changed: Mapping[str, Any]) -> list[str]:
    """Return one text for each parameter whose value is not that of its profile."""
    texts = {name: json.dumps(v, ensure_ascii=False, default=str) for name, v in changed.items()}
    short = {name: t if len(t) <= 40 else f"{t[:38]} …" for name, t in texts.items()}
    return [f"{name} = {text}, not the default" for name, text in short.items()]


def values_of(record: Mapping[str, Any]) -> str:
    """Return a run's profile, section and values that are not the defaults, as text."""
    own = [f"profile {record['profile']}"] * bool(record["profile"])
    own += [f"section {record['section']!r}"] if record.get("section") else []
    return " ".join([*own, *(f"{name}={value}" for name, value in record["changed"].items())])


def why_and_rest(note: str) -> tuple[str, str]:
    """Return a note's first sentence, cut at a comma when it has over 25 words, and the rest.

    >>> why_and_rest("Most at 8 tasks. The others had 2 cores.")
    ('Most at 8 tasks.', 'The others had 2 cores.')
    """
    why, _, rest = re.sub(r"([.!?]) +(?=[A-Z])", r"\1\n", note.strip(), count=1).partition("\n")
    parts = re.split(r"(?<=[,;:]) ", why)
    lengths = [_words(parts[: count + 1]) for count in range(len(parts))]
    fitting = sum(length <= MOST_WORDS for length in lengths)
    if 0 < fitting < len(parts):
        rest = " ".join(["…", *parts[fitting:], rest]).strip()
        why = " ".join(parts[:fitting]).rstrip(",;:") + " …"
    return why, rest


def _words(parts: Sequence[str]) -> int:
    return len(" ".join(parts).split())
