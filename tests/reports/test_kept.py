from __future__ import annotations

import pandas as pd
import pytest

from aftlib.reports import kept
from aftlib.reports.kept import keep_frames, keys_of, plain, read_kept

FRAME = pd.DataFrame({"m": [2, 2, 4], "epsilon": [0.1, 0.2, 0.1], "found": [1 / 3, 0.5, 1.0]})


def test_frames_are_kept_by_the_names_of_their_variables(tmp_path, monkeypatch):
    monkeypatch.setattr(kept, "MOST_CELLS", 9)
    large = pd.DataFrame({"x": range(10)})
    keep_frames({"a": FRAME, "b": FRAME, "_c": FRAME + 1, "large": large, "n": 1}, tmp_path / "t")
    found = read_kept(tmp_path / "t")
    assert list(found) == ["a"]
    pd.testing.assert_frame_equal(found["a"], FRAME, check_exact=True)
    shown = {3: FRAME.style, 4: "text", 7: (FRAME * 2).style}
    keep_frames({"a": FRAME, "Out": shown}, tmp_path / "s")
    assert list(read_kept(tmp_path / "s")) == [
        "a",
        "output_7",
    ]  # of the cell that was run as the seventh
    assert read_kept(tmp_path / "s")["output_7"].m.tolist() == [4, 4, 8]
    keep_frames({"empty": pd.DataFrame()}, tmp_path / "t")
    assert read_kept(tmp_path / "t")["empty"].empty
    assert read_kept(tmp_path / "none") == {}


def test_a_frame_that_cannot_be_written_is_left_out(tmp_path):
    index = pd.MultiIndex.from_tuples([(1, 2), (3, 4), (5, 6)])
    twice = FRAME.set_axis(index).assign(level_0=1)  # what the unnamed index would be called
    with pytest.warns(UserWarning, match="twice is not kept: cannot insert level_0"):
        keep_frames({"twice": twice, "a": FRAME}, tmp_path / "t")
    assert list(read_kept(tmp_path / "t")) == ["a"]
    (tmp_path / "full").touch()  # no folder can be made there
    with pytest.warns(UserWarning, match="a is not kept"):
        keep_frames({"a": FRAME}, tmp_path / "full" / "t")


def test_an_index_becomes_columns_unless_it_only_counts():
    assert list(plain(FRAME.set_index("m"))) == ["m", "epsilon", "found"]
    assert list(plain(FRAME.set_axis([1, 5, 7]))) == ["index", "m", "epsilon", "found"]
    wide = FRAME.pivot(index="m", columns="epsilon", values=["found"])
    assert list(plain(wide)) == ["m", "found / 0.1", "found / 0.2"]
    both = FRAME.set_index("m", drop=False)
    assert list(plain(both)) == ["m", "epsilon", "found"]


@pytest.mark.parametrize(
    ("frame", "keys"),
    [
        (FRAME, ["m", "epsilon"]),
        (FRAME[["epsilon", "m"]].iloc[:2], ["epsilon"]),
        (pd.concat([FRAME, FRAME]), []),
        (FRAME.iloc[:0], ["m"]),
    ],
)
def test_the_first_columns_that_tell_rows_apart_are_the_keys(frame, keys):
    assert keys_of(frame) == keys
