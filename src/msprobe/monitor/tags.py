"""What a number is called where each has a name of its own: in TensorBoard, Weights & Biases, alerts."""

from __future__ import annotations

from collections.abc import Iterator

from msprobe.monitor.measurements import StepMetrics

# The last part of a tag, by quantity, as mindstudio-probe 8.1.1 calls it.
_KINDS = {"grad_unreduced": "acc_grad", "grad_reduced": "post_grad", "other": "mg_direction"}


def tag_of(stage: int, name: str, micro_step: int | None, rank: int, quantity: str) -> str:
    """The tag of a tensor: ``{chunk}:{name}[:{micro step}]/rank{r}/{kind}``."""
    micro = "" if micro_step is None else f":{micro_step}"
    return f"{stage}:{name}{micro}/rank{rank}/{_KINDS.get(quantity, quantity)}"


def scalars_of(metrics: StepMetrics, rank: int) -> Iterator[tuple[str, float]]:
    """All numbers of a step with their tags, ``{tag of the tensor}_{operator}``; those of the step as a whole are
    ``rank{r}/{name}``. What is missing is left out.
    """
    for quantity, rows in metrics.rows.items():
        ops = metrics.ops_of(quantity)
        for row in rows:
            tag = tag_of(row.stage, row.name, row.micro_step, rank, quantity)
            for op, value in zip(ops, row.values, strict=True):
                if value is not None:
                    yield f"{tag}_{op}", float(value)
    for name, number in metrics.scalars.items():
        yield f"rank{rank}/{name}", float(number)


def quantity_of_kind(kind: str) -> str:
    """The quantity that the last part of a tag stands for."""
    return next((quantity for quantity, known in _KINDS.items() if known == kind), kind)
