"""Build the wheel, look into it, and run the tests of layers 0-2 against it instead of the checkout.

The wheel is unpacked beside the environment's own packages, so torch is not installed twice.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
METHOD = (
    "types", "errors", "risk", "schedules", "losses", "states", "randomness",
    "calibration", "controls", "advantages", "gradient",
)  # fmt: skip
REQUIRED = (
    "steprs/py.typed",
    "steprs/configs/train/countdown.yaml",
    "steprs/checkpoints/tiny/model.safetensors",
    "steprs/checkpoints/tiny/steprs.json",
    "steprs/checkpoints/tiny-full/model.safetensors",
)
LARGEST_MEGABYTES = 12


def build(folder: Path) -> Path:
    """Make the wheel with the tools of the running environment."""
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"the wheel does not build:\n{done.stdout}{done.stderr}")
    return next(folder.glob("*.whl"))


def look_into(wheel: Path) -> None:
    """Stop unless the wheel holds what it must, nothing else, and is small."""
    names = zipfile.ZipFile(wheel).namelist()
    missing = [name for name in REQUIRED if name not in names]
    strange = [name for name in names if not name.startswith(("steprs/", "steprs-")) or "__pycache__" in name]
    megabytes = wheel.stat().st_size / 1e6
    if missing or strange or megabytes > LARGEST_MEGABYTES:
        sys.exit(f"wheel: missing {missing}, not ours {strange}, {megabytes:.1f} MB (at most {LARGEST_MEGABYTES})")
    print(f"{wheel.name}: {len(names)} files, {megabytes:.1f} MB")


def method_tests() -> list[Path]:
    """Unit and property tests of layers 0-2: files or folders named after one of their modules."""
    found = [*(ROOT / "tests/unit").rglob("test_*.py"), *(ROOT / "tests/properties").rglob("test_*.py")]
    return sorted(path for path in found if path.parent.name in METHOD or path.stem.split("_")[1] in METHOD)


def run_tests(wheel: Path, folder: Path) -> None:
    """Run them from a copy, with the unpacked wheel in front of the editable checkout."""
    site = folder / "site"
    zipfile.ZipFile(wheel).extractall(site)
    copy = folder / "copy"
    shutil.copytree(ROOT / "tests", copy / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", copy)
    environment = {**os.environ, "PYTHONPATH": str(site)}
    where = [sys.executable, "-c", "import steprs; print(steprs.__file__)"]
    found = subprocess.run(where, cwd=copy, env=environment, capture_output=True, text=True).stdout.strip()
    if not found.startswith(str(site)):
        sys.exit(f"the tests would run against {found!r}, not against the wheel")
    files = [str(path.relative_to(ROOT)) for path in method_tests()]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files], cwd=copy, env=environment
    )
    if done.returncode:
        sys.exit("tests of layers 0-2 fail against the installed wheel")


def main() -> None:
    """Everything, in a folder that goes away."""
    with tempfile.TemporaryDirectory() as name:
        wheel = build(Path(name))
        look_into(wheel)
        run_tests(wheel, Path(name))


if __name__ == "__main__":
    main()
