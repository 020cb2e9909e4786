"""What the parts of a recorder know of it, and how they let go of the graph together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from msprobe.capture.bus import Bus
from msprobe.capture.session import Session
from msprobe.capture.targets import Targets
from msprobe.capture.torch.calls.call_records import CallRecorder
from msprobe.capture.torch.calls.names import ApiNames
from msprobe.capture.torch.gradients.graph_nodes import NodeHooks
from msprobe.capture.torch.gradients.parameter_gradients import ParameterHooks
from msprobe.capture.torch.modules.models import Models
from msprobe.capture.torch.threads import RecordedThread


@dataclass(frozen=True)
class Context:
    """What a part works with. ``level``: that of the dump, "none" where nothing is dumped."""

    level: str
    calls: CallRecorder
    targets: Targets
    bus: Bus
    models: Models
    thread: RecordedThread

    @property
    def session(self) -> Session:
        """The session of the run."""
        return self.calls.session

    @cached_property
    def names(self) -> ApiNames:
        """Which calls are recorded, and under which names."""
        settings = self.session.settings
        return ApiNames(
            settings.api_scope != "listed" and settings.risk_level is None,
            settings.api_list_file,
            settings.custom_op_namespaces,
        )


@dataclass(frozen=True)
class GraphHooks:
    """The hooks on nodes of the graph, those of the dump and those of listeners."""

    nodes: Sequence[NodeHooks]
    parameters: Sequence[ParameterHooks]

    def prune(self) -> None:
        """Forget the hooks of nodes that are gone."""
        for hooks in self.nodes:
            hooks.prune()

    def remove(self) -> None:
        """Take the hooks off all nodes but those of parameters."""
        for hooks in self.nodes:
            hooks.remove()

    @property
    def is_suspended(self) -> bool:
        """Whether no hooks are put now."""
        return any(hooks.suspended for hooks in self.nodes)

    def suspend(self) -> None:
        """What puts hooks on nodes is compiled or captured: take all away, and put none until :meth:`resume`."""
        for hooks in self.nodes:
            hooks.suspended = True
            hooks.remove()
        for parameters in self.parameters:
            parameters.remove()

    def resume(self) -> None:
        """Hooks may be put again."""
        for hooks in self.nodes:
            hooks.suspended = False
