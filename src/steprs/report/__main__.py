"""`python -m steprs.report DIR [OUTPUT]`: write the report of a folder and show what it says."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from ..errors import StepRSError
from .terminal import show_report
from .write import write_report


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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
