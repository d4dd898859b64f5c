"""A scheme of one's own, as docs/howto/scheme.md adds it, is killed, scored, drawn and costed."""

import contextlib
import io
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from aftlib.recovery_comparison import experiments, figures
from aftlib.recovery_comparison.accuracy import score_schemes
from aftlib.recovery_comparison.experiments import NotebookParameters
from aftlib.recovery_comparison.recoveries import Kill
from aftlib.recovery_comparison.schemes import EXACT, SCHEMES
from tests.recovery_comparison.tables import measurements

PAGE = (Path(__file__).parents[2] / "docs" / "howto" / "scheme.md").read_text()
MINE = "change of the others"


@pytest.fixture
def mine(monkeypatch):
    """Add the page's scheme to SCHEMES for one test."""
    code = re.search(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)[1]
    lines = re.findall(r"^       (from .*|SCHEMES\[.*)$", PAGE, re.MULTILINE)
    assert len(lines) == 2
    monkeypatch.setitem(SCHEMES, MINE, None)
    with contextlib.redirect_stdout(io.StringIO()):
        exec("\n".join([code, *lines]), {})
    return SCHEMES[MINE]


def test_the_pages_estimator_moves_the_last_result_by_the_others_change(mine):
    case = NotebookParameters(windows=[24], rates=[150.0], kills=2).read_case(24)
    estimator = mine(case)
    estimator.update(np.arange(12.0))
    row = np.arange(12.0) + 3
    row[:2] = np.nan
    assert estimator.update(row).estimate[0, :3].tolist() == [3.0, 4.0, 5.0]


def test_the_pages_scheme_recovers_from_kills_and_is_costed(mine, tmp_path):
    p = NotebookParameters(windows=[24], rates=[150.0], kills=2)
    case = p.read_case(24)
    kills = [Kill(0, 0, np.inf), Kill(2, 1, 1e4), Kill(4, 0, np.inf)]
    recoveries, outcome = experiments.measure_scheme(case, MINE, kills, tmp_path / "mine")
    assert outcome["lost"] == outcome["doubled"] == outcome["wrong"] == 0
    assert outcome["estimated"] == 18 and (recoveries["again"] == 0).all()
    assert MINE in [*score_schemes(case, seed=1)["scheme"]]

    measured = measurements()
    several = pd.concat([recoveries.assign(rate=rate) for rate in measured.points["rate"].unique()])
    rows = [measured.recoveries, several, several.assign(width=6)]
    outcomes = pd.concat([measured.outcomes, pd.DataFrame([outcome])], ignore_index=True)
    both = replace(measured, recoveries=pd.concat(rows, ignore_index=True), outcomes=outcomes)
    table = figures.own_costs(both, p.operation, p.own_t_sla_s)
    assert table.loc[MINE, "gb_read_again"] == 0 < table.loc[EXACT, "gb_read_again"]
    assert np.isfinite(table.loc[MINE, "recovery_s"])
    assert MINE in figures.own_table(both, p.operation, p.own_t_sla_s).to_html()
    assert MINE in {trace.name for trace in figures.recovery_ratios(both).data}
