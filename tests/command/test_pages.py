"""Parts of a report: its tables."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pandas as pd

from aftlib.command.documents import Document
from aftlib.command.pages import list_parameters, mark_text_columns
from tests import tiny_package


def test_a_page_lists_the_given_values_and_the_defaults_of_the_others():
    run = SimpleNamespace(record={"parameters": {"m": 3}})
    tiny = Document("D1", "Tiny", "nobody", "01_tiny", tiny_package)
    listed = {name: value for name, value, _ in list_parameters(run, tiny)}
    assert listed == {"m": "3", "epsilons": "[0.65, 0.7]", "path": "null"}


def test_columns_of_texts_are_marked_together_with_their_headings():
    frame = pd.DataFrame(
        {
            "who": ["a &amp; b", "3"],
            "n": ["1,000", "–"],
            "share": ["−87.5 %", "9 % [7, 11]"],
            "rate": ["∞", "5"],
        },
    )
    table = mark_text_columns(frame.style.hide(axis="index").to_html())
    marked = re.findall(r"<(t[dh])[^>]*aft-text[^>]*>(.*?)</", table)
    assert marked == [("th", "who"), ("td", "a &amp; b"), ("td", "3")]
    assert re.sub(" aft-text", "", table).count("<td") == 8
