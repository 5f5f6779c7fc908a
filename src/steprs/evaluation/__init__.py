"""What a policy can do: samples, verdicts, and statistics with intervals.

Only `evaluate` and `capability` need torch; every other module is numpy alone, so that a report can be remade
from run folders on a machine without it. Nothing is imported here for the same reason.
"""
