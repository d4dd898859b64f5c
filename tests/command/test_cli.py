"""`aft reproduce` and `aft run` on a tiny project: pages, records and exit statuses."""

from __future__ import annotations

import json
import os
import re
import threading
from pathlib import Path

import nbformat
import pytest

from aftlib.command import batch, cli
from tests.command.conftest import BAD, GOOD, aft, project, write_notebook

pytestmark = pytest.mark.slow


def read_claims(home):
    lines = json.loads((home / "reports" / "claims.json").read_text())
    return {line["id"]: line for line in lines}


STORED = '{"claims": []}'
SCRATCH = "from aftlib.core.paths import FreshFolders\n(FreshFolders() / 'x').mkdir()"
ENVIRONMENT = "import os\nprint(os.environ['PLOTLY_RENDERER'], os.environ['PYTHONWARNINGS'])"


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory):
    """A project whose notebook ran once, and the environment before and after the run."""
    folder = tmp_path_factory.mktemp("reproduced")
    (folder / "scratch").mkdir()
    with project(folder) as root, pytest.MonkeyPatch.context() as patch:
        patch.delenv("PLOTLY_RENDERER", raising=False)
        patch.delenv("PYTHONWARNINGS", raising=False)
        patch.setenv("TMPDIR", str(folder / "scratch"))
        write_notebook(root, [*GOOD, *map(nbformat.v4.new_code_cell, (SCRATCH, ENVIRONMENT))])
        (root / "reports").mkdir()
        for name in ("README.md", "full.json"):
            (root / "reports" / name).write_text(STORED)
        before = dict(os.environ)
        done = aft("reproduce")
        assert done.exit_code == 0, done.output
        yield root, before, dict(os.environ)


@pytest.fixture
def reports(reproduced):
    root, _, _ = reproduced
    return root / "reports"


def test_reproduce_writes_report_index_and_claims(reports):
    claims = read_claims(reports.parent)
    assert claims["D1-1"]["verdict"] == "holds" and claims["D1-1"]["measured"] == 4
    assert claims["D1-1"]["notebook"] == "01_tiny" and claims["D1-1"]["profile"] == "quick"

    page = (reports / "01_tiny.html").read_text()
    assert "With 4 workers it holds." in page  # the box on top
    assert "<math" in page and "\\frac" not in page.split("<main>")[1].split("annotation")[0]
    assert 'class="plotly-graph-div"' in page and page.count('src="plotly.min.js"') == 1
    assert ' id="figure-1"><a href="#figure-1">Figure 1.</a> &lt;/script&gt; squares</p>' in page
    assert '"format": "svg", "filename": "01_tiny-figure-1"' in page
    assert page.count("squares") == page.count("squares</p>") + page.count("Squares.")
    assert "celltag_caption" in page
    assert "number of workers" in page  # the table of parameters
    outside = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    assert re.findall(r"https?://(?!www\.w3\.org)\S+", outside) == []

    index = (reports / "index.html").read_text()
    assert 'href="01_tiny.html#claim-D1-1"' in index and "✔ 2 hold" in index
    assert "All works. With 4 workers it holds. Very. Here." in index
    assert "Profile quick, 20" in index and "cores, " in index
    assert "<strong>h-best, h-worst</strong>" in index


def test_a_caption_that_code_made_looks_like_one_of_markdown(reports):
    page = (reports / "01_tiny.html").read_text()
    main = re.sub(r"cell-id=\w+", "", page.split("<main>")[1])
    of_markdown, of_code = main.split('<div class="cell', 1)[1].split("celltag_caption")[1:]
    assert of_code.split("At <math")[0] == of_markdown.split("Squares.")[0]
    assert "<code>m * m</code> is 16." in main
    prose = main.index("<p>There are <em>4</em> workers.")
    assert prose < main.index("<pre>between") < main.index("<code>m * m</code>")


def test_a_second_run_uses_the_first_until_something_changes(home, monkeypatch):
    """A report that another version of the library stored counts as not run."""
    smoke = ("reproduce", "--profile", "smoke")
    assert aft(*smoke).exit_code == 0
    assert read_claims(home)["D1-1"]["measured"] == 3  # the profile's parameter
    target = home / "reports" / "01_tiny.ipynb"
    first = target.stat().st_mtime_ns
    assert "done already" in aft(*smoke).output
    assert target.stat().st_mtime_ns == first
    ran, done = [], batch.Executed.read(target)
    monkeypatch.setattr(batch, "run_job", lambda job, progress: ran.append(job) or done)
    aft(*smoke)
    assert ran == []
    aft(*smoke, "-p", "m=6")
    aft(*smoke, "--fresh")
    write_notebook(home, [*GOOD[:3], *GOOD[8:]])
    aft(*smoke)
    assert [job.parameters["m"] for job in ran] == [6, 3, 3]
    target.write_text(target.read_text().replace('"sensitivity"', '"sensitivities"'))
    assert (len(done.claims), batch.Executed.read(target).claims) == (2, [])


def test_notebooks_without_times_run_side_by_side_and_the_others_alone(tmp_path, monkeypatch):
    together = threading.Barrier(2, timeout=60)  # broken, and an error, if one waits alone
    running, seen = set(), {}

    def run(job, progress):
        running.add(job.name)
        if not job.timed:
            together.wait()
        seen[job.name] = {*running}
        if not job.timed:
            together.wait()
        running.remove(job.name)
        return job.name

    monkeypatch.setattr(batch, "run_job", run)
    names = map(str, range(5))
    jobs = [batch.Job(Path(name), {}, tmp_path / name, timed=int(name) % 2 == 0) for name in names]
    done = [*batch.run_jobs(jobs[:4], None, False, lambda text: None)]
    assert {*done[:2]} == {"1", "3"} and done[2:] == ["0", "2"]
    assert seen == {"0": {"0"}, "1": {"1", "3"}, "2": {"2"}, "3": {"1", "3"}}
    assert [*batch.run_jobs(jobs[4:5], None, False, lambda text: None)] == ["4"]


def test_a_verdict_against_its_record_ends_with_1(home):
    done = aft("reproduce", "-p", "m=1")  # D1-1 contradicts; D1-2 is timed
    assert done.exit_code == 1
    assert "D1-1 differs from its record: ✘ does not hold, recorded holds" in done.output
    assert "D1-2 is not sure of its record" in done.output
    assert aft("reproduce", "-p", "m=5").exit_code == 0
    assert aft("reproduce", "-p", "m=5", "--strict").exit_code == 1


def test_a_notebook_that_fails_is_reported_and_its_claims_are_not_run(home):
    write_notebook(home, BAD)
    done = aft("reproduce")
    assert done.exit_code == 1 and "ZeroDivisionError" in done.output
    page = (home / "reports" / "01_tiny.html").read_text()
    assert "This run failed:" in page and "<pre>before" in page and "<pre>after" not in page
    assert {line["verdict"] for line in read_claims(home).values()} == {"not run"}


def test_a_kernel_that_dies_is_reported(home):
    write_notebook(home, [*BAD[:3], nbformat.v4.new_code_cell("import os; os._exit(3)")])
    done = aft("reproduce")
    assert done.exit_code == 1 and "the kernel died" in done.output


def test_a_run_leaves_the_environment_of_this_process_alone(reproduced, reports):
    """Several notebooks run at a time in threads of one process."""
    _, before, after = reproduced
    assert after == before
    assert "plotly_mimetype ignore::FutureWarning" in (reports / "01_tiny.html").read_text()


def test_a_run_leaves_no_scratch_behind(reports):
    assert list((reports.parents[1] / "scratch").glob("aft-*/x-*")) == []


def test_a_quick_run_leaves_what_git_keeps(reports):
    assert [(reports / name).read_text() for name in ("README.md", "full.json")] == [STORED] * 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-p", "n=3"], "no chosen notebook has a parameter 'n': name one of epsilons, m, path"),
        (["-p", "m"], "parameter must be NAME=VALUE, got 'm'"),
        (["-p", "m=0"], "m must be at least 1, got 0"),
        (["-p", "m=many"], "m must fit int, got 'many'"),
        (["--only", "D9"], "notebook must be a file or one of 01_tiny"),
        (["--only", __file__], "only must name documents, got "),
    ],
)
def test_refusals_come_before_any_run(home, arguments, message):
    done = aft("reproduce", *arguments)
    assert done.exit_code == 1 and message in done.output
    assert not (home / "reports" / "claims.json").exists()


def test_run_writes_a_report_of_its_own(home):
    done = aft("run", "D1", "-p", "m=8", "-p", "epsilons=[1, 2.5]")
    assert done.exit_code == 0, done.output
    (page,) = (home / "reports" / "own").glob("*.html")
    assert "With 8 workers it holds." in page.read_text()
    assert not (home / "reports" / "claims.json").exists()


def test_run_takes_any_notebook(home, tmp_path):
    path = tmp_path / "mine.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=BAD), path)
    done = aft("run", path, "-p", "m=8")
    assert done.exit_code == 1 and "ZeroDivisionError" in done.output  # not a text / 0
    (page,) = (home / "reports" / "own").glob("*.html")
    assert re.fullmatch(r"mine-m=8-[0-9a-f]{8}\.html", page.name)


def test_the_name_of_a_run_is_legible_and_differs_with_every_parameter():
    notebook = Path("notebooks", "01_tiny.ipynb")
    name = cli.name_run(notebook, {"dimensions": 60, "epsilons": [0.5, 0.6]})
    assert re.fullmatch(r"01_tiny-dimensions=60-epsilons=0\.5_0\.6-[0-9a-f]{8}", name)
    many = {f"parameter_{number}": number for number in range(40)}
    runs = [{}, {"m": 1}, {"m": 1.0}, {"m": "1"}, {"path": "a/b|c d\nε"}, many, many | {"z": 1}]
    names = [cli.name_run(notebook, run) for run in runs]
    assert len({*names}) == len(runs) and max(map(len, names)) <= 80
    assert all(re.fullmatch(r"[\w.+=-]+", name) for name in names)
    assert cli.name_run(notebook, dict(reversed(many.items())))[-8:] == names[-2][-8:]
    assert cli.name_run(Path("other", "01_tiny.ipynb"), many) != names[-2]


def test_watch_shows_the_tables_of_a_stream_or_says_how_to_get_them(home, tmp_path):
    missing = aft("watch", tmp_path, "--once")
    assert missing.exit_code == 1 and "call record_metrics(spark, directory)" in missing.output
    line = {"query": "q", "batch": 0, "time": "2026-01-31T00:00:00", "seconds": 1.5, "rows": 7}
    line |= {"latency_s": None, "state_entries": 1, "late": 0, "rejected": {"unknown sensor": 2}}
    line |= {"windows": {"exact": 5}, "sensors": {"kitchen": {"windows": 5, "wrong": 1}}}
    (tmp_path / "guard-1.jsonl").write_text(json.dumps(line) + "\n")
    shown = aft("watch", tmp_path, "--once")
    assert shown.exit_code == 0, shown.output
    assert "rejected.unknown sensor" in shown.output and "kitchen" in shown.output
