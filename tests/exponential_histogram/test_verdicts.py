"""D5's claims come out as recorded, and each turns when what it judges is wrong."""

from __future__ import annotations

from aftlib.exponential_histogram import experiments, verdicts


def test_claims_come_out_as_recorded(few, swept, sizes, long_run, rates):
    settled = [
        verdicts.figure_3(experiments.figure_3()),
        verdicts.error(swept, experiments.counterexamples(few)),
        verdicts.memory(sizes),
        verdicts.speed(long_run.assign(seconds=1e-3), rates.assign(update=2e6)),
    ]
    assert [s.id for s in settled] == ["D5-1", "D5-2", "D5-3", "D5-4"]
    assert [s.verdict for s in settled] == ["holds", "deviates", "holds", "holds"]
    assert "ε = 0.01: 52 ones → 51, 1.92% off" in settled[1].note
    assert settled[3].measured == 2e6


def test_a_wrong_row_of_figure_3_is_noticed():
    table = experiments.figure_3()
    settled = verdicts.figure_3(table.assign(same=table["t"] != 9))
    assert (settled.verdict, settled.measured) == ("deviates", 12)


def test_an_estimate_that_keeps_its_promise_is_noticed(few, swept):
    smallest = experiments.counterexamples(few)
    sound = swept.assign(article=swept["sound"], article_young=0.0)
    kept = smallest.assign(worst=smallest["sound_worst"])
    assert verdicts.error(sound, kept).verdict == "holds"


def test_buckets_that_grow_with_the_window_are_noticed(sizes):
    assert verdicts.memory(sizes.assign(buckets=sizes["window"] // 2)).verdict == "deviates"


def test_two_windows_say_nothing_about_growth(sizes):
    assert verdicts.memory(sizes[sizes["window"] > 100]).verdict == "not run"


def test_slow_updates_are_noticed(long_run, rates):
    assert verdicts.speed(long_run, rates.assign(update=9e5)).verdict == "deviates"
