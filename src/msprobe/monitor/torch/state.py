"""What the parts of a monitor share: the configuration, the models, the meter, and what this step has measured."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from msprobe.monitor.config import MonitorConfig
from msprobe.monitor.gathering import Gathering
from msprobe.monitor.operators import Operators
from msprobe.monitor.torch.meter import Meter
from msprobe.monitor.torch.watched import Watched


class State:
    """Of one configuration: a changed one gets a new state."""

    def __init__(self, config: MonitorConfig, models: Sequence[nn.Module], micro_steps: int, defer: bool) -> None:
        self.config = config
        self.models = models
        # Micro batches in each step of the optimizer.
        self.micro_steps = micro_steps
        self.watched = Watched(models, config)
        self.operators = Operators(config.ops, config.eps)
        self.meter = Meter(self.operators, defer)
        self.gathering = Gathering(0, config.ops)

    def begin(self, step: int) -> None:
        """A step begins that is measured."""
        self.meter.drop()
        self.gathering = Gathering(step, self.operators.names)

    def change_ops(self, ops: Sequence[str]) -> None:
        """Other operators from the next step on."""
        self.operators = Operators(ops, self.config.eps)
        self.meter = Meter(self.operators, self.meter.defers)
