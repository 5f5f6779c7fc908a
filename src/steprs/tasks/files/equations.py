"""Equations between numbers in running text, for statistics of diversity: `48 / 2 = 24`, true or not."""

from __future__ import annotations

import re

from ..base import Trace

# Only the end of a long text is read, and chains are short: the search stays linear.
TAIL_CHARACTERS = 20_000
MAX_EQUATIONS = 64
_NUM = r"[$€£¥]?[0-9][0-9,]{0,15}(?:\.[0-9]{1,15})?%?"
_EQUATION = re.compile(rf"(?<![0-9.,])({_NUM}(?:[ \t]*[-+*/×÷xX][ \t]*{_NUM}){{1,7}})[ \t]*=[ \t]*([-−]?{_NUM})")
_SIGN = re.compile(r"[-+*/×÷xX]")
_ALIASES = {"×": "*", "x": "*", "X": "*", "÷": "/"}
_DECORATION = re.compile(r"[$€£¥,% \t]")


def equations_in(text: str) -> Trace:
    """Operators in written order, and each equation with the operands of a single + or * in ascending order.

    >>> equations_in("She sold 48 / 2 = 24 in May, so 48 + 24 = $72.")
    Trace(signature='/+', equations=('48/2=24', '24+48=72'))
    """
    found, signs = [], []
    for match in _EQUATION.finditer(text[-TAIL_CHARACTERS:]):
        left, right = (_DECORATION.sub("", side) for side in match.groups())
        ops = [_ALIASES.get(sign, sign) for sign in _SIGN.findall(left)]
        terms = _SIGN.split(left)
        if len(set(ops)) == 1 and ops[0] in "+*":
            terms.sort(key=lambda term: (len(term), term))
        written = terms[0] + "".join(op + term for op, term in zip(ops, terms[1:], strict=True))
        found.append(f"{written}={right.strip('.')}")
        signs += ops
        if len(found) == MAX_EQUATIONS:
            break
    return Trace(signature="".join(signs) or None, equations=tuple(found))
