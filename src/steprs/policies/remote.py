"""A model with code of its own, run only after an explicit `trust_remote_code`.

What is asked of it is little: `model(input_ids, attention_mask, position_ids).logits`, with full attention under a
four-dimensional mask. That it obeys the mask is tried once when it is loaded; many published diffusion models do not.
"""

from __future__ import annotations

from typing import Any

import torch
import transformers

from ..errors import PolicyError
from .attention import to_backend
from .base import PolicyModule
from .checkpoint import Checkpoint
from .family import Family

REMOTE = Family(name="remote", architectures=(), mask_tokens=("<|mask|>", "[MASK]"), turn_ends=("<|im_end|>",))

_CLASSES = ("AutoModelForCausalLM", "AutoModelForMaskedLM", "AutoModel")


def load_module(checkpoint: Checkpoint, implementation: str, dtype: torch.dtype, *, trusted: bool) -> PolicyModule:
    """Run the checkpoint's own code and make sure that it does what is asked of it.

    Raises:
        PolicyError: it was not trusted, cannot be loaded, or does not obey masks.
    """
    folder = checkpoint.folder
    mapped = checkpoint.config.get("auto_map", {})
    if not trusted:
        raise PolicyError(
            f"{folder} wants to run its own Python files ({', '.join(sorted(mapped)) or 'auto_map'}); read them, then "
            "pass trust_remote_code=True, or use a family that needs none"
        )
    kind = next((name for name in _CLASSES if name in mapped), None)
    if kind is None:
        raise PolicyError(f"{folder}: config.json maps none of {', '.join(_CLASSES)} to code of its own")
    loader: Any = getattr(transformers, kind)
    options = {"dtype": dtype, "use_safetensors": True, "trust_remote_code": True, "output_loading_info": True}
    try:
        model, report = loader.from_pretrained(folder, attn_implementation=implementation, **options)
    # Foreign code may raise anything.
    except Exception as error:
        raise PolicyError(f"the code in {folder} does not load here: {error}") from error
    wrong = {what: sorted(map(str, names)) for what, names in report.items() if names}
    if wrong:
        raise PolicyError(f"the weights in {folder} do not fit its code: {wrong}")
    model.eval()
    module = PolicyModule(model, whole=True)
    _check_mask(module, implementation, dtype, str(folder))
    return module


@torch.no_grad()
def _check_mask(module: PolicyModule, implementation: str, dtype: torch.dtype, name: str) -> None:
    """Hide the last token from the others: it must not change their logits, and must change them where it is seen."""
    ids_BT = torch.tensor([[1, 2, 3, 1], [1, 2, 3, 2]], device=next(module.parameters()).device)
    positions_BT = torch.arange(4, device=ids_BT.device).expand(2, 4)
    gaps = []
    for hidden in (True, False):
        mask_B1TT = torch.ones(2, 1, 4, 4, dtype=torch.bool, device=ids_BT.device)
        mask_B1TT[:, :, :3, 3] = not hidden
        try:
            logits_BTV = module(ids_BT, to_backend(mask_B1TT, implementation, dtype), positions_BT, None, None)
        except Exception as error:
            raise PolicyError(
                f"the model in {name} does not take (input_ids, attention_mask [B, 1, T, T], position_ids): {error}"
            ) from error
        gaps.append(float((logits_BTV[0, :3] - logits_BTV[1, :3]).abs().max()))
    if gaps[0] > 1e-4 * max(gaps[1], 1.0) or gaps[1] == 0.0:
        raise PolicyError(
            f"the model in {name} does not obey its attention mask (a hidden token changes logits by {gaps[0]:.2e}, a "
            f"seen one by {gaps[1]:.2e}); padding would change what it says, so it cannot be trained here"
        )
