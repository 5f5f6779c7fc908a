"""The process that runs math-verify on model text: one JSON object a line in, one out.

Started as a script, never imported: it must not load torch, and nothing that it does can reach the parent but the
lines it prints. The parent watches the clock and kills it when an item takes too long; a limit on the CPU time of an
item, set here, ends it too if the parent itself is gone.

In:  {"id": 1, "gold": "2^3", "answer": "8"}
Out: {"id": 1, "same": true, "error": null}
"""

from __future__ import annotations

import json
import logging
import math
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

try:
    import resource
except ImportError:  # not on Windows: the parent's clock remains
    resource = None  # type: ignore[assignment]


def limit_memory(limit_bytes: int) -> None:
    """Cap this process's address space, so that a tower of powers ends in MemoryError and not in a swapping machine."""
    if resource is not None:
        try:
            resource.setrlimit(resource.RLIMIT_AS, (limit_bytes, limit_bytes))
        except (ValueError, OSError):
            # Some systems refuse the limit; the time limit then is the only one.
            logging.getLogger(__name__).debug("RLIMIT_AS not available")


def limit_cpu(seconds: float) -> None:
    """Let the system end this process once it has used `seconds` more of CPU time."""
    if resource is not None:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        end = math.ceil(usage.ru_utime + usage.ru_stime + seconds) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (end, resource.getrlimit(resource.RLIMIT_CPU)[1]))


def load_comparer() -> Callable[[str, str], bool]:
    """Import math-verify and return `same(gold, answer) -> bool`."""
    from math_verify import parse, verify
    from math_verify.parser import LatexExtractionConfig

    extraction = [LatexExtractionConfig(boxed_match_priority=0)]

    def read(latex: str) -> Any:
        # Signal handlers would not stop it anyway: both time limits off.
        boxed = f"\\boxed{{{latex}}}"
        return parse(boxed, extraction_config=extraction, parsing_timeout=None, raise_on_error=True)

    def same(gold: str, answer: str) -> bool:
        return bool(verify(read(gold), read(answer), timeout_seconds=None, raise_on_error=True))

    # The first expression and interval load half of sympy; that must not run on an item's clock.
    for latex in ("x^2+1", "(1,2)", "\\sqrt{2}"):
        same(latex, latex)
    return same


def reply_to(item: dict[str, Any], same: Callable[[str, str], bool]) -> dict[str, Any]:
    """The reply to one item; an exception is an answer that is not the same, with the exception's name."""
    try:
        return {"id": item["id"], "same": same(item["gold"], item["answer"]), "error": None}
    except Exception as error:
        return {"id": item["id"], "same": False, "error": type(error).__name__}


def main() -> None:
    """Answer lines until the input ends."""
    # Replies go to the real standard output; whatever a library prints goes to standard error.
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    logging.disable(logging.CRITICAL)
    # Ctrl-C reaches every process of the terminal; when this one ends is the parent's business.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    same = load_comparer()
    memory_limit_bytes, time_limit_s = int(sys.argv[1]), float(sys.argv[2])
    limit_memory(memory_limit_bytes)
    print(json.dumps({"ready": True}), file=replies, flush=True)
    for line in sys.stdin:
        limit_cpu(time_limit_s)
        print(json.dumps(reply_to(json.loads(line), same)), file=replies, flush=True)


if __name__ == "__main__":
    main()
