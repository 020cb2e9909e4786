"""What the parts of a monitor share: the configuration, the models, the meter, and what this step has measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msprobe.monitor.config import MonitorConfig
from msprobe.monitor.framework import MonitorFramework
from msprobe.monitor.gathering import Gathering
from msprobe.monitor.operators import Operators
from msprobe.monitor.watched import WatchedModel


class ConfiguredState:
    """Of one configuration: a changed one gets a new state."""

    def __init__(
        self, framework: MonitorFramework, config: MonitorConfig, models: Sequence[Any], micro_steps: int
    ) -> None:
        self.framework = framework
        self.config = config
        self.models = models
        # Micro batches in each step of the optimizer.
        self.micro_steps = micro_steps
        self.watched = WatchedModel(framework, models, config)
        self.operators = Operators(config.ops, config.eps)
        self.meter = framework.new_meter(self.operators)
        self.gathering = Gathering(0, config.ops)

    def begin(self, step: int) -> None:
        """A step begins that is measured."""
        self.meter.drop()
        self.gathering = Gathering(step, self.operators.names)

    def change_ops(self, ops: Sequence[str]) -> None:
        """Other operators from the next step on."""
        self.operators = Operators(ops, self.config.eps)
        self.meter = self.framework.new_meter(self.operators)
