"""Private names of torch that a version may lack; without one, code is slower or raises.

Read as text by ``derive.module.runtime``.
"""

import torch
from torch.autograd import forward_ad

_transforms_active = getattr(torch._C, "_are_functorch_transforms_active", lambda: True)
_any_autocast = getattr(torch._C, "_is_any_autocast_enabled", lambda: True)
_functorch = getattr(torch._C, "_functorch", None)
_is_legacy_batched = getattr(_functorch, "is_legacy_batchedtensor", lambda x: False)
_set_forward_mode = getattr(forward_ad, "_set_fwd_grad_enabled", None)
_APPLIES_DIRECTLY = hasattr(torch.autograd.Function.__base__, "apply")
_TRACED_WRONGLY = torch.__version__ < "2.13"  # outputs that `to` returned as they were


def forward_mode():
    """Whether forward mode is active."""
    return getattr(forward_ad, "_current_level", 0) >= 0


def in_forward_mode():
    """A context in which forward mode is enabled, as it is not inside of jvp."""
    if _set_forward_mode is None:
        raise NotImplementedError("this version of torch has no nested forward mode")
    return _set_forward_mode(True)
