"""Small random policies and inputs; fixtures, because test modules here cannot import one another."""

import pytest
import torch

from steprs.policies.tiny import create_tiny

WORDS = [*map(str, range(1, 10)), "+", "-"]


@pytest.fixture
def make_policy():
    """Two layers over 14 tokens; keyword arguments go to `create_tiny`."""

    def make(**changes):
        options = {"seed": 3, "hidden_size": 16, "intermediate_size": 24, "layers": 2, "heads": 2}
        return create_tiny(WORDS, **(options | {"decoding_defaults": {"length": 8}} | changes)).train(False)

    return make


@pytest.fixture
def inputs():
    """Ids [3, 13] and their token mask, row b starting with b padded positions."""
    ids = torch.randint(3, 14, (3, 13), generator=torch.Generator().manual_seed(0))
    return ids, torch.arange(13) >= torch.arange(3)[:, None]
