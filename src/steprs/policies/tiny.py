"""The embedded policy: a stock Llama of under a million parameters with a word-level tokenizer.

It is small, but nothing else about it is special: the class, the file layout, the masks and the cache are the ones
of the published models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from ..errors import PolicyError
from .base import Policy, PolicyModule
from .family import Family, stock_config

TINY = Family(
    name="tiny",
    architectures=("LlamaForCausalLM",),
    stock_config=stock_config("llama"),
    attention="by block size",
)
PAD, EOS, MASK = "<pad>", "<eos>", "<mask>"


def create_tiny(
    words: Sequence[str],
    *,
    seed: int,
    attention: Literal["bidirectional", "block_causal"] = "block_causal",
    block_size: int = 4,
    hidden_size: int = 128,
    intermediate_size: int = 256,
    layers: int = 4,
    heads: int = 4,
    kv_heads: int | None = None,
    max_positions: int = 256,
    decoding_defaults: Mapping[str, Any] | None = None,
    implementation: str = "eager",
) -> Policy:
    """A new policy with random weights; the same seed gives the same weights.

    Args:
        words: the vocabulary, each a string without spaces; three special tokens are put before them.
        seed: of the weights. The global generator is left as it was.
        attention: who sees whom.
        block_size: positions decoded together.
        hidden_size: width of the residual stream.
        intermediate_size: width inside the gated MLP.
        layers: how many.
        heads: attention heads; together they are `hidden_size` wide.
        kv_heads: key and value heads; None is as many as `heads`.
        max_positions: an upper bound for prompt + completion.
        decoding_defaults: written to the manifest; `length` and `steps` are what samplers ask for.
        implementation: attention backend, "eager" or "sdpa" (see `attention.to_backend`).

    Raises:
        PolicyError: a word is empty, repeated or holds a space.

    >>> policy = create_tiny(["1", "2", "+"], seed=0, hidden_size=8, heads=2, layers=1, decoding_defaults={"length": 4})
    >>> policy.logits(torch.tensor([[3, 4, 2, 2, 2, 2]])).shape
    torch.Size([1, 6, 6])
    """
    tokenizer = word_tokenizer(words)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=hidden_size,
        intermediate_size=intermediate_size,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads or heads,
        max_position_embeddings=max_positions,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
    model.set_attn_implementation(implementation)
    return Policy(
        module=PolicyModule(model),
        tokenizer=tokenizer,
        family=TINY.name,
        attention=attention,
        block_size=block_size,
        mask_token_id=int(tokenizer.mask_token_id),
        eos_token_id=int(tokenizer.eos_token_id),
        pad_token_id=int(tokenizer.pad_token_id),
        vocab_size=len(tokenizer),
        decoding_defaults=dict(decoding_defaults or {}),
    )


def word_tokenizer(words: Sequence[str]) -> PreTrainedTokenizerFast:
    """One token a word, words separated by spaces; an unknown word is an error, never a silent `<unk>`.

    >>> word_tokenizer(["1", "+"])("1 + 1")["input_ids"]
    [3, 4, 3]
    """
    names = [PAD, EOS, MASK, *words]
    bad = [word for word in names if not word or word.split() != [word]]
    if bad or len(set(names)) != len(names):
        raise PolicyError(f"tokenizer words must be distinct and hold no space; got {bad or sorted(words)}")
    tokenizer = Tokenizer(WordLevel({word: index for index, word in enumerate(names)}, unk_token=""))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=EOS,
        mask_token=MASK,
        padding_side="left",
        clean_up_tokenization_spaces=False,
        model_input_names=["input_ids", "attention_mask"],
    )


@torch.no_grad()
def initialise_numbers(policy: Policy, *, values: Mapping[str, int], frequencies: int = 16) -> None:
    """Give the embeddings of number words the Fourier features of their value, in place.

    The first `2 * frequencies` coordinates become cos and sin of 2 pi value / period, with periods from 2 to twice
    the largest value in geometric steps, at the size of the embedding's own noise; so numbers that add up are
    related by rotations from the first update on (compare Y. Zhou et al., "Pre-trained LLMs use Fourier features
    to compute addition", 2024).

    Args:
        policy: changed in place.
        values: word -> number.
        frequencies: how many periods; at most half the width.
    """
    weight_VH: Tensor = policy.model.get_input_embeddings().weight  # type: ignore[assignment]
    ids_N = torch.tensor([policy.tokenizer.convert_tokens_to_ids(word) for word in values])
    numbers_N1 = torch.tensor([float(value) for value in values.values()])[:, None]
    count = min(frequencies, weight_VH.shape[1] // 2)
    features_NF = fourier_features(numbers_N1, count)
    scale = weight_VH.std() * 2**0.5
    weight_VH[ids_N, : 2 * count] = (scale * features_NF).to(weight_VH)


def fourier_features(numbers_N1: Tensor, count: int) -> Tensor:
    """Cos and sin of the numbers at `count` periods from 2 to twice the largest: [N, 2 * count]."""
    longest = 2.0 * float(numbers_N1.max())
    periods_F = 2.0 * (longest / 2.0) ** torch.linspace(0.0, 1.0, count)
    angles_NF = 2.0 * torch.pi * numbers_N1 / periods_F
    return torch.cat((angles_NF.cos(), angles_NF.sin()), dim=1)
