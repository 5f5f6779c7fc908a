"""A run is a folder of plain files: where is what, and how is it written so that a kill tears nothing.

config.json            the resolved configuration, itself a run file
env.json               versions and machine
calibration.json       the measured capability and the scale taken from it
metrics.jsonl          one record an update (docs/metrics.md)
rollouts.jsonl         sample completions
rollouts/update-000020.safetensors    an update's rollouts for `steprs rescore`, if the run keeps any
dev.jsonl              one record a dev evaluation
result.json            how the run ended
checkpoints/update-000020/    policy in its own layout, trainer/ beside it, manifest.json written last
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..errors import RunFolderError

MANIFEST = "manifest.json"


class RunFolder:
    """Paths and atomic writes of one run."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @contextmanager
    def locked(self, *, advice: str | None = None) -> Iterator[None]:
        """Hold the folder for one run; the system lets go of it however the process ends.

        Args:
            advice: what to say, and to do, if another process holds it; by default advice for a run.

        Raises:
            RunFolderError: another process holds it.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = (self.path / "lock").open("a+", encoding="utf-8")
        except OSError as error:
            raise RunFolderError(
                f"cannot write a run into {self.path}: {error.strerror}; choose another folder"
            ) from None
        with lock as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                handle.seek(0)
                raise RunFolderError(
                    advice
                    or f"{self.path} is in use by process {handle.read().strip() or '?'}; "
                    "wait for it or choose another -o folder"
                ) from None
            handle.seek(0)
            handle.truncate()
            handle.write(str(os.getpid()))
            handle.flush()
            yield

    def write_json(self, name: str, content: Any) -> None:
        """Write a JSON file so that it is either the old one or the whole new one."""
        self.path.mkdir(parents=True, exist_ok=True)
        _write_durably(self.path / name, json.dumps(content, indent=1, allow_nan=False) + "\n")

    def write_bytes(self, name: str, content: bytes) -> Path:
        """Write a file, and the folder it lies in, so that it is either the old one or the whole new one."""
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        _write_durably(file, content)
        return file

    def read_json(self, name: str) -> Any:
        """Read a JSON file, or None if there is none."""
        file = self.path / name
        if not file.exists():
            return None
        try:
            return json.loads(file.read_text(encoding="utf-8"))
        except ValueError as error:
            raise RunFolderError(f"{file} is not JSON ({error}); delete it or start the run afresh") from None

    def read_config(self) -> dict[str, Any] | None:
        """The run's resolved settings, or None if the folder holds no run.

        Raises:
            RunFolderError: the file is there but holds no settings; nothing is guessed in their place.
        """
        content = self.read_json("config.json")
        if content is not None and not (isinstance(content, dict) and content):
            raise RunFolderError(f"{self.path / 'config.json'} holds no settings; the run cannot be told from it")
        return content

    def append_jsonl(self, name: str, record: Mapping[str, Any]) -> None:
        """Add one line."""
        with (self.path / name).open("a", encoding="utf-8") as handle:
            handle.write(json.dumps(record, allow_nan=False) + "\n")

    def read_jsonl(self, name: str) -> list[dict[str, Any]]:
        """All whole lines; a line torn by a kill is left out."""
        file = self.path / name
        if not file.exists():
            return []
        return [
            record
            for line in file.read_text(encoding="utf-8", errors="replace").splitlines()
            if (record := _whole(line)) is not None
        ]

    def keep_lines(self, name: str, keep: Callable[[dict[str, Any]], bool]) -> None:
        """Drop the lines that a resumed run is going to write again."""
        lines = [json.dumps(record) + "\n" for record in self.read_jsonl(name) if keep(record)]
        if (self.path / name).exists():
            _write_durably(self.path / name, "".join(lines))

    # Checkpoints

    def begin_checkpoint(self, name: str) -> Path:
        """An empty folder to fill; it is no checkpoint until `finish_checkpoint` has named it."""
        part = self.part_of(name)
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        return part

    def part_of(self, name: str) -> Path:
        """Where the checkpoint `name` is being written."""
        return self.path / "checkpoints" / f"{name}.part"

    def finish_checkpoint(self, part: Path) -> Path:
        """Give the filled folder its name in one move. A kill at any moment leaves the older checkpoints whole."""
        files = sorted(p for p in part.rglob("*") if p.is_file())
        sums = {str(p.relative_to(part)): _sha256(p) for p in files}
        for file in files:
            _sync(file)
        _write_durably(part / MANIFEST, json.dumps(sums, indent=1))
        final = part.with_suffix("")
        if final.exists():
            shutil.rmtree(final)
        os.replace(part, final)
        _sync(final.parent)
        return final

    def checkpoints(self) -> list[Path]:
        """Checkpoints by update, oldest first, whole or not."""
        root = self.path / "checkpoints"
        found = root.iterdir() if root.exists() else ()
        return sorted(p for p in found if p.is_dir() and re.fullmatch(r"update-\d{6}(-inner-\d\d)?(\.part)?", p.name))

    def newest_checkpoint(self) -> Path | None:
        """The newest whole checkpoint; a torn one is named in a warning and passed over."""
        for path in reversed(self.checkpoints()):
            problem = checkpoint_problem(path)
            if problem is None:
                return path
            warnings.warn(f"checkpoint {path} is torn ({problem}) and passed over", stacklevel=2)
        return None

    def prune(self, keep_last: int, best: str | None) -> None:
        """Delete old checkpoints except the last `keep_last` and the one named `best`."""
        for path in [p for p in self.checkpoints() if p.suffix != ".part"][:-keep_last]:
            if path.name != best:
                shutil.rmtree(path)


def checkpoint_problem(path: Path) -> str | None:
    """Why a checkpoint folder cannot be used, or None if every file is there and unchanged."""
    if path.suffix == ".part":
        return "its writing was cut off"
    manifest = path / MANIFEST
    if not manifest.exists():
        return f"{MANIFEST} is missing"
    try:
        sums = json.loads(manifest.read_text(encoding="utf-8"))
    except ValueError:
        return f"{MANIFEST} is not JSON"
    if not (isinstance(sums, dict) and "trainer/position.json" in sums):
        return f"{MANIFEST} names no checkpoint's files"
    for name, expected in sums.items():
        file = path / name
        if not file.exists():
            return f"{name} is missing"
        if _sha256(file) != expected:
            return f"{name} has changed"
    return None


def _whole(line: str) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except json.JSONDecodeError:
        return None
    return record if isinstance(record, dict) else None


def _sha256(path: Path) -> str:
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def _write_durably(path: Path, content: str | bytes) -> None:
    part = path.with_name(path.name + ".part")
    part.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
    _sync(part)
    os.replace(part, path)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
