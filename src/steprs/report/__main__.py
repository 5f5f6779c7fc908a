"""`python -m steprs.report DIR [OUTPUT]`: write the report of a folder and show what it says."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from ..errors import StepRSError
from .page import Report, write_report
from .terminal import print_table


def main(arguments: Sequence[str]) -> int:
    """Write and show a report; returns the exit status."""
    if not 1 <= len(arguments) <= 2 or arguments[0].startswith("-"):
        print("usage: python -m steprs.report DIR [OUTPUT]", file=sys.stderr)
        return 2
    try:
        show_report(write_report(*arguments))
    except StepRSError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def show_report(report: Report) -> None:
    """Both tables, the reading of them, and where the files lie."""
    print_table(report.main)
    print_table(report.differences)
    print()
    for sentence in report.reading:
        print(f"- {sentence}")
    print(f"\nreport:  {report.page}")
    for folder in sorted({file.parent for file in report.files}):
        print(f"{folder.name + ':':<8} {folder}/")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
