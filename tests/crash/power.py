"""What a disk holds after a power failure: a program's traced calls, replayed on a model disk.

The model is the strictest that POSIX allows: a file's content is durable after its `fsync`, its
name after the `fsync` of the folder. Of any later change, any part may survive. On an `ordered`
disk, later changes of names survive up to one of them, as with a journal.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

STRACE = shutil.which("strace")
CALLS = (
    "openat,close,dup,dup2,dup3,fcntl,lseek,write,pwrite64,writev,fsync,fdatasync,rename,"
    "renameat,renameat2,unlink,unlinkat,rmdir,mkdir,mkdirat,link,linkat,ftruncate,fallocate"
)
_CALL = re.compile(r"(\d+) +(\w+)\((.*)\) += (-?\d+)")
_UNFINISHED = re.compile(r"(\d+) +(.*) <unfinished \.\.\.>$")
_RESUMED = re.compile(r"(\d+) +<\.\.\. \w+ resumed>(.*)$")


@dataclass
class File:
    """A file: what programs see, its durable content, and later changes that may be lost."""

    seen: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    later: list[tuple[int, bytes | None]] = field(default_factory=list)  # None: cut there

    def change(self, at: int, data: bytes | None) -> None:
        """Write `data` at an offset; None cuts the file there."""
        _apply(self.seen, at, data)
        self.later.append((at, data))

    def sync(self) -> None:
        """Make the content durable."""
        self.durable, self.later = bytes(self.seen), []

    def surviving(self, chance: Random | None) -> bytes:
        """Return the content after the failure: the durable part, and of the rest a random part."""
        content = bytearray(self.durable)
        for at, data in self.later if chance else ():
            if chance.random() < 0.5:
                _apply(content, at, data if not data else data[: chance.randint(0, len(data))])
        return bytes(content)


def _apply(content: bytearray, at: int, data: bytes | None) -> None:
    content.extend(bytes(max(0, at - len(content))))
    if data is None:
        del content[at:]
    else:
        content[at : at + len(data)] = data


@dataclass
class Disk:
    """The files below a folder, by the calls of one process."""

    root: str
    ordered: bool = False
    names: dict[str, File | None] = field(default_factory=dict)  # None: a folder
    durable: dict[str, File | None] = field(default_factory=dict)
    open: dict[int, list] = field(default_factory=dict)  # descriptor: name, file, place, appends
    later: list[dict[str, tuple[File | None, ...]]] = field(default_factory=list)  # (): removed

    def take(self, call: str, args: list, result: int) -> None:
        """Bring the disk up to date after a call that succeeded."""
        kind = {"fdatasync": "fsync", "dup2": "dup", "dup3": "dup"}.get(call, call)
        kind = {"renameat": "rename", "renameat2": "rename", "linkat": "link"}.get(kind, kind)
        kind = {"unlinkat": "unlink", "rmdir": "unlink", "mkdirat": "mkdir"}.get(kind, kind)
        before = dict(self.names)
        if hasattr(self, f"_{kind}"):
            getattr(self, f"_{kind}")(args, result)
        if before != self.names:
            self.later.append(
                {
                    name: (self.names[name],) if name in self.names else ()
                    for name in before.keys() | self.names.keys()
                    if before.get(name, 0) is not self.names.get(name, 0)
                }
            )

    def fail(self, place: Path, chance: Random | None = None) -> None:
        """Write what survives if the power fails now into a new folder."""
        names = dict(self.durable)
        if chance and self.ordered:
            for changes in self.later[: chance.randint(0, len(self.later))]:
                for name, now in changes.items():
                    names.pop(name, None)
                    if now:
                        names[name] = now[0]
        for name in self.names.keys() | self.durable.keys() if chance and not self.ordered else ():
            if self.names.get(name, 0) is not self.durable.get(name, 0) and chance.random() < 0.5:
                names.pop(name, None)
                names |= {name: self.names[name]} if name in self.names else {}
        place.mkdir(parents=True)
        for name, file in sorted(names.items()):
            target = place / name[len(self.root) :].lstrip("/")
            if file is None:
                target.mkdir(parents=True, exist_ok=True)
            elif target.parent.is_dir() and not name.endswith("-shm"):  # shared memory, made again
                target.write_bytes(file.surviving(chance))

    def _openat(self, args: list, result: int) -> None:
        name, flags = args[1], args[2]
        if not isinstance(name, str) or not name.startswith(self.root):
            self.open.pop(result, None)
            return
        if "O_TMPFILE" in flags:
            self.open[result] = ["", File(), 0, False]
            return
        if "O_CREAT" in flags and name not in self.names:
            self.names[name] = File()
        file = self.names.get(name)
        if file is not None and "O_TRUNC" in flags:
            file.change(0, None)
        self.open[result] = [name, file, 0, "O_APPEND" in flags]

    def _close(self, args: list, result: int) -> None:  # noqa: ARG002
        self.open.pop(int(args[0]), None)

    def _dup(self, args: list, result: int) -> None:
        if int(args[0]) in self.open:
            self.open[result] = self.open[int(args[0])]

    def _fcntl(self, args: list, result: int) -> None:
        if args[1].startswith("F_DUPFD"):
            self._dup(args, result)

    def _lseek(self, args: list, result: int) -> None:
        if int(args[0]) in self.open:
            self.open[int(args[0])][2] = result

    def _write(self, args: list, result: int) -> None:
        if entry := self.open.get(int(args[0])):
            at = len(entry[1].seen) if entry[3] else entry[2]
            entry[1].change(at, args[1][:result])
            entry[2] = at + result

    def _writev(self, args: list, result: int) -> None:
        if int(args[0]) in self.open:
            raise ValueError("writev to a traced file is not modelled")

    def _pwrite64(self, args: list, result: int) -> None:
        if entry := self.open.get(int(args[0])):
            entry[1].change(int(args[3]), args[1][:result])

    def _ftruncate(self, args: list, result: int) -> None:  # noqa: ARG002
        if entry := self.open.get(int(args[0])):
            entry[1].change(int(args[1]), None if int(args[1]) < len(entry[1].seen) else b"")

    def _fallocate(self, args: list, result: int) -> None:  # noqa: ARG002
        entry = self.open.get(int(args[0]))
        if entry and "KEEP_SIZE" not in args[1]:
            entry[1].change(int(args[2]) + int(args[3]), b"")

    def _fsync(self, args: list, result: int) -> None:  # noqa: ARG002
        if not (entry := self.open.get(int(args[0]))):
            return
        name, file = entry[:2]
        if file is not None:
            file.sync()
            return
        inside = lambda path: path.rpartition("/")[0] == name  # noqa: E731
        self.durable = {n: f for n, f in self.durable.items() if not inside(n)}
        self.durable |= {n: f for n, f in self.names.items() if inside(n)}
        self.later = [{n: f for n, f in c.items() if not inside(n)} for c in self.later]

    def _paths(self, args: list) -> list[str]:
        return [arg for arg in args if isinstance(arg, str) and arg.startswith(self.root)]

    def _rename(self, args: list, result: int) -> None:  # noqa: ARG002
        if len(paths := self._paths(args)) != 2:
            return
        old, new = paths
        for name in [n for n in self.names if n == old or n.startswith(old + "/")]:
            self.names[new + name[len(old) :]] = self.names.pop(name)
            if name != old and name in self.durable:  # what a folder holds goes with it
                self.durable[new + name[len(old) :]] = self.durable.pop(name)

    def _link(self, args: list, result: int) -> None:  # noqa: ARG002
        if len(paths := self._paths(args)) == 2:
            self.names[paths[1]] = self.names[paths[0]]

    def _unlink(self, args: list, result: int) -> None:  # noqa: ARG002
        for path in self._paths(args):
            self.names.pop(path, None)

    def _mkdir(self, args: list, result: int) -> None:  # noqa: ARG002
        for path in self._paths(args):
            self.names[path] = None


def trace(module: str, *arguments: str, root: Path) -> list[str]:
    """Run a program; return its calls since the first to a file below `root`, one per line."""
    log = root.with_suffix(".trace")
    subprocess.run(
        [STRACE, "-f", "-qq", "-xx", "-s", "10000000", "-e", f"trace={CALLS}", "-o", str(log),
         sys.executable, "-m", module, *arguments],
        check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    calls, place = log.read_text().splitlines(), str(root).encode()
    begin = "".join(f"\\x{byte:02x}" for byte in place)
    return calls[next(i for i, call in enumerate(calls) if begin in call) :]


def replay_calls(calls: list[str], root: Path, ordered: bool) -> Iterator[tuple[Disk, int]]:
    """Yield, after each call of a program, the disk and the number of batches that it confirmed."""
    disk, confirmed, unfinished = Disk(str(root), ordered), 0, dict[str, str]()
    for line in calls:
        if match := _UNFINISHED.match(line):
            unfinished[match[1]] = match[2]
            continue
        if match := _RESUMED.match(line):
            line = f"{match[1]} {unfinished.pop(match[1])}{match[2]}"
        if not (match := _CALL.match(line)) or int(match[4]) < 0:
            continue
        args = list(_arguments(match[3]))
        if match[2] == "write" and args[0] == "1":
            confirmed += args[1].count(b"committed")
        if match[2] not in ("write", "pwrite64"):
            args = [a.decode(errors="replace") if isinstance(a, bytes) else a for a in args]
        disk.take(match[2], args, int(match[4]))
        yield disk, confirmed


def _arguments(text: str) -> Iterator[str | bytes]:
    for quoted, plain in re.findall(r'"((?:\\x[0-9a-f]{2})*)"|([^",]+)', text):
        if plain.strip():
            yield plain.strip()
        elif not plain:
            yield bytes.fromhex(quoted.replace("\\x", ""))
