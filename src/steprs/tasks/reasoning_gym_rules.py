"""How each dataset of reasoning-gym is verified here, and which ones are refused.

The package's own scorers are not trusted as a whole. Several run `eval` or sympy's `parse_expr` on the text
(binary_matrix, countdown, intermediate_integration, n_queens, polynomial_multiplication, puzzle24, simple_integration,
spiral_matrix, string_insertion); some build a number or list as large as the text says (coin_flip: `1e999999999`;
rubiks_cube: `R999999999`); some take wrong answers (game_of_life_halting: any text is true; number_sorting: off by
one; puzzle24: any numbers). So a scorer is used only if it was read, found bounded and free of evaluation, and is
needed because many answers are right. Everything else is compared exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Rule = Literal["text", "number", "scorer", "expression", "listed"]

RULE_NOTES: Mapping[Rule, str] = {
    "text": "equal text, runs of spaces as one",
    "number": "equal text or an exactly equal number (thousands separators in threes allowed)",
    "scorer": "the dataset's own scorer gives 1",
    "expression": "the `countdown` answer convention: every number once, exact value",
    "listed": "one of the right answers that the dataset lists",
}

# Everything that is in none of these tables is compared as text.
RULES: Mapping[str, Rule] = {
    "chain_sum": "number",
    "decimal_arithmetic": "number",
    "decimal_chain_sum": "number",
    "gsm_symbolic": "number",
    "number_format": "number",
    "products": "number",
    "countdown": "expression",
    "puzzle24": "expression",
    "n_queens": "listed",
    "cryptarithm": "scorer",
    "group_anagrams": "scorer",
    "jugs": "scorer",
    "kakurasu": "scorer",
    "knights_knaves": "scorer",
    "palindrome_generation": "scorer",
    "palindrome_partitioning": "scorer",
    "quantum_lock": "scorer",
    "shortest_path": "scorer",
    "sokoban": "scorer",
    "tower_of_hanoi": "scorer",
}

_NO_GOLD = "it gives no gold answer to check the verifier with"
_HASH_SEED = "its problems depend on Python's hash seed, so two processes would see different ones"
REFUSED: Mapping[str, str] = {
    "boxnet": _NO_GOLD,
    "graph_color": _NO_GOLD,
    "propositional_logic": _NO_GOLD,
    "rubiks_cube": _NO_GOLD,
    "rush_hour": _NO_GOLD,
    "codeio": _HASH_SEED,
    "isomorphic_strings": _HASH_SEED,
    "knight_swap": _HASH_SEED,
    "list_functions": _HASH_SEED,
    "polynomial_multiplication": _HASH_SEED,
    "ransom_note": _HASH_SEED,
    "word_ladder": _HASH_SEED,
    "composite": "it mixes other datasets; name the one you want",
}


def rule_of(dataset: str) -> Rule:
    """The rule that verifies a dataset's answers.

    >>> rule_of("chain_sum"), rule_of("maze")
    ('number', 'text')
    """
    return RULES.get(dataset, "text")
