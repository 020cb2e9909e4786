"""``PrecisionDebugger``: what a user's script calls. One per process; all methods work on the class and on
the object.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from msprobe import log
from msprobe.capture.torch.recorder import TorchRecorder, name_modules
from msprobe.config.load import load_settings
from msprobe.config.settings import Settings
from msprobe.errors import InvalidInputError


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
        model: Any = None,
        step: list[int | str] | None = None,
        **overrides: Any,
    ) -> None:
        """Read and check the configuration; nothing is attached yet.

        Arguments go before fields of the file. ``overrides``: further fields of config.json, by name. Raises
        InvalidInputError, ScopeError, PathError or NotAvailableError; all mistakes of a file in one message.
        """
        if self._ready:
            if config_path or task or dump_path or level or step or overrides:
                log.once(
                    "second construction",
                    "warning",
                    "PrecisionDebugger exists already in this process; the arguments of the second construction are"
                    " ignored.",
                )
            return
        try:
            settings = load_settings(
                config_path, task=task, dump_path=dump_path, level=level, step=step, **overrides
            )
            if model is not None:
                log.warning("PrecisionDebugger(model=...) is deprecated: pass the model to start(model).")
                check_model(model)
            self._set_up(settings, model)
        except BaseException:
            PrecisionDebugger._instance = None
            raise
        self._ready = True

    def _set_up(self, settings: Settings, model: Any) -> None:
        self.settings = settings
        self.recorder = TorchRecorder(settings)
        self._model = model
        self._tokens: _TokenRange | None = None
        atexit.register(self._close)

    # ---------------------------------------------------------------- the interface

    @classmethod
    def start(
        cls, model: Any = None, token_range: Any = None, rank_id: int | None = None, scheduled_tokens: Any =
        None
    ) -> None:
        """Begin recording, if this step and rank are wanted.

        ``model``: a Module, or a list or tuple of them; needed at L0 and mix, and with ``token_range``. The
        root itself is not recorded, its sub-modules are. ``token_range`` ``[a, b]``: count the calls of the
        model's forward since start, record calls a to b only. ``rank_id``: the number in the folder's name
        instead of the rank of the process group. A second start before stop changes nothing.
        """
        self = cls._require()
        if rank_id is not None and (isinstance(rank_id, bool) or not isinstance(rank_id, int) or rank_id < 0):
            raise InvalidInputError(f"start(): rank_id must be an int from 0, found {rank_id!r}.")
        given = model if model is not None else self._model
        needs_model = self.settings.level in ("L0", "mix") or token_range is not None
        if self.settings.level == "debug":
            return
        if given is None and needs_model:
            raise InvalidInputError(
                f"start(): level {self.settings.level} watches modules; pass the model: start(model)."
                if token_range is None
                else "start(): token_range counts calls of the model; pass the model: start(model, token_range=...)."
            )
        if given is not None:
            check_model(given)
        tokens = check_token_range(token_range)
        if self.settings.enable_dataloader and self._loader_drives():
            return
        named = name_modules(given, self.settings.record_root) if given is not None else []
        if tokens is not None:
            if self._tokens is None:
                self._tokens = _TokenRange(self.recorder, given, named, tokens, rank_id)
            return
        self.recorder.start(named, rank_id)

    @classmethod
    def stop(cls) -> None:
        """Stop recording and write the files. Recording may start again in the same step and goes on where it
        was.
        """
        self = cls._require()
        if self._tokens is not None:
            self._tokens.close()
            self._tokens = None
        if self.settings.level == "debug":
            return
        if self.recorder.session.recording or self.recorder.session.records_in_step:
            self.recorder.stop()

    @classmethod
    def step(cls) -> None:
        """This iteration is over: finish its files; all numbers begin at zero again."""
        self = cls._require()
        if self._tokens is not None:
            self._tokens.close()
            self._tokens = None
        recorder = self.recorder
        if recorder.session.recording:
            # step without stop: recording goes on in the next step.
            recorder.next_step()
            if not recorder.session.settings.wants_step(recorder.session.step):
                recorder.detach()
                recorder.session.recording = False
        else:
            recorder.next_step()
        last = self.settings.last_step
        if last is not None and recorder.session.step > last:
            recorder.detach()
            recorder.session.end()

    @classmethod
    def forward_backward_dump_end(cls) -> None:
        """The same as :meth:`stop`."""
        cls.stop()

    @classmethod
    def save(cls, variable: Any, name: str, save_backward: bool = True) -> None:
        """Record a variable by hand (level debug): a tensor, number, text, or lists, tuples and dicts of them.

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
        """Number the steps from ``step`` (a resumed training)."""
        self = cls._require()
        if isinstance(step, bool) or not isinstance(step, int) or step < 0:
            raise InvalidInputError(f"set_init_step(): step must be an int from 0, found {step!r}.")
        self.recorder.session.step = step

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
        if self._tokens is not None:
            self._tokens.close()
            self._tokens = None
        self.recorder.close()

    def _loader_drives(self) -> bool:
        log.once("dataloader", "warning", "enable_dataloader is on: start() and stop() in the script are not needed.")
        return False

    @classmethod
    def _require(cls) -> PrecisionDebugger:
        instance = cls.existing()
        if instance is None:
            raise InvalidInputError(
                "PrecisionDebugger: instance is not created; construct PrecisionDebugger(...) before calling its methods."
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


class _TokenRange:
    """Turns recording on and off around chosen calls of a model."""

    def __init__(
        self,
        recorder: TorchRecorder,
        model: Any,
        named: list[tuple[str, nn.Module]],
        tokens: tuple[int, int],
        rank: int | None,
    ) -> None:
        self.recorder = recorder
        self.named = named
        self.tokens = tokens
        self.rank = rank
        self.calls = 0
        first = model[0] if isinstance(model, (list, tuple)) else model
        self._handles = [
            first.register_forward_pre_hook(self._before),
            first.register_forward_hook(self._after),
        ]

    def _before(self, *_: Any) -> None:
        if self.calls == self.tokens[0]:
            self.recorder.start(self.named, self.rank)

    def _after(self, *_: Any) -> None:
        if self.calls == self.tokens[1]:
            self.recorder.stop()
        self.calls += 1

    def close(self) -> None:
        """Take the counting hooks away."""
        for handle in self._handles:
            handle.remove()


def check_model(model: Any) -> None:
    """Raise InvalidInputError unless ``model`` is a Module or a non-empty list or tuple of Modules."""
    allowed = "a torch.nn.Module, or a list or tuple of them"
    if isinstance(model, (list, tuple)):
        if not model:
            raise InvalidInputError(f"start(): model is an empty {type(model).__name__} (empty list); pass {allowed}.")
        for i, part in enumerate(model):
            _check_module(part, f"model[{i}]", allowed)
        return
    _check_module(model, "model", allowed)


def _check_module(module: Any, where: str, allowed: str) -> None:
    kind = type(module).__name__
    if not isinstance(module, nn.Module):
        found = f"the class {module.__name__}" if isinstance(module, type) else kind
        raise InvalidInputError(f"start(): {where} must be {allowed}, found {found}.")
    if isinstance(module, torch.jit.ScriptModule):
        raise InvalidInputError(
            f"start(): {where} is a {kind} (ScriptModule), whose inside cannot be watched; pass {allowed} that is not"
            " scripted."
        )


def check_token_range(token_range: Any) -> tuple[int, int] | None:
    """The range as a pair; raises InvalidInputError unless it is None or two ints with 0 <= a <= b."""
    if token_range is None:
        return None
    sound = (
        isinstance(token_range, (list, tuple))
        and len(token_range) == 2
        and all(isinstance(n, int) and not isinstance(n, bool) for n in token_range)
        and 0 <= token_range[0] <= token_range[1]
    )
    if not sound:
        raise InvalidInputError(
            f"start(): token_range must be [a, b] with whole numbers 0 <= a <= b, found {token_range!r}."
        )
    return int(token_range[0]), int(token_range[1])


Hook = Callable[..., Any]
