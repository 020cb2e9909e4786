"""Verdicts made by hand, for those who show them."""

from __future__ import annotations

from typing import Any

from msprobe.diagnose.findings import Finding, Verdict

STACK = (
    "File /home/me/train.py, line 97, in forward, \n scores = scores * self.scale",
    "File /venv/lib/python3.11/site-packages/torch/nn/modules/module.py, line 1832, in inner, \n forward_call(*args)",
    "File /home/me/train.py, line 131, in step, \n loss = model(batch)",
    "File <frozen runpy>, line 88, in _run_code, \n unknown",
)


def leaf(**more: Any) -> dict[str, Any]:
    """The evidence of one side: a tensor."""
    return {"dtype": "torch.float32", "shape": [2, 3], "Max": 1.5, "Min": -1.0, "Mean": 0.1, "Norm": 2.0, **more}


def finding(**more: Any) -> Finding:
    """A finding that a call's result differs."""
    usual: dict[str, Any] = {
        "kind": "computation",
        "message": "Tensor.__add__.22.forward: output.0 differs (relative difference 0.004); its inputs agree",
        "where": "Tensor.__add__.22.forward, output.0",
        "entry": "Tensor.__add__.22.forward",
        "module": "blocks.2",
        "rank": 0,
        "step": 3,
        "direction": "forward",
        "order": 609,
        "evidence": {
            "slot": "output.0",
            "difference": 4e-3,
            "inputs_differ_by": 0.0,
            "explained": 8e-6,
            "candidate": leaf(Max=1.5000001),
            "reference": leaf(),
            "source": "/home/me/train.py:97",
        },
        "stack": STACK,
    }
    return Finding(**{**usual, **more})


def verdict(*findings: Finding, status: Any = "diverged", **more: Any) -> Verdict:
    """A verdict with counts as they come from a comparison."""
    summary = {
        "steps_in_common": 5,
        "steps_compared": 4,
        "ranks": 2,
        "pairs": 1573,
        "candidate_only": 0,
        "reference_only": 3,
        "same": 933,
        "rounding": 1,
        "explained": 629,
        "unexplained": 10,
        "largest_effect": 2e-7,
        "rounding_tolerance": 7.6e-6,
    }
    usual: dict[str, Any] = {"notes": ("precision: bfloat16 where the reference has float32",), "summary": summary}
    return Verdict(status, "/runs/new", "/runs/old", findings, **{**usual, **more})
