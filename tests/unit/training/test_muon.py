"""The float32 Muon is PyTorch's but for precision."""

import pytest
import torch

from steprs.training.muon import Float32Muon, orthogonalise

SHAPES = [(8, 8), (8, 8), (12, 8), (8, 12), (12, 8)]


def run(optimiser, updates=5):
    generator = torch.Generator().manual_seed(0)
    weights = [torch.nn.Parameter(torch.randn(shape, generator=generator)) for shape in SHAPES]
    muon = optimiser(weights, lr=0.05, weight_decay=0.1)
    for _ in range(updates):
        for weight in weights:
            weight.grad = torch.randn(weight.shape, generator=generator)
        muon.step()
    return weights


def test_agrees_with_pytorch_to_its_bfloat16():
    for ours, theirs in zip(run(Float32Muon), run(torch.optim.Muon), strict=True):
        torch.testing.assert_close(ours, theirs, atol=0.01, rtol=0.02)


def test_matrices_of_a_shape_do_not_mix():
    generator = torch.Generator().manual_seed(1)
    several = torch.randn(3, 8, 12, generator=generator)
    alone = torch.cat([orthogonalise(matrix[None]) for matrix in several])
    torch.testing.assert_close(orthogonalise(several), alone, atol=1e-6, rtol=0)


@pytest.mark.parametrize("shape", [(8, 8), (16, 8), (8, 16)])
def test_singular_vectors_stay_and_values_come_near_one(shape):
    matrix = torch.randn(1, *shape, generator=torch.Generator().manual_seed(2))
    left, _, right = torch.linalg.svd(matrix[0], full_matrices=False)
    inner = left.mT @ orthogonalise(matrix)[0] @ right.mT
    assert ((inner.diagonal() > 0.4) & (inner.diagonal() < 1.6)).all()
    assert (inner - torch.diag(inner.diagonal())).abs().max() < 1e-4


def test_weights_without_gradient_stay():
    weight = torch.nn.Parameter(torch.ones(4, 4))
    Float32Muon([weight], lr=1.0).step()
    assert torch.equal(weight, torch.ones(4, 4))
