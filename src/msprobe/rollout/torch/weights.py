"""Does the engine hold the trainer's weights? Digests of each row in the engine's type, without any tolerance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from msprobe.coverage import NotRead
from msprobe.rollout.contract import Finding
from msprobe.rollout.engine_file import Module
from msprobe.rollout.torch.engine_weights import row_digests
from msprobe.rollout.torch.trainer import Trainer


def hold_weights(modules: Mapping[str, Module], trainer: Trainer) -> tuple[list[Finding], int, list[NotRead]]:
    """Findings, how many weights are equal, and what nobody could compare."""
    findings: list[Finding] = []
    not_read: list[NotRead] = []
    equal = 0
    for path, module in modules.items():
        not_read += [NotRead(f"{path}.{name} of the engine", why) for name, why in module.unread.items()]
        for name, digests in module.weights.items():
            parts = [one for one in trainer.parts(path) if getattr(one.module, name, None) is not None]
            if not parts and path.rpartition(".")[2] == "lm_head" and trainer.head() is not None:
                blocks = [_digests(trainer.head(), name, module.dtypes.get(name, ""))]
            elif not parts:
                not_read.append(NotRead(f"{path}.{name} of the engine", "the trainer has no such module"))
                continue
            else:
                blocks = [_digests(one.module, name, module.dtypes.get(name, "")) for one in parts]
            wanted = [digest for block in blocks for digest in block]
            # A table of embeddings is padded to the sizes of kernels.
            found = digests[: len(wanted)]
            if found == wanted:
                equal += 1
                continue
            findings.append(_finding(path, name, found, blocks, [one.path for one in parts]))
    return findings, equal, not_read


def _digests(module: Any, name: str, dtype: str) -> list[int]:
    values = getattr(module, name)
    kind = getattr(torch, dtype.removeprefix("torch."), None) if dtype else None
    return row_digests(values if kind is None else values.to(kind))


def _finding(path: str, name: str, found: list[int], blocks: list[list[int]], paths: list[str]) -> Finding:
    wanted = [digest for block in blocks for digest in block]
    arguments: dict[str, Any] = {"module": path, "weight": name, "rows": len(wanted), "engine_rows": len(found)}
    if len(found) == len(wanted) and sorted(found) == sorted(wanted):
        turned = [digest for block in reversed(blocks) for digest in block]
        code = "weights-exchanged" if len(blocks) > 1 and found == turned else "weight-rows-exchanged"
        return Finding(code, (), {**arguments, "parts": paths})
    differ = sum(one != other for one, other in zip(found, wanted, strict=False))
    return Finding("weights-differ", (), {**arguments, "differ": max(differ, abs(len(found) - len(wanted)))})
