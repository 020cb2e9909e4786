"""A tensor's product with random signs: one number that changes where a norm does not, as when elements change places.

Two runs have the same signs: they are made from a fixed seed, apart from all generators of the program. Achlioptas,
Database-friendly random projections, 2003: such products keep distances.
"""

from __future__ import annotations

import numpy as np
import torch

#: Signs are repeated behind so many elements.
BLOCK = 1 << 20
_signs: dict[torch.device, torch.Tensor] = {}


def signs_on(device: torch.device) -> torch.Tensor:
    """+1 and -1, [BLOCK], float32; the same in every process."""
    known = _signs.get(device)
    if known is None:
        bits = np.unpackbits(np.frombuffer(np.random.Generator(np.random.PCG64(0)).bytes(BLOCK // 8), np.uint8))
        known = _signs[device] = torch.from_numpy(bits.astype(np.float32) * 2 - 1).to(device)
    return known


def projection(values: torch.Tensor, wide: torch.dtype) -> torch.Tensor | None:
    """The sum of element times sign, of one element in ``wide``; None of what has no elements or no real ones. Call
    where nobody watches torch's functions.
    """
    if values.is_complex() or not values.numel():
        return None
    flat, signs = values.detach().reshape(-1).to(torch.float32), signs_on(values.device)
    parts = [torch.dot(part, signs[: part.numel()]) for part in torch.split(flat, BLOCK)]
    return parts[0].to(wide) if len(parts) == 1 else torch.stack(parts).sum(dtype=wide)
