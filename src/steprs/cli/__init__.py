"""The command `steprs`. Everything heavy is imported inside the commands: help needs neither torch nor rich."""

from .app import main

__all__ = ["main"]
