"""The explorer's script says what the library says, and its page works offline."""

from __future__ import annotations

import json
import re
import shlex

import numpy as np
import pytest
from click.testing import CliRunner

from aftlib import (
    ExponentialHistogram,
    RecoveryTime,
    Requirement,
    assign_packed,
    assign_spread,
    plan_checkpoints,
    select_replay,
)
from aftlib.approximately_once import experiments as first
from aftlib.checkpoint_planning import experiments as second
from aftlib.core.generators import block_model
from aftlib.reports import browser, explorer
from aftlib.reports.cli import main
from aftlib.reports.notebook import find_notebook
from tests.reports import chromium

CHROMIUM = browser.find_browser()
SETTINGS = 120

needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no browser on this machine")


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The explorer, open in a browser."""
    folder = tmp_path_factory.mktemp("explorer")
    written = explorer.write_explorer(folder / explorer.PAGE)
    with chromium.opened(CHROMIUM, folder / "profile") as opened:
        opened.show(written, 1100)
        yield opened


def drawn(rng):
    """Settings all over the sliders' ranges."""
    groups = int(rng.integers(1, 9))
    n = 12 * groups
    return {
        **{"groups": groups, "n": n, "size": 12, "w": 10_000, "fixed": 28.33, "perTuple": 9.332e-4},
        "m": int(rng.choice([m for m in range(1, n + 1) if n % m == 0])),
        "epsilon": round(rng.uniform(0.05, 2.5), 2),
        "delta": round(rng.uniform(0.005, 0.3), 3),
        "rho": round(rng.uniform(0, 0.99), 2),
        "tSla": int(rng.integers(30, 300)),
    }


def by_library(s):
    asked = Requirement(s["epsilon"], s["delta"])
    results = block_model(s["n"], s["groups"], 1.0, s["rho"])
    ways = assign_spread, assign_packed
    estimable = [int(way(results, s["m"], asked).estimable.sum()) for way in ways]
    steps = block_model(s["n"], s["groups"], s["w"], s["w"] * s["rho"])
    recovery = RecoveryTime(s["fixed"], s["perTuple"])
    plans = []
    for method in ("proposed", "no-relaxation", "exactly-once"):
        try:
            plan = plan_checkpoints(steps, s["w"], asked, recovery, s["tSla"], method)
            plans.append([list(plan.times), [len(replay.sensors) for replay in plan.replay]])
        except ValueError as error:
            plans.append(float(re.search(r"at least ([\d.]+)", str(error))[1]))
    return estimable, plans


def by_script(page, settings):
    script = """((all) => all.map((s) => [
      [false, true].map((packed) => aft.estimable(s, s.m, packed)),
      ["proposed", "no-relaxation", "exactly-once"].map((method) => {
        const plan = aft.plan(s, method);
        return plan.times ? [plan.times, plan.read] : plan.shortest;
      })]))"""
    return page.run(f"{script}({json.dumps(settings)})")


@needs_browser
@pytest.mark.slow
def test_the_script_plans_and_assigns_as_the_library_does(page):
    rng = np.random.default_rng(1)
    settings = [drawn(rng) for _ in range(SETTINGS)]
    found = by_script(page, settings)
    plans = 0
    for setting, (estimable, planned) in zip(settings, found, strict=True):
        expected = by_library(setting)
        assert estimable == expected[0], setting
        for one, other in zip(planned, expected[1], strict=True):
            assert one == (pytest.approx(other) if isinstance(other, float) else other), setting
            plans += isinstance(one, list) and len(one[0]) > 2
    assert plans > SETTINGS / 2
    assert len({tuple(estimable) for estimable, _ in found}) > SETTINGS / 10


@needs_browser
@pytest.mark.slow
def test_the_scripts_numbers_are_the_librarys(page):
    for delta in (0.001, 0.05, 0.3, 0.9):
        asked = Requirement(0.7, delta)
        assert page.run(f"aft.z({delta})") == pytest.approx(asked.z, rel=1e-12)
    for variance in (1e-4, 0.02, 0.3, 1, 400):
        said = page.run(f"aft.reliability(0.7, {variance})")
        assert said == pytest.approx(float(asked.reliability(variance)), rel=1e-12)
    curve = page.run("aft.curve({n: 36, size: 12, rho: 0.4})")
    chosen = select_replay(block_model(36, 3, 1.0, 0.4), 1e-9)
    assert curve[:-1] == pytest.approx(chosen.share[:-1] * 1e-9)
    assert curve[-1] == 0


@needs_browser
@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.02, 0.1, 0.5])
def test_the_scripts_histogram_errs_as_a_histogram_does(page, epsilon):
    for total in (2, 7, 12, 52, 300, 2_001):
        one = ExponentialHistogram(total, epsilon)
        one.update(np.ones(total, bool))
        articles, sounds = [], []
        oldest = one.buckets[-1][1]
        for gone in range(oldest):  # until the oldest bucket's last event is about to leave
            exact = total - gone
            articles.append(abs(one.article_estimate() - exact) / exact)
            sounds.append(abs(one.estimate() - exact) / exact)
            one.update(0)
        said = page.run(f"aft.histogram({epsilon}, {total})")
        assert said["article"] == pytest.approx(max(articles))
        assert said["sound"] == pytest.approx(sounds[-1])
        assert said["sound"] <= epsilon


@needs_browser
@pytest.mark.slow
def test_sliders_move_figures_and_what_is_copied_runs(page, capsys):
    assert page.run("document.querySelectorAll('.figures svg').length") == 4
    before = page.run("document.body.innerText")
    move = """((id, value) => {
      const slider = document.getElementById(id);
      slider.value = value;
      slider.dispatchEvent(new Event("input"));
    })"""
    for id, value in {"epsilon": 1.2, "groups": 5, "rho": 0.5, "tSla": 75, "m": 4}.items():
        page.run(f"{move}({json.dumps(id)}, {value})")
    after = page.run("document.body.innerText")
    assert after != before and "ε" in after
    names = {}
    exec(page.run("document.getElementById('python').textContent"), names)
    printed = capsys.readouterr().out.splitlines()
    said = page.run("document.getElementById('workers-said').textContent")
    assert f"With m = 5: {printed[0]} of 5" in said
    said = page.run("document.getElementById('plan-said').textContent")
    assert f"at {printed[1].strip('(,)')}." in said

    commands = page.run("document.getElementById('command').textContent").splitlines()
    commands = [line for line in commands if not line.startswith("#")]
    for line, room in zip(commands, (first, second), strict=True):
        _, _, name, *given = shlex.split(line)
        notebook = find_notebook(name)
        asked = dict(text.split("=", 1) for text in given if text != "-p")
        room.check_parameters(**notebook.values(notebook.check(asked)))


@needs_browser
@pytest.mark.slow
def test_what_is_copied_runs_where_nothing_need_be_replayed(page):
    page.run("document.getElementById('epsilon').value = 2.5")
    page.run("document.getElementById('epsilon').dispatchEvent(new Event('input'))")
    line = page.run("document.getElementById('command').textContent").splitlines()[-1]
    given = [text for text in shlex.split(line)[3:] if text != "-p"]
    notebook = find_notebook("02")
    asked = dict(text.split("=", 1) for text in given)
    second.check_parameters(**notebook.values(notebook.check(asked)))
    assert asked["epsilon"] == "2.5"


@needs_browser
@pytest.mark.slow
def test_the_page_fits_a_phone_and_its_sliders_stay_beside_what_they_move(page):
    page.size(390)
    assert page.run("document.documentElement.scrollWidth") <= 390
    page.run("document.getElementById('histogram').scrollIntoView({block: 'end'})")
    top, bottom = page.run(
        "(({top, bottom}) => [top, bottom])(document.querySelector('form').getBoundingClientRect())"
    )
    assert top == 0 and bottom < 300


@needs_browser
@pytest.mark.slow
def test_every_line_and_axis_of_a_figure_has_a_name(page):
    said = page.run("document.querySelector('.figures').innerText")
    for name in ("↑ sensors that a failure reads again", "ε = ", "asked, 1 − δ", "checkpoints"):
        assert name in said


def test_the_page_needs_nothing_beside_it_and_fits_into_a_notebook():
    html = explorer.render_explorer()
    assert not re.search(r"(src|href)=|@import|https?://(?!www\.w3\.org)", html)
    framed = explorer.Explorer(height=700)._repr_html_()
    assert framed.count('"') == 6 and "700px" in framed and "&lt;script&gt;" in framed


def test_the_command_writes_it_among_the_reports(home):
    done = CliRunner().invoke(main, ["explorer"])
    assert done.exit_code == 0
    assert (home / "reports" / "explorer.html").read_text().startswith("<!DOCTYPE html>")
    assert done.output.strip() == str(home / "reports" / "explorer.html")
