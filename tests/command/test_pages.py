"""Parts of a report: its tables."""

from __future__ import annotations

import re

import pandas as pd

from aftlib.command.pages import mark_text_columns


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
