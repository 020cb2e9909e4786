"""All rewritings by name, and how one is run in this process."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from msprobe.lockstep.verdict import judge_lockstep
from msprobe.pytorch import PrecisionDebugger
from rewritings import blocks, further, loops, losses, modules, recurrent, scales


@dataclass(frozen=True)
class Rewriting:
    """``part``: the class of a module; ``loss`` and ``way``: see the modules of these names. ``bugs``: what may be
    wrong beside it.
    """

    part: Any = None
    loss: Any = losses.cross_entropy
    way: Any = loops.plain
    bugs: tuple[str, ...] = ()
    steps: int = 2

    def train(self, dtype: torch.dtype, other: bool, bug: str = "", watched: bool = True) -> list[Any]:
        """Losses and weights."""
        torch.manual_seed(0)
        part = self.part(other, bug) if self.part is not None else None
        is_loss = self.loss is not losses.cross_entropy or self.part is None
        run = loops.Training(loops.Model(part).to(dtype), dtype, self.loss)
        if self.way not in (loops.adamw, loops.own_adamw):
            run.optimizer = torch.optim.SGD(run.parameters, 0.1, momentum=0.9)
        own = other if is_loss else False
        return loops.trained(run, self.way, own, bug if is_loss else "", self.steps, watched)


def _parts(*every: tuple[Any, tuple[str, ...]]) -> dict[str, Rewriting]:
    return {part.__name__: Rewriting(part, bugs=bugs) for part, bugs in every}


def _losses(*every: tuple[Any, tuple[str, ...]]) -> dict[str, Rewriting]:
    return {f"loss_{loss.__name__}": Rewriting(loss=loss, bugs=bugs) for loss, bugs in every}


def _ways(*every: tuple[Any, tuple[str, ...]]) -> dict[str, Rewriting]:
    return {way.__name__: Rewriting(way=way, bugs=bugs) for way, bugs in every}


TABLE: dict[str, Rewriting] = {
    **_parts(
        (modules.Unfolded, ("factor", "bias")),
        (modules.Shifted, ("tap",)),
        (modules.Depthwise, ("centred",)),
        (modules.Pooled, ("sum",)),
        (modules.BatchNorm, ("decay", "eps")),
        (modules.BatchNormLerped, ("decay",)),
        (modules.LayerNorm, ("unbiased", "eps")),
        (modules.GroupNorm, ("groups",)),
        (modules.InstanceNorm, ("eps",)),
        (modules.RmsNorm, ("eps",)),
        (modules.Normalized, ("norm",)),
        (modules.FusedAttention, ("scale",)),
        (modules.AttentionOfExp, ("scale",)),
        (modules.AttentionOfExpCast, ("scale",)),
        (modules.AttentionOfEinsum, ("scale",)),
        (modules.AttentionScaledBefore, ("scale",)),
        (modules.AttentionHeadByHead, ("head",)),
        (modules.AttentionSeparate, ("scale",)),
        (modules.AttentionInBlocks, ("rescale",)),
        (modules.LinearParts, ("bias",)),
        (modules.ColumnParts, ("bias",)),
        (modules.Gated, ("exchanged",)),
        (modules.Gelus, ("factor",)),
        (modules.AddedProducts, ("factor",)),
        (modules.InPlace, ("factor",)),
        (modules.Regrouped, ("order",)),
        (modules.Rotary, ("sign",)),
        (modules.DoesNothing, ("factor",)),
        (modules.OneHot, ("shifted",)),
        (modules.Experts, ("weight",)),
        (modules.Means, ("count",)),
        (recurrent.Lstm, ("gates",)),
        (recurrent.LstmCells, ("kept",)),
        (recurrent.Gru, ("gates",)),
        (recurrent.Rnn, ("state",)),
        (recurrent.Both, ("order",)),
        (recurrent.Running, ("decay",)),
        (blocks.RmsNormOfRoots, ("unbiased",)),
        (blocks.SwiGlu, ("exchanged",)),
        (blocks.GroupedQueries, ("repeat",)),
        (blocks.RotaryOfComplex, ("way",)),
        (blocks.WeightNorm, ("dim",)),
        (blocks.Pointwise, ("bias",)),
        (blocks.ChannelsLast, ("flipped",)),
        (blocks.GroupedConvolution, ("order",)),
        (blocks.Transposed, ("bias",)),
        (blocks.LinearOfEinsum, ("transposed",)),
        (blocks.Squeezed, ("largest",)),
        (blocks.WholeAttention, ("scale",)),
        (blocks.PixelShuffle, ("order",)),
        (blocks.Routed, ("sum",)),
        (blocks.LowRank, ("share",)),
        (blocks.GluOfHalves, ("tanh",)),
        (blocks.Bags, ("mean",)),
        (blocks.Bilinear, ("same",)),
        (blocks.Recomputed, ("factor",)),
        (blocks.Compiled, ("factor",)),
        (blocks.Upsampled, ("repeat",)),
        (further.SameValues, ("value",)),
        (further.Squares, ("two",)),
        (further.VarianceOfSquares, ("mean",)),
        (further.LinearAttention, ("factor",)),
        (further.TanhOfSigmoid, ("two",)),
        (further.Patches, ("order",)),
        (further.MaskedMean, ("count",)),
        (further.LogSoftmax, ("turned",)),
        (further.HeadsOfOutput, ("head",)),
        (further.Biased, ("scale",)),
    ),
    **_losses(
        (losses.chunked, ("mean",)),
        (losses.smoothed, ("smoothing",)),
        (losses.ignoring, ("count",)),
        (losses.squares, ("half",)),
        (losses.smooth_l1, ("beta",)),
        (losses.binary, ("mean",)),
        (losses.divergence, ("mean",)),
        (losses.weighted, ("mean",)),
        (losses.contrasted, ("own",)),
        (losses.focused, ("power",)),
    ),
    "loss_cross_entropy": Rewriting(bugs=("count",)),
    **_ways(
        (loops.clipped, ("limit",)),
        (loops.clipped_each, ("one",)),
        (loops.clipped_values, ("limit",)),
        (loops.clipped_flat, ("limit",)),
        (loops.in_pieces, ("count",)),
        (loops.other_pieces, ("count",)),
        (loops.asked_for, ("factor",)),
        (loops.repeated, ("factor",)),
        (loops.packed, ("order",)),
        (loops.sorted_rows, ("order",)),
        (loops.averaged, ("decay",)),
        (loops.adamw, ("beta",)),
        (loops.own_adamw, ("moment",)),
        (scales.scaled, ("one", "divisor")),
        (scales.with_scaler, ("twice",)),
        (scales.divided_behind, ("count",)),
        (scales.of_tokens, ("count",)),
        (scales.repeated_pieces, ("count",)),
        (scales.fused_adam, ("rate",)),
        (scales.in_groups, ("rate",)),
        (scales.zeroed, ("kept",)),
        (scales.closed, ("factor",)),
        (scales.under_autocast, ("count",)),
    ),
    # The first step begins with zeros, and the weights of the second are seen in the third.
    "written_sgd": Rewriting(way=loops.written_sgd, bugs=("momentum", "rounded"), steps=3),
    # A call takes a weight where the reference takes a result of fewer digits, and so its gradient has another type.
    "low_rank_under_autocast": Rewriting(blocks.LowRank, way=scales.under_autocast, bugs=("share",)),
}


def recorded(name: str, dtype: torch.dtype, folder: Path, level: str = "mix", optimizer: bool = True) -> Path:
    """The reference of a rewriting; its dump."""
    PrecisionDebugger.reset()
    PrecisionDebugger(task="tensor", level=level, dump_path=str(folder), optimizer=optimizer)
    TABLE[name].train(dtype, False)
    PrecisionDebugger.reset()
    return folder


def in_lockstep(name: str, dtype: torch.dtype, reference: Path, folder: Path, bug: str = "") -> Any:
    """The rewritten program against its reference, with a bug in it; the verdict."""
    PrecisionDebugger.reset()
    PrecisionDebugger(task="lockstep", reference=str(reference), verdict="later", dump_path=str(folder))
    TABLE[name].train(dtype, True, bug)
    PrecisionDebugger.reset()
    return judge_lockstep(folder, reference)


def judged(name: str, dtype: torch.dtype, folder: Path, bug: str = "", level: str = "mix") -> Any:
    """A rewriting with a bug in it, against its reference; the verdict."""
    reference = recorded(name, dtype, folder / "reference", level)
    return in_lockstep(name, dtype, reference, folder / "own", bug)


def apart(name: str, dtype: torch.dtype, bug: str = "") -> float:
    """How far losses and weights of both ways are apart without the debugger, relative to the largest."""
    one, other = (TABLE[name].train(dtype, side, bug if side else "", watched=False) for side in (True, False))
    pairs = [(a.double(), b.double()) for a, b in zip(one, other, strict=True) if a.is_floating_point()]
    return max(float((a - b).abs().max() / b.abs().max().clamp_min(1e-30)) for a, b in pairs)
