"""What must be said of the same training in MindSpore and in PyTorch, healthy and with a mistake on one side."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from msprobe.diagnose.findings import Verdict
from msprobe.diagnose.runs import compare_runs

FRAMEWORKS = ("mindspore", "pytorch")


@dataclass(frozen=True)
class Expected:
    """What the first finding must be. ``modules``: where it may be; ``word``: what the place must contain."""

    kinds: tuple[str, ...]
    modules: tuple[str | None, ...]
    word: str = ""
    step: int = 0


_MOVED = ("optimizer",)

#: For level mix.
MIX = {
    "scale": Expected(("argument",), ("blocks.1.attention",), "Tensor.__mul__.1.forward"),
    "mask": Expected(("structure",), ("blocks.1.attention",), "Tensor.__add__.4.forward"),
    "epsilon": Expected(("computation",), ("norm",), "norm.LayerNorm.forward.0"),
    "gelu": Expected(("computation",), ("blocks.0.gelu",), "GELU.forward.0"),
    "residual": Expected(("structure",), ("blocks.1",), "Tensor.__add__.5.forward"),
    "not_loaded": Expected(("initial_weights",), ("blocks.1.narrow",), "blocks.1.narrow.weight"),
    "weight": Expected(("initial_weights",), ("blocks.0.wide",), "blocks.0.wide.weight"),
    # The call that cuts the graph, where it was recorded, or the first that no gradient reaches.
    "stopped": Expected(("missing_gradient", "structure"), ("blocks.0.attention", "blocks.0.attention.key")),
    # At the border of two blocks: the gradient that leaves the one, or the one that arrives in the other.
    "gradient": Expected(("gradient",), ("blocks.0", "blocks.1"), ".backward"),
    "learning_rate": Expected(_MOVED, ("words",), "words.", step=1),
    "betas": Expected(_MOVED, ("words",), "words.", step=2),
    "weight_decay": Expected(_MOVED, ("words",), "words.", step=1),
}
#: Modules alone: what is between them is known by the module around it, and the next one.
L0 = MIX | {
    "scale": Expected(("computation",), ("blocks.1.attention",), "attention.merge."),
    "residual": Expected(("computation", "mutation"), ("blocks.1", "blocks.1.norm2"), "blocks.1.norm2."),
    "gradient": Expected(("gradient",), ("blocks.0.narrow", "blocks.1"), ".backward"),
}
#: Calls alone: those of MindSpore's layers are known by what they compute.
L1 = MIX | {
    "scale": Expected(("argument",), (None,), "Tensor.__mul__.1.forward"),
    "mask": Expected(("structure",), (None,), "Tensor.__add__.4.forward"),
    "gelu": Expected(("argument",), (None,), "Functional.gelu.0.forward, input.approximate"),
    "residual": Expected(("structure",), (None,), "Tensor.__add__.5.forward"),
    "epsilon": Expected(("computation",), (None,), "4.forward, output.0"),
    "gradient": Expected(("gradient",), (None,), "Tensor.__add__.3.backward"),
    "learning_rate": Expected(_MOVED, (None,), "input.", step=1),
}
WAYS = {"mix": MIX, "L0": L0, "L1": L1, "md5": MIX, "tensor": MIX, "structure": MIX}


def check_healthy(folder: Path, name: str) -> None:
    """A healthy pair agrees, whichever of the two is the candidate."""
    for candidate, reference in (FRAMEWORKS, FRAMEWORKS[::-1]):
        verdict = compare_runs(folder / f"{candidate}_{name}", folder / f"{reference}_{name}")
        assert (verdict.status, verdict.findings) == ("agree", ()), told(verdict)
        # It is no agreement of nothing. A GRU is one call in PyTorch, and in MindSpore one for each step of time.
        assert verdict.summary["pairs"] >= 3 * verdict.summary["steps_compared"]
        if name == "healthy":
            assert verdict.summary["pairs"] > verdict.summary["candidate_only"] + verdict.summary["reference_only"]


def check_mistake(folder: Path, name: str, planted: str, expected: Expected) -> None:
    """A mistake in one framework is named first, in its place, whichever of the two is the candidate."""
    other = next(one for one in FRAMEWORKS if one != planted)
    pair = folder / f"{planted}_{name}", folder / f"{other}_healthy"
    for candidate, reference in (pair, pair[::-1]):
        verdict = compare_runs(candidate, reference)
        assert verdict.status == "diverged", told(verdict)
        # A dump of a mistake may have fewer steps, which is said besides.
        first = next(one for one in verdict.findings if one.kind != "step_count")
        assert first.step == expected.step, told(verdict)
        assert first.kind in expected.kinds, told(verdict)
        assert first.module in expected.modules, told(verdict)
        assert expected.word in first.where, told(verdict)


def told(verdict: Verdict) -> str:
    """A verdict for the eye."""
    findings = (f"{one.step} {one.kind} {one.module} {one.where}: {one.message}" for one in verdict.findings[:10])
    return "\n".join([verdict.status, *findings])
