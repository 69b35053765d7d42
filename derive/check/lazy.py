"""torch, imported at its first use: the site and the sizes of ``--cost`` do without it.

``Tensor`` is for annotations alone.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch as torch
    from torch import Tensor as Tensor
else:

    class _Torch:
        def __getattr__(self, name: str) -> Any:
            import torch

            return getattr(torch, name)

    torch, Tensor = _Torch(), Any
