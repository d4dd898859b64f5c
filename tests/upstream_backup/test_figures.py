"""Figures show the numbers they were given."""

import pandas as pd

from aftlib.upstream_backup import figures


def test_real_kills_stand_beside_what_was_simulated():
    found = pd.DataFrame(
        {"scheme": ["upstream backup", "proposed"], "unnoticed_ms": [150.0, 140.0],
         "resent": [180, 90], "unnoticed_ms_simulated": [145.0, 145.0],
         "resent_simulated": [182.0, 91.0], "recovery_ms": [3.0, 2.0],
         "recovery_ms_simulated": [1.0, 0.5]}
    )  # fmt: skip
    traces = figures.real_kills(found, "title").data
    drawn, times = ({t.name: t for t in traces if t.yaxis == axis} for axis in ("y", "y2"))
    assert [*drawn] == [
        "upstream backup: processes", "upstream backup: simulated means",
        "proposed: processes", "proposed: simulated means",
    ]  # fmt: skip
    assert drawn["proposed: processes"].y.tolist() == [90]
    assert drawn["proposed: simulated means"].x.tolist() == [145]
    assert times["proposed: processes"].y.tolist() == [2]
    assert times["upstream backup: simulated means"].y.tolist() == [1]
    assert drawn["proposed: simulated means"].marker.symbol.endswith("-open")
