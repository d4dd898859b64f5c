"""Sentences of notebooks agree with their runs, whatever the parameters are.

A number may be typed into a notebook only if no parameter can change it: it stands in `STATED`,
with the reason. All others must come from the run, by `caption` or `prose`.
"""

from __future__ import annotations

import copy
import re
from pathlib import Path

import nbformat
import pytest

from aftlib.command.batch import Job, run_job
from aftlib.command.documents import DOCUMENTS
from tests.other_parameters import OTHER
from tests.prose import (
    computed,
    drawn_values,
    is_supported,
    numbers_in,
    outputs,
    shown_values,
    text_kind,
    typed_texts,
)

FOLDER = Path(__file__).parents[1] / "notebooks"
NAMES = [document.notebook for document in DOCUMENTS]
DOCUMENT = "the document's setting, and said to be"
FIXED = "of an experiment that takes no parameter"
STORED = "of a stored run"
RULE = "of the method or of a program"

#: For each notebook the phrases with typed numbers, by the reason why these cannot change.
STATED = {
    "01_approximately_once": {
        FIXED: [
            "average three sensors each, over windows of 10 s that begin every 5 s",
            "ends B at 16 s, and a replacement continues at 19 s",
            "the six estimates",
        ],
        DOCUMENT: [
            "The document's windows of 30 minutes begin every 10 minutes",
            "If it is a sample of every 10 minutes",
        ],
    },
    "02_checkpoint_planning": {
        FIXED: ["Three sensors, one", "Six samples can be replayed", "the checkpoint at step 3"],
        DOCUMENT: ["DEIM 2020", "greedily (fig. 3)", "as 6.1 suggests"],
        RULE: [
            "0 until a recovery estimates",
            "Four methods choose",
            "1.5 times the time fitted to 20 earlier kills",
            "its factor 1.5 is ours",
            "streams three windows",
        ],
    },
    "03_shared_state": {
        FIXED: [
            "Windows of ten ticks begin every five ticks",
            "slices of five ticks",
            "window [5, 15) has the sums of [5, 10) and [10, 15)",
        ],
        RULE: ["(skew 0)", "The three strategies", "Throughput of three strategies"],
        DOCUMENT: ["Growth ended at about 24 tasks on the document's 48 cores"],
    },
    "04_upstream_backup": {
        FIXED: [
            "tuples up to 8, so upstream backup replays 9 to 13",
            "has 9 to 11, so only 12 and 13",
            "Links have 16 Mbps and 5 ms one way, a tuple has 58 bytes and takes 10 µs",
        ],
        RULE: [
            "(level 0)",
            "(level 1)",
            "level-0 ACKs",
            "All five schemes",
            "all five schemes",
            "acknowledges every second segment (`DelAckCount` 2), or after 200 ms",
            "version 3.37",
            "three kinds of acknowledgements",
            "A rate above 95 % of a link",
        ],
        STORED: [
            "Up to 1,000 tuples/s few tuples are replayed",
            "100 failures at each rate up to 1,000 tuples/s, ten above",
            "Below 50 tuples/s all",
            "From 500 tuples/s on, new tuples",
        ],
        DOCUMENT: [
            'doubling the traffic is 50 %, although its text says "about 100 %"',
            "The document runs 60 s, with failures from 30 s on",
        ],
    },
    "05_exponential_histogram": {
        FIXED: [
            "At t = 9 seven ones are counted in three buckets, six of them lie in the window",
            "the article answers 5",
            "P(1) = 0.5",
            "the median of ten rounds",
        ],
        RULE: ["When three buckets have the same count"],
        DOCUMENT: ["The document's figure 5 has N = 10⁶, ε = 0.01 and 10⁸ events"],
    },
    "06_your_sensors": {
        FIXED: ["In ten short outages", "Four sets of real sensors", "Eight generated sensors"],
        RULE: [
            "five windows in a row",
            "failed one to five windows before",
            "means over these five",
            "so they weigh 5 : 4 : 3 : 2 : 1",
            "Below some 500 certified windows",
        ],
        STORED: ["The last four streams are generated"],
    },
    "07_does_it_pay": {
        FIXED: ["PM2.5 at twelve stations"],
        STORED: ["Flink 2.3 needs 3.6 to 4.8 s", "only 32 to 70 samples"],
    },
}
#: Patterns of numbers that code computes for a sentence alone: no table and no figure shows them.
ONLY_SAID = {
    "01_approximately_once": [
        r"ε is below [\d.]+",
        r"95 % intervals",
        r"are [\d.]+ to [\d.]+ standard deviations",
    ],
    "02_checkpoint_planning": [
        r"throughput is [\d.]+ times as high",
        r"takes this part of a recovery: ([\d.]+ % with n = [\d,]+(, )?)+",
        r"[\d.]+ % of the estimates are within ε, [\d.]+ % by the model",
    ],
    "03_shared_state": [
        r"(upfront|late local|late global) × [\d.]+",
        r"× [\d.]+ (at skew|with)",
        r"a tuple takes [\d.]+ ns, merging a sum in memory [\d.]+ ns",
        r"receivers bear [\d.]+ %",
        r"are × [\d.]+ as fast",
        r"a further × [\d.]+",
    ],
    "04_upstream_backup": [
        r"queue holds [\d.]+ ms",
        r"takes [\d.]+ to [\d.]+ of upstream backup's time",
        r"come [\d.]+ to [\d.]+ s after the start",
    ],
    "05_exponential_histogram": [r"at most [\d.]+ ε", r"the article's by [\d.]+ ε"],
    "06_your_sensors": [
        r"[\d.]+ % of [\d,]+ certified windows",
        r"\(commit \w+, \d{4}-\d\d-\d\d\)",
    ],
    "07_does_it_pay": [
        r"ε = [\d.]+ µg/m³",
        r"recovers in [\d.]+ s or less on average",
        r"`recoverable` reaches [\d.]+ % and [\d.]+ %",
        r"D1 by model saves \d+ ms",
    ],
}


def read(name: str) -> nbformat.NotebookNode:
    return nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)


def unstated_numbers(content: nbformat.NotebookNode, stated: dict[str, list[str]]) -> list[str]:
    """Typed numbers outside the stated phrases, and the phrases that are not there."""
    phrases = [phrase for group in stated.values() for phrase in group]
    unused = set(phrases)
    wrong = []
    for text in typed_texts(content):
        text = " ".join(text.split())
        for phrase in phrases:
            if phrase in text:
                unused.discard(phrase)
                text = text.replace(phrase, " ")
        wrong += [f"{number} in: {text[:200]}" for number in numbers_in(text)]
    return wrong + sorted(f"is not there: {phrase}" for phrase in unused)


@pytest.mark.parametrize("name", NAMES)
def test_typed_numbers_are_those_that_no_parameter_can_change(name):
    assert unstated_numbers(read(name), STATED[name]) == []


def test_an_unstated_number_and_an_unused_phrase_are_seen():
    caption = 'caption(f"At ε = {epsilon:g} seven of {m} fail, 12.5 % in all.")'
    cells = [nbformat.v4.new_markdown_cell("Six samples of 7"), nbformat.v4.new_code_cell(caption)]
    content = nbformat.v4.new_notebook(cells=cells)
    assert unstated_numbers(content, {RULE: ["Six samples", "of 8"]}) == [
        "7 in:   of 7",
        "12.5 in: At ε = … seven of … fail, 12.5 % in all.",
        "seven in: At ε = … seven of … fail, 12.5 % in all.",
        "is not there: of 8",
    ]


def unsupported_numbers(content: nbformat.NotebookNode, parameters, only_said=()) -> list[str]:
    """Numbers of computed sentences that no parameter, table, figure or claim of the run has."""
    values = shown_values(content, parameters) + drawn_values(content)
    wrong = []
    for text in computed(content):
        for pattern in only_said:
            text = re.sub(pattern, " ", text)
        wrong += [
            f"{number} in: {text[:200]}"
            for number in numbers_in(text)
            if not is_supported(number, values)
        ]
    return wrong


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.id)
def test_with_other_parameters_a_notebook_runs_and_says_what_its_tables_show(document, tmp_path):
    name, parameters = document.notebook, OTHER[document.notebook]
    defaults = {key: field.default for key, field in document.parameters.model_fields.items()}
    assert {key for key in parameters if parameters[key] == defaults[key]} == set()
    document.parameters(**parameters)
    executed = run_job(Job(FOLDER / f"{name}.ipynb", parameters, tmp_path / f"{name}.ipynb"))
    assert executed.error is None
    known = defaults | parameters
    assert unsupported_numbers(executed.content, known, ONLY_SAID.get(name, [])) == []

    changed = copy.deepcopy(executed.content)
    texts = [output for output in outputs(changed) if text_kind(output)]
    for output in texts[:1]:
        output["data"]["text/markdown"] += " It is 98,765.4."
    assert len(unsupported_numbers(changed, known, ONLY_SAID.get(name, []))) == bool(texts)
