"""``PrecisionDebugger`` for MindSpore: what a user's script calls. One per process; all methods work on the class and
on the object.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from msprobe import log
from msprobe.capture.debugger import SWITCHED_OFF, Debugger
from msprobe.capture.method_arguments import check_api, check_rank_id, check_token_range
from msprobe.capture.mindspore.cells import check_model, name_cells
from msprobe.capture.mindspore.graphs.execution import in_graph_mode
from msprobe.capture.mindspore.ranks import RANKS
from msprobe.capture.mindspore.recorder import MindSporeRecorder
from msprobe.capture.mindspore.support import check_dynamic_settings, check_graph_settings, check_settings
from msprobe.config.load import load_settings
from msprobe.config.settings import Settings
from msprobe.errors import InvalidInputError, NotAvailableError
from msprobe.messages import said
from msprobe.store import layout


class PrecisionDebugger(Debugger, one_per_process=True):
    """Records a training: in the dynamic graph (PYNATIVE_MODE), or the cells of a static graph (GRAPH_MODE, level L0).

    ::

        debugger = PrecisionDebugger(config_path="config.json")
        for batch in dataset:
            debugger.start(model)
            loss, gradients = grad_function(batch)
            debugger.stop()
            optimizer(gradients)
            debugger.step()

    Also as a context manager, ``with debugger.recording(model): ...`` for one iteration.

    A second construction returns the first object; its arguments are not looked at (a warning says so).
    """

    recorder: MindSporeRecorder
    _probe_module = "msprobe.grad_probe.mindspore"
    _benchmark_module = "msprobe.perturb.mindspore"

    def __init__(
        self,
        config_path: str | None = None,
        task: str | None = None,
        dump_path: str | None = None,
        level: str | None = None,
        step: list[int | str] | None = None,
        opt: Any = None,
        **overrides: Any,
    ) -> None:
        """Read and check the configuration; nothing is attached yet.

        Arguments go before fields of the file. ``overrides``: further fields of config.json, by name. ``opt`` does
        nothing, which a line says; scripts for earlier tools give it. Raises InvalidInputError, ScopeError, PathError
        or NotAvailableError; all mistakes of a file in one message.
        """
        if opt is not None:
            log.once("opt", "warning", said("opt-without-effect"))
        if self._is_second(config_path, task, dump_path, level, step, overrides):
            return

        def load() -> Settings:
            loaded = load_settings(config_path, task=task, dump_path=dump_path, level=level, step=step, **overrides)
            if loaded.lockstep is not None:
                raise NotAvailableError(said("lockstep-for-mindspore"))
            check_settings(loaded)
            return loaded

        try:
            settings = load()
            for part in ("", layout.STEP_BY_STEP, layout.COMPILED):
                path = os.path.join(settings.dump_path, part)
                self._refuse_old_dumps(replace(settings, dump_path=path), RANKS.current())
            self._set_up(settings, load)
        except BaseException:
            self._home._instance = None
            raise
        self._ready = True

    def _set_up(self, settings: Settings, load: Callable[[], Settings]) -> None:
        self.settings = settings
        self.recorder = MindSporeRecorder(settings)
        # Its files lie beside each other, and there is no dump.
        self.recorder.session.keeps_records = not settings.keeps_none
        self._listen_for_benchmark()
        self._watch_config(settings, load)
        atexit.register(self._close)

    # ---------------------------------------------------------------- the interface

    @classmethod
    def start(cls, model: Any = None, token_range: Any = None, rank_id: int | None = None) -> None:
        """Begin recording, if this step and rank are wanted.

        ``model``: a Cell, or a list or tuple of them; needed at L0 and mix, and with ``token_range``. At L1 the
        primitives that its cells hold are recorded as well. The root itself is not recorded, the cells inside are.
        ``token_range`` ``[a, b]``: count the calls of the model since start, record calls a to b only. ``rank_id``: the
        number in the folder's name instead of the rank of the process group. A second start before stop changes
        nothing. In a static graph it must come before the graph is compiled, which the first run does.
        """
        self = cls._require()
        if self._begins_probing():
            return
        check_rank_id(rank_id)
        self._look_at_config()
        level = self.settings.level
        if level == "debug":
            return
        in_graph = in_graph_mode()
        outcome = self.recorder.session.outcome
        with outcome.checks_of_start():
            if in_graph:
                check_graph_settings(self.settings)
            else:
                check_dynamic_settings(self.settings)
            self._check_model_given(model, token_range, "cells")
            if model is not None:
                check_model(model, self.recorder.names)
            tokens = check_token_range(token_range)
        named = name_cells(model, self.settings.record_root, self.recorder.names) if model is not None else []
        listens = self.recorder.bus.has_listeners
        if listens and in_graph:
            log.once(
                "listeners",
                "warning",
                said("listeners-of-static-graph"),
            )
        if not self.is_on():
            outcome.reason = said(SWITCHED_OFF)
            if in_graph:
                self.recorder.prepare_graph(named)
            elif model is not None:
                self.recorder.prepare_compiled(model, named)
            if listens and not in_graph:
                self.recorder.start(model, named, rank_id, dumps=False)
            return
        self._begins_to_record()
        if in_graph:
            if tokens is not None:
                raise InvalidInputError(said("token-range-of-static-graph", token_range))
            if not self.settings.keeps_none:
                self.recorder.start_graph(named, rank_id)
            return
        if tokens is None:
            self.recorder.start(model, named, rank_id, dumps=not self.settings.keeps_none)
            return
        outcome.reason = said("no-call-in-token-range", token_range)
        if self._tokens is None:
            from msprobe.capture.mindspore.token_range import TokenRange

            self._tokens = TokenRange(self.recorder, model, named, tokens, rank_id)

    @classmethod
    def save(cls, variable: Any, name: str, save_backward: bool = True) -> None:
        """Record a variable by hand (level debug): a tensor, number, text, or lists, tuples and dicts of them.

        Its gradient too, unless ``save_backward`` is False. What cannot be saved gives a warning; the training goes on.
        """
        self = cls._require()
        if self._saves_variables():
            from msprobe.capture.mindspore.saving import VariableSaver
            from msprobe.capture.saving import save_variable

            save_variable(self.recorder, VariableSaver, variable, name, save_backward)

    @classmethod
    def register_custom_api(cls, module: Any, api: str, api_prefix: str | None = None) -> None:
        """Record calls of ``module.api`` as ``{api_prefix}.{api}.{n}`` (prefix: the module's name, else "Custom")."""
        self = cls._require()
        check_api(module, api, api_prefix)
        if self.settings.level not in ("L1", "mix"):
            log.info(said("custom-api-at-level", self.settings.level, api))
            return
        prefix = api_prefix or getattr(module, "__name__", None) or "Custom"
        self.recorder.apis.add(module, api, f"{prefix}.{api}")

    @classmethod
    def restore_custom_api(cls, module: Any, api: str) -> None:
        """Undo :meth:`register_custom_api`."""
        self = cls._require()
        check_api(module, api, None)
        if not self.recorder.apis.remove(module, api) and self.settings.level in ("L1", "mix"):
            log.warning(said("custom-api-not-registered", getattr(module, "__name__", module), api))

    def _renewed(self, settings: Settings) -> MindSporeRecorder:
        renewed = MindSporeRecorder(settings)
        renewed.take_over(self.recorder)
        renewed.session.keeps_records = not settings.keeps_none
        return renewed
