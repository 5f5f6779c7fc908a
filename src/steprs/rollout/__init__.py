"""Decoding of rollouts: samplers, the random numbers they use, and what they record."""
