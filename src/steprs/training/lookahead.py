"""Rewards of greedy one-step completions at recorded states."""

from __future__ import annotations

from typing import Any


def collect_state_rewards(*args: Any) -> Any:
    """To come."""
    raise NotImplementedError
