"""Figures show the numbers they were given."""

import pandas as pd

from aftlib.upstream_backup import figures


def test_real_kills_stand_beside_what_was_simulated():
    found = pd.DataFrame(
        {"scheme": ["upstream backup", "proposed"], "unnoticed_ms": [150.0, 140.0],
         "resent": [180, 90], "unnoticed_ms_simulated": [145.0, 145.0],
         "resent_simulated": [182.0, 91.0]}
    )  # fmt: skip
    drawn = {trace.name: trace for trace in figures.real_kills(found, "title").data}
    assert [*drawn] == [
        "upstream backup: processes", "upstream backup: simulated means",
        "proposed: processes", "proposed: simulated means",
    ]  # fmt: skip
    assert drawn["proposed: processes"].y.tolist() == [90]
    assert drawn["proposed: simulated means"].x.tolist() == [145]
    assert drawn["proposed: simulated means"].marker.symbol.endswith("-open")
