"""``PrecisionDebugger``: what a user's script calls. One per process; all methods work on the class and on
the object.
"""

from __future__ import annotations

import atexit
import importlib
from collections.abc import Callable
from typing import Any

from msprobe import log
from msprobe.capture.debugger import SWITCHED_OFF, Debugger
from msprobe.capture.method_arguments import check_rank_id, check_scheduled_tokens, check_token_range
from msprobe.capture.torch.calls.custom import register_again
from msprobe.capture.torch.calls.custom_list import ListedApis
from msprobe.capture.torch.dataloader import LoaderSteps
from msprobe.capture.torch.modules.models import name_modules
from msprobe.capture.torch.recorder import RANKS, TorchRecorder
from msprobe.capture.torch.start_arguments import ModelReference, check_model, check_settings
from msprobe.capture.torch.tensors.token_range import TokenRange
from msprobe.config.load import load_settings
from msprobe.config.settings import Settings
from msprobe.guard import answers_user, attempt, guarded
from msprobe.messages import said


class PrecisionDebugger(Debugger, one_per_process=True):
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

    recorder: TorchRecorder
    _probe_module = "msprobe.grad_probe.torch"
    _benchmark_module = "msprobe.perturb.torch"
    _lockstep_module = "msprobe.lockstep.torch.session"
    # The debugger of this process is that of `msprobe run`: makes room for one that the script constructs, and is
    # reported in words what that is.
    _give_way: Callable[[str], None] | None = None

    def __new__(cls, *args: Any, **kwargs: Any) -> PrecisionDebugger:
        cls.make_way(said("own-debugger"))
        return super().__new__(cls)

    @staticmethod
    def make_way(what: str) -> None:
        """If `msprobe run` records this process it ends: the script has ``what`` for that."""
        give_way, PrecisionDebugger._give_way = PrecisionDebugger._give_way, None
        if give_way is not None:
            give_way(what)

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
        if self._is_second(config_path, task, dump_path, level, step, overrides):
            return

        def load() -> Settings:
            loaded = load_settings(config_path, task=task, dump_path=dump_path, level=level, step=step, **overrides)
            if loaded.lockstep is not None:
                loaded = importlib.import_module(self._lockstep_module).prepared(loaded)
            check_settings(loaded)
            return loaded

        try:
            if model is not None:
                log.warning(said("model-argument-deprecated"))
                check_model(model)
            settings = load()
            self._refuse_old_dumps(settings, RANKS.current())
            self._set_up(settings, model, load)
        except BaseException:
            self._home._instance = None
            raise
        self._ready = True

    def _set_up(self, settings: Settings, model: Any, load: Callable[[], Settings]) -> None:
        self.settings = settings
        self.recorder = TorchRecorder(settings)
        self._listed = ListedApis(settings.custom_api_file)
        self._begin_sending()
        self._listen_for_benchmark()
        if settings.lockstep is not None:
            self._lockstep = importlib.import_module(self._lockstep_module).Session(settings, self.recorder)
        self._model = ModelReference(model)
        self._tokens: TokenRange | None = None
        self._loader: LoaderSteps | None = None
        if settings.enable_dataloader:
            self._loader = LoaderSteps(self._begin_batch, self._end_batch)
            self.recorder.session.outcome.reason = said("no-batch-of-loader")
            self._loader.attach()
        self._watch_config(settings, load)
        atexit.register(self._close)

    # ---------------------------------------------------------------- the interface

    @classmethod
    @answers_user
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
        instead of the rank of the process group. ``scheduled_tokens`` is an argument of mindstudio-probe 26.2:
        anything but None raises NotAvailableError. A second start before stop changes nothing.
        """
        self = cls._require()
        if self._begins_probing():
            return
        check_rank_id(rank_id)
        check_scheduled_tokens(scheduled_tokens)
        self._look_at_config()
        listens = self.recorder.bus.has_listeners
        if self.settings.level == "debug" and not listens:
            return
        given = model if model is not None else self._model()
        outcome = self.recorder.session.outcome
        with outcome.checks_of_start():
            self._check_model_given(given, token_range, "modules")
            if given is not None:
                check_model(given)
            tokens = check_token_range(token_range)
        if self._loader is not None:
            self._model = ModelReference(given)
            self._say_that_loader_drives("start()")
            if self._loader.inside:
                self._begin_batch()
            return
        dumps = self.is_on() and self.settings.level != "debug"
        if not dumps and self.settings.level != "debug":
            outcome.reason = said(SWITCHED_OFF)
        if not dumps and not listens:
            return
        if dumps:
            self._begins_to_record()
        named = name_modules(given, self.settings.record_root) if given is not None else []
        self.recorder.models.give(given)
        self._listed.register(self.recorder)
        if tokens is not None:
            outcome.reason = said("no-call-in-token-range", token_range)
            if self._tokens is None:
                self._tokens = TokenRange(self.recorder, given, named, tokens, rank_id)
            return
        self.recorder.start(named, rank_id, dumps)

    @classmethod
    @answers_user
    def stop(cls) -> None:
        """Stop recording and write the files. Recording may start again in the same step and goes on there."""
        self = cls._require()
        self._look_at_config()
        if self._loader is not None:
            self._say_that_loader_drives("stop()")
            return
        self._stop()

    @classmethod
    @answers_user
    def step(cls) -> None:
        """This iteration is over: finish its files; all numbers begin at zero again."""
        self = cls._require()
        if self._loader is not None:
            self._say_that_loader_drives("step()")
            return
        self._step()
        self._look_at_config()

    @classmethod
    @answers_user
    def save(cls, variable: Any, name: str, save_backward: bool = True) -> None:
        """Record a variable by hand (level debug): a tensor, number, text, or lists, tuples and dicts of
        them; None inside of those is null in the dump.

        Its gradient too, unless ``save_backward`` is False. What cannot be saved gives a warning; the
        training goes on.
        """
        self = cls._require()
        if self._saves_variables():
            from msprobe.capture.saving import save_variable
            from msprobe.capture.torch.saving import VariableSaver

            save_variable(self.recorder, VariableSaver, variable, name, save_backward)

    @classmethod
    @answers_user
    def register_custom_api(cls, module: Any, api: str, api_prefix: str | None = None) -> None:
        """Record calls of ``module.api`` as ``{api_prefix}.{api}.{n}`` (prefix: the module's name, else
        "Custom").
        """
        self = cls._require()
        from msprobe.capture.torch.calls.custom import register

        register(self.recorder, module, api, api_prefix)

    @classmethod
    @answers_user
    def restore_custom_api(cls, module: Any, api: str) -> None:
        """Undo :meth:`register_custom_api`."""
        self = cls._require()
        from msprobe.capture.torch.calls.custom import restore

        restore(self.recorder, module, api)

    @guarded
    def _close(self) -> None:
        if self._loader is not None:
            attempt(self._loader.detach)
        super()._close()

    # ---------------------------------------------------------------- driven by the data loader

    def _begin_batch(self) -> None:
        level = self.settings.level
        self._look_at_config()
        if level == "debug" or not self.is_on():
            self.recorder.session.outcome.reason = "" if level == "debug" else said(SWITCHED_OFF)
            return
        model = self._model()
        if model is None and level in ("L0", "mix"):
            # The first start(model) will bring it.
            self.recorder.session.outcome.reason = said("never-got-model", level)
            return
        self._begins_to_record()
        named = name_modules(model, self.settings.record_root) if model is not None else []
        self.recorder.models.give(model)
        self._listed.register(self.recorder)
        self.recorder.start(named)

    def _end_batch(self) -> None:
        self._stop()
        self._step()

    def _say_that_loader_drives(self, call: str) -> None:
        log.once(
            ("dataloader", call),
            "warning",
            said("dataloader-begins-steps", call),
        )

    # ---------------------------------------------------------------- switched by the configuration file

    def _renewed(self, settings: Settings) -> TorchRecorder:
        renewed = TorchRecorder(settings)
        register_again(self.recorder, renewed)
        self._listed = ListedApis(settings.custom_api_file)
        return renewed
