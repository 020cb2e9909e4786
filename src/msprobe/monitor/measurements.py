"""What a monitored step has measured: one row for each tensor, for all who write, judge or show it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

# What is measured, by the name of its csv files. "update" is what a step changed a parameter by, with columns of its
# own (``norm`` of the change, ``ratio`` to the norm of the weight); "state" is what no optimizer owns: buffers and
# averages; "other" is gradient-to-momentum agreement and communication.
Quantity = Literal[
    "actv",
    "actv_grad",
    "grad_unreduced",
    "grad_reduced",
    "exp_avg",
    "exp_avg_sq",
    "param_origin",
    "param_updated",
    "update",
    "state",
    "other",
    "attention_hook",
    "linear_hook",
    "moe_router_weight_hook",
    "moe_router_logit_hook",
]

#: Features of layers: their files have no columns ``shape`` and ``dtype``.
OF_LAYERS: frozenset[Quantity] = frozenset(
    ("attention_hook", "linear_hook", "moe_router_weight_hook", "moe_router_logit_hook")
)
#: Of module passes, which a step has several of: their rows say the micro step.
BY_MICRO_STEP: frozenset[Quantity] = frozenset(("actv", "actv_grad"))


class Row(NamedTuple):
    """The statistics of one tensor at one step.

    ``stage``: index of the model chunk (``vpp_stage`` in files). ``name``: of the parameter, or ``module.input``,
    ``module.output_1``. ``micro_step``: None where a step has one only. ``values``: in the order of
    ``StepMetrics.ops_of``; None where an operator has no answer (``nan`` in files). ``shape``, ``dtype``: None where
    there was no tensor.
    """

    stage: int
    name: str
    micro_step: int | None
    values: tuple[float | int | bool | None, ...]
    shape: tuple[int, ...] | None
    dtype: str | None


@dataclass(frozen=True, slots=True)
class StepMetrics:
    """All that one step of one rank has measured.

    ``step``: the optimizer step, as the user counts. ``ops``: operators of this step, in the order of the
    configuration, without shape and dtype. ``rows``: in the order in which they are written. ``columns``: the
    operators of quantities that have their own (``attention_hook``: ``entropy``, ``softmax_max``).
    ``scalars``: numbers of the step as a whole, by name; rules and reports know ``loss``, ``lr`` and ``grad_norm``.
    ``batch``: a digest of the step's data, empty where none was taken.
    """

    step: int
    ops: tuple[str, ...]
    rows: Mapping[Quantity, Sequence[Row]]
    columns: Mapping[Quantity, tuple[str, ...]] = field(default_factory=dict)
    scalars: Mapping[str, float] = field(default_factory=dict)
    batch: str = ""

    def ops_of(self, quantity: Quantity) -> tuple[str, ...]:
        """The operators that the rows of this quantity have values of."""
        return self.columns.get(quantity, self.ops)


@dataclass(frozen=True, slots=True)
class MonitorRun:
    """Whose measurements they are. ``started``: seconds since the epoch. ``config``: as the user wrote it, for
    ``run.json``. ``base``: the folder in which runs have theirs (``MONITOR_OUTPUT_DIR``).
    """

    base: str
    rank: int
    world: int
    started: float
    framework: str
    steps_per_file: int
    digits: int | None
    config: Mapping[str, Any]
    #: Begin and end of the timestamps among which a folder of an earlier run is gone on with; empty: a new folder.
    append_to: tuple[str, ...] = ()
    #: Where the files of this run go; empty before :func:`msprobe.monitor.files.begin`, or where none are wanted.
    folder: str = ""
    #: Which of the monitors that the process has at once in ``base`` this is, from 0.
    monitor: int = 0
