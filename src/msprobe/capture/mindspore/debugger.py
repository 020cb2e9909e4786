"""``PrecisionDebugger`` for MindSpore: what a user's script calls. One per process; all methods work on the class and
on the object.
"""

from __future__ import annotations

import atexit
from typing import Any

import mindspore

from msprobe import log
from msprobe.capture.mindspore.cells import name_cells
from msprobe.capture.mindspore.ranks import current_rank
from msprobe.capture.mindspore.recorder import MindSporeRecorder
from msprobe.capture.mindspore.start_arguments import check_model
from msprobe.capture.mindspore.support import check_graph_settings, check_settings
from msprobe.capture.start_arguments import check_rank_id, check_token_range
from msprobe.config.load import load_settings
from msprobe.config.settings import Settings
from msprobe.errors import InvalidInputError
from msprobe.store.ownership import refuse_old_dumps

SWITCHED_OFF = 'the configuration says "dump_enable": false'


class PrecisionDebugger:
    """Records a training: in the dynamic graph (PYNATIVE_MODE), or the cells of a static graph (GRAPH_MODE, level L0).

    ::

        debugger = PrecisionDebugger(config_path="config.json")
        for batch in dataset:
            debugger.start(model)
            loss, gradients = grad_function(batch)
            debugger.stop()
            optimizer(gradients)
            debugger.step()

    A second construction returns the first object; its arguments are not looked at (a warning says so).
    """

    _instance: PrecisionDebugger | None = None
    _ready = False

    def __new__(cls, *args: Any, **kwargs: Any) -> PrecisionDebugger:
        if PrecisionDebugger._instance is None:
            PrecisionDebugger._instance = super().__new__(cls)
        return PrecisionDebugger._instance

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

        Arguments go before fields of the file. ``overrides``: further fields of config.json, by name. ``opt`` is not
        used; scripts for earlier tools give it. Raises InvalidInputError, ScopeError, PathError or NotAvailableError;
        all mistakes of a file in one message.
        """
        if self._ready:
            if config_path or task or dump_path or level or step or overrides:
                log.once(
                    "second construction",
                    "warning",
                    "PrecisionDebugger exists already in this process; the arguments of the second construction"
                    " are ignored.",
                )
            return
        try:
            settings = load_settings(config_path, task=task, dump_path=dump_path, level=level, step=step, **overrides)
            check_settings(settings)
            rank = current_rank()
            if settings.existing == "refuse" and settings.wants_rank(rank or 0):
                refuse_old_dumps(settings.dump_path, rank, settings.wants_step)
            self._set_up(settings)
        except BaseException:
            PrecisionDebugger._instance = None
            raise
        self._ready = True

    def _set_up(self, settings: Settings) -> None:
        self.settings = settings
        self.recorder = MindSporeRecorder(settings)
        self._tokens: Any = None
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
        check_rank_id(rank_id)
        level = self.settings.level
        if level == "debug":
            return
        in_graph = mindspore.get_context("mode") == mindspore.GRAPH_MODE
        if in_graph:
            check_graph_settings(self.settings)
        if model is None and (level in ("L0", "mix") or token_range is not None):
            raise InvalidInputError(
                f"start(): level {level} watches cells; pass the model: start(model)."
                if token_range is None
                else "start(): token_range counts calls of the model; pass it: start(model, token_range=...)."
            )
        if model is not None:
            check_model(model, self.recorder.names)
        tokens = check_token_range(token_range)
        outcome = self.recorder.session.outcome
        if self.settings.dump_enable is False:
            outcome.reason = SWITCHED_OFF
            return
        named = name_cells(model, self.settings.record_root, self.recorder.names) if model is not None else []
        if in_graph:
            self.recorder.start_graph(named, rank_id)
            return
        if tokens is None:
            self.recorder.start(model, named, rank_id)
            return
        outcome.reason = f"no call of the model came within token_range {token_range}"
        if self._tokens is None:
            from msprobe.capture.mindspore.token_range import TokenRange

            self._tokens = TokenRange(self.recorder, model, named, tokens, rank_id)

    @classmethod
    def stop(cls) -> None:
        """Stop recording and write the files. Recording may start again in the same step and goes on there."""
        self = cls._require()
        self._end_tokens()
        if self.settings.level == "debug":
            return
        if self.recorder.session.recording or self.recorder.session.records_in_step:
            self.recorder.stop()

    @classmethod
    def step(cls) -> None:
        """This iteration is over: finish its files; all numbers begin at zero again."""
        self = cls._require()
        self._end_tokens()
        recorder, session = self.recorder, self.recorder.session
        recorder.next_step()
        # step without stop: recording goes on in the next step, if that one is wanted.
        if session.recording and not session.settings.wants_step(session.step):
            recorder.detach()
            session.recording = False
        last = self.settings.last_step
        if last is not None and session.step > last:
            recorder.detach()
            session.end()

    @classmethod
    def forward_backward_dump_end(cls) -> None:
        """The same as :meth:`stop`."""
        cls.stop()

    @classmethod
    def save(cls, variable: Any, name: str, save_backward: bool = True) -> None:
        """Record a variable by hand (level debug): a tensor, number, text, or lists, tuples and dicts of them.

        Its gradient too, unless ``save_backward`` is False. What cannot be saved gives a warning; the training goes on.
        """
        self = cls._require()
        if self.settings.level != "debug" or self.settings.task not in ("statistics", "tensor"):
            return
        from msprobe.capture.mindspore.saving import save_variable

        save_variable(self.recorder, variable, name, save_backward)

    @classmethod
    def set_init_step(cls, step: int) -> None:
        """Number the steps from ``step`` (a resumed training).

        Called inside a step, between its first start and step(), it is the next step that gets the number.
        """
        self = cls._require()
        if isinstance(step, bool) or not isinstance(step, int) or step < 0:
            raise InvalidInputError(f"set_init_step(): step must be an int from 0, found {step!r}.")
        if not self.recorder.session.number_steps_from(step):
            log.once(
                "set_init_step",
                "warning",
                f"set_init_step({step}) was called inside step {self.recorder.session.step}, of which records are"
                " there already: it holds from the next step on. Call it before start(), or after step().",
            )

    @classmethod
    def register_custom_api(cls, module: Any, api: str, api_prefix: str | None = None) -> None:
        """Record calls of ``module.api`` as ``{api_prefix}.{api}.{n}`` (prefix: the module's name, else "Custom")."""
        self = cls._require()
        _check_api(module, api, api_prefix)
        if self.settings.level not in ("L1", "mix"):
            log.info(f"register_custom_api(): level {self.settings.level} records no calls; {api} is not watched.")
            return
        prefix = api_prefix or getattr(module, "__name__", None) or "Custom"
        self.recorder.apis.add(module, api, f"{prefix}.{api}")

    @classmethod
    def restore_custom_api(cls, module: Any, api: str) -> None:
        """Undo :meth:`register_custom_api`."""
        self = cls._require()
        _check_api(module, api, None)
        if not self.recorder.apis.remove(module, api) and self.settings.level in ("L1", "mix"):
            log.warning(f"restore_custom_api(): {getattr(module, '__name__', module)!s}.{api} was not registered.")

    @classmethod
    def monitor(cls, opt: Any) -> None:
        """Watch gradients (task grad_probe); with any other task this does nothing."""
        cls._require()

    # ---------------------------------------------------------------- ours

    @classmethod
    def existing(cls) -> PrecisionDebugger | None:
        """The debugger of this process, if there is one."""
        instance = PrecisionDebugger._instance
        return instance if instance is not None and instance._ready else None

    @classmethod
    def reset(cls) -> None:
        """End the recording of this process and forget its debugger; another one can be made."""
        self = PrecisionDebugger._instance
        if self is not None and self._ready:
            self._close()
            atexit.unregister(self._close)
        PrecisionDebugger._instance = None

    def _close(self) -> None:
        self._end_tokens()
        self.recorder.close()

    def _end_tokens(self) -> None:
        tokens, self._tokens = self._tokens, None
        if tokens is not None:
            tokens.close()

    @classmethod
    def _require(cls) -> PrecisionDebugger:
        instance = cls.existing()
        if instance is None:
            raise InvalidInputError(
                "PrecisionDebugger: instance is not created; construct PrecisionDebugger(...) before calling its"
                " methods."
            )
        return instance


def _check_api(module: Any, api: Any, prefix: Any) -> None:
    if not isinstance(api, str):
        raise InvalidInputError(f"register_custom_api(): api must be a str, found {api!r}.")
    if prefix is not None and not isinstance(prefix, str):
        raise InvalidInputError(f"register_custom_api(): api_prefix must be a str, found {prefix!r}.")
    if not callable(getattr(module, api, None)):
        holder = getattr(module, "__name__", None) or type(module).__name__
        what = "has no attribute" if not hasattr(module, api) else "cannot be called:"
        raise InvalidInputError(
            f'register_custom_api(): {holder} {what} "{api}"; give a module and the name of a function.'
        )
