"""``PrecisionDebugger``: what a user's script calls. One per process; all methods work on the class and on
the object.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from msprobe import log
from msprobe.capture.torch.custom import register_again
from msprobe.capture.torch.dataloader import LoaderSteps
from msprobe.capture.torch.live_switch import LiveSwitch
from msprobe.capture.torch.recorder import TorchRecorder, current_rank, name_modules
from msprobe.capture.torch.start_arguments import check_model, check_rank_id, check_token_range
from msprobe.capture.torch.token_range import TokenRange
from msprobe.config.load import load_settings
from msprobe.config.settings import Settings
from msprobe.errors import InvalidInputError
from msprobe.store.ownership import refuse_old_dumps

SWITCHED_OFF = 'the configuration says "dump_enable": false'


class PrecisionDebugger:
    """Records a training.

    ::

        debugger = PrecisionDebugger(config_path="config.json")
        for batch in loader:
            debugger.start(model)
            loss = model(batch)
            loss.backward()
            debugger.stop()
            optimizer.step()
            debugger.step()

    Also as a context manager: ``with debugger.recording(model): ...`` is start, stop and step of one
    iteration, and ``with PrecisionDebugger(...) as debugger:`` ends the recording and writes what is left.

    A second construction returns the first object; its arguments are not looked at (a warning says so).
    """

    _instance: PrecisionDebugger | None = None
    _ready = False
    # The debugger of this process is that of `msprobe run`: makes room for one that the script constructs.
    _give_way: Callable[[], None] | None = None

    def __new__(cls, *args: Any, **kwargs: Any) -> PrecisionDebugger:
        give_way, PrecisionDebugger._give_way = PrecisionDebugger._give_way, None
        if give_way is not None:
            give_way()
        if PrecisionDebugger._instance is None:
            PrecisionDebugger._instance = super().__new__(cls)
        return PrecisionDebugger._instance

    def __init__(
        self,
        config_path: str | None = None,
        task: str | None = None,
        dump_path: str | None = None,
        level: str | None = None,
        model: Any = None,
        step: list[int | str] | None = None,
        **overrides: Any,
    ) -> None:
        """Read and check the configuration; nothing is attached yet.

        Arguments go before fields of the file. ``overrides``: further fields of config.json, by name. Raises
        InvalidInputError, ScopeError, PathError or NotAvailableError; all mistakes of a file in one message. With
        ``existing`` "refuse" an old dump of this rank is a PathError.
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

        def load() -> Settings:
            return load_settings(config_path, task=task, dump_path=dump_path, level=level, step=step, **overrides)

        try:
            if model is not None:
                log.warning("PrecisionDebugger(model=...) is deprecated: pass the model to start(model).")
                check_model(model)
            settings = load()
            rank = current_rank()
            if settings.existing == "refuse" and settings.wants_rank(rank or 0):
                refuse_old_dumps(settings.dump_path, rank, settings.wants_step)
            self._set_up(settings, model, load)
        except BaseException:
            PrecisionDebugger._instance = None
            raise
        self._ready = True

    def _set_up(self, settings: Settings, model: Any, load: Callable[[], Settings]) -> None:
        self.settings = settings
        self.recorder = TorchRecorder(settings)
        self._model = model
        self._tokens: TokenRange | None = None
        self._loader: LoaderSteps | None = None
        self._switch: LiveSwitch | None = None
        # Settings of a changed file that wait for the end of a step that is being recorded.
        self._next_settings: Settings | None = None
        if settings.enable_dataloader:
            self._loader = LoaderSteps(self._begin_batch, self._end_batch)
            self.recorder.session.outcome.reason = "enable_dataloader is on, and no DataLoader gave a batch"
            self._loader.attach()
        if settings.dump_enable is not None and settings.config_path is not None:
            self._switch = LiveSwitch(settings.config_path, load, settings.dump_enable)
        atexit.register(self._close)

    # ---------------------------------------------------------------- the interface

    @classmethod
    def start(
        cls,
        model: Any = None,
        token_range: Any = None,
        rank_id: int | None = None,
        scheduled_tokens: Any = None,
    ) -> None:
        """Begin recording, if this step and rank are wanted.

        ``model``: a Module, or a list or tuple of them; needed at L0 and mix, and with ``token_range``. The
        root itself is not recorded, its sub-modules are. ``token_range`` ``[a, b]``: count the calls of the
        model's forward since start, record calls a to b only. ``rank_id``: the number in the folder's name
        instead of the rank of the process group. A second start before stop changes nothing.
        """
        self = cls._require()
        check_rank_id(rank_id)
        self._look_at_config()
        if self.settings.level == "debug":
            return
        given = model if model is not None else self._model
        if given is None and (self.settings.level in ("L0", "mix") or token_range is not None):
            raise InvalidInputError(
                f"start(): level {self.settings.level} watches modules; pass the model: start(model)."
                if token_range is None
                else "start(): token_range counts calls of the model; pass it: start(model, token_range=...)."
            )
        if given is not None:
            check_model(given)
        tokens = check_token_range(token_range)
        if self._loader is not None:
            self._model = given
            self._say_that_loader_drives("start()")
            if self._loader.inside:
                self._begin_batch()
            return
        outcome = self.recorder.session.outcome
        if not self.is_on():
            outcome.reason = SWITCHED_OFF
            return
        named = name_modules(given, self.settings.record_root) if given is not None else []
        self.recorder.models = given
        if tokens is not None:
            outcome.reason = f"no call of the model came within token_range {token_range}"
            if self._tokens is None:
                self._tokens = TokenRange(self.recorder, given, named, tokens, rank_id)
            return
        self.recorder.start(named, rank_id)

    @classmethod
    def stop(cls) -> None:
        """Stop recording and write the files. Recording may start again in the same step and goes on there."""
        self = cls._require()
        self._look_at_config()
        if self._loader is not None:
            self._say_that_loader_drives("stop()")
            return
        self._stop()

    def _stop(self) -> None:
        self._end_tokens()
        if self.settings.level == "debug":
            return
        if self.recorder.session.recording or self.recorder.session.records_in_step:
            self.recorder.stop()

    @classmethod
    def step(cls) -> None:
        """This iteration is over: finish its files; all numbers begin at zero again."""
        self = cls._require()
        if self._loader is not None:
            self._say_that_loader_drives("step()")
            return
        self._step()
        self._look_at_config()

    def _step(self) -> None:
        self._end_tokens()
        recorder = self.recorder
        session = recorder.session
        recorder.next_step()
        # step without stop: recording goes on in the next step, if that one is wanted.
        if session.recording and not session.settings.wants_step(session.step):
            recorder.detach()
            session.recording = False
        last = self.settings.last_step
        if last is not None and session.step > last:
            recorder.detach()
            session.end()
        self._take_next_settings()

    @classmethod
    def forward_backward_dump_end(cls) -> None:
        """The same as :meth:`stop`."""
        cls.stop()

    @classmethod
    def save(cls, variable: Any, name: str, save_backward: bool = True) -> None:
        """Record a variable by hand (level debug): a tensor, number, text, or lists, tuples and dicts of
        them; None inside of those is null in the dump.

        Its gradient too, unless ``save_backward`` is False. What cannot be saved gives a warning; the
        training goes on.
        """
        self = cls._require()
        if self.settings.level != "debug" or self.settings.task not in ("statistics", "tensor"):
            return
        from msprobe.capture.torch.saving import save_variable

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
        """Record calls of ``module.api`` as ``{api_prefix}.{api}.{n}`` (prefix: the module's name, else
        "Custom").
        """
        self = cls._require()
        from msprobe.capture.torch.custom import register

        register(self.recorder, module, api, api_prefix)

    @classmethod
    def restore_custom_api(cls, module: Any, api: str) -> None:
        """Undo :meth:`register_custom_api`."""
        self = cls._require()
        from msprobe.capture.torch.custom import restore

        restore(self.recorder, module, api)

    @classmethod
    def monitor(cls, model: Any) -> None:
        """Watch gradients (task grad_probe); with any other task this does nothing."""
        cls._require()

    # ---------------------------------------------------------------- ours

    @classmethod
    def recording(cls, model: Any = None, **options: Any) -> _Recording:
        """One iteration as a block: start at its beginning, stop and step at its end, also when it raises."""
        return _Recording(cls._require(), model, options)

    def __enter__(self) -> PrecisionDebugger:
        return self

    def __exit__(self, *error: object) -> None:
        self._close()

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
        if self._loader is not None:
            self._loader.detach()
        self.recorder.close()

    def _end_tokens(self) -> None:
        tokens, self._tokens = self._tokens, None
        if tokens is not None:
            tokens.close()

    # ---------------------------------------------------------------- driven by the data loader

    def _begin_batch(self) -> None:
        level = self.settings.level
        self._look_at_config()
        if level == "debug" or not self.is_on():
            self.recorder.session.outcome.reason = "" if level == "debug" else SWITCHED_OFF
            return
        if self._model is None and level in ("L0", "mix"):
            # The first start(model) will bring it.
            self.recorder.session.outcome.reason = f"level {level} needs the model, and start(model) was never called"
            return
        named = name_modules(self._model, self.settings.record_root) if self._model is not None else []
        self.recorder.models = self._model
        self.recorder.start(named)

    def _end_batch(self) -> None:
        self._stop()
        self._step()

    def _say_that_loader_drives(self, call: str) -> None:
        log.once(
            ("dataloader", call),
            "warning",
            f"enable_dataloader is on: each batch of a DataLoader begins a new step, and {call} in the script"
            " does nothing.",
        )

    # ---------------------------------------------------------------- switched by the configuration file

    def is_on(self) -> bool:
        """False while the configuration says ``"dump_enable": false``."""
        return (self._next_settings or self.settings).dump_enable is not False

    def _look_at_config(self) -> None:
        settings = self._switch.look() if self._switch is not None else None
        if settings is not None:
            self._next_settings = settings
            if settings.dump_enable is False and self.recorder.session.recording:
                self._end_tokens()
                self.recorder.stop()
            self._take_next_settings()

    def _take_next_settings(self) -> None:
        settings, session = self._next_settings, self.recorder.session
        if settings is None or session.recording or session.records_in_step:
            return
        self._next_settings = None
        if replace(settings, dump_enable=None) != replace(self.settings, dump_enable=None):
            self.recorder.close(is_end=False)
            renewed = TorchRecorder(settings)
            renewed.session.outcome = self.recorder.session.outcome
            renewed.session.step = session.step
            register_again(self.recorder, renewed)
            self.recorder = renewed
        self.settings = settings

    @classmethod
    def _require(cls) -> PrecisionDebugger:
        instance = cls.existing()
        if instance is None:
            raise InvalidInputError(
                "PrecisionDebugger: instance is not created; construct PrecisionDebugger(...) before calling its"
                " methods."
            )
        return instance


class _Recording:
    """One recorded iteration."""

    def __init__(self, debugger: PrecisionDebugger, model: Any, options: dict[str, Any]) -> None:
        self.debugger = debugger
        self.model = model
        self.options = options

    def __enter__(self) -> PrecisionDebugger:
        self.debugger.start(self.model, **self.options)
        return self.debugger

    def __exit__(self, *error: object) -> None:
        self.debugger.stop()
        self.debugger.step()
