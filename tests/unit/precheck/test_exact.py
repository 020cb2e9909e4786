"""A call that moves numbers and writes a constant has nothing to round, in no type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from support.prechecked import plugin

from msprobe.pytorch import check_api

X = torch.randn(4, 6, 8, generator=torch.Generator().manual_seed(0))
MOVES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "pad": lambda x: F.pad(x, (1, 1, 2, 0)),
    "pad with a number": lambda x: F.pad(x, (1, 1), value=0.1),
    "triu": lambda x: x.triu(),
    "tril": lambda x: x.tril(-1),
    "unfold": lambda x: F.unfold(x[:, None], 3, padding=1),
    "masked_fill": lambda x: x.masked_fill(torch.arange(8) > 4, -1.5),
    "where": lambda x: torch.where(torch.arange(8) > 4, x, 0.3),
    "relu": lambda x: x.relu(),
    "clamp": lambda x: x.clamp(-0.3, 0.7),
    "hardtanh": lambda x: F.hardtanh(x, -0.3, 0.3),
    "diag_embed": lambda x: x.diag_embed(),
    "roll": lambda x: x.roll(2, -1),
    "one of zeros": lambda x: torch.cat([x, torch.zeros_like(x)]),
    "scatter": lambda x: torch.zeros(4, 6, 12, dtype=x.dtype).scatter(-1, torch.arange(8).expand(4, 6, 8), x),
    "threshold": lambda x: F.threshold(x, 0.1, 20.0),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", MOVES)
def test_a_constant_that_is_off_by_little_is_an_error(
    monkeypatch: pytest.MonkeyPatch, name: str, dtype: torch.dtype
) -> None:
    x = X.to(dtype)
    found = check_api(MOVES[name], x, candidate="cpu")
    assert found.forward == "pass", str(found)

    def off(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        constant = ~torch.isin(result, args[0])
        return torch.where(constant, result * 1.01 + 1e-3, result)

    result = MOVES[name](x)
    if bool((~torch.isin(result, x)).any()):
        assert check_api(MOVES[name], x, candidate=plugin(monkeypatch, off)).forward == "error"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_result_of_which_some_elements_are_computed_is_not_exact(dtype: torch.dtype) -> None:
    """Labels of -1 and 1 choose what is computed; what no draw has disturbed is no constant."""
    labels = torch.where(torch.arange(8) > 4, -1.0, 1.0).to(dtype)
    found = check_api(F.hinge_embedding_loss, X.to(dtype) * 8, labels, margin=8.396, reduction="none", candidate="cpu")
    assert found.forward == "pass", str(found)
