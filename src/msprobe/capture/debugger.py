"""What the debuggers of all frameworks have in common: one per process, and how its steps go."""

from __future__ import annotations

import atexit
import importlib
import types
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, Generic, TypeVar

from msprobe import log
from msprobe.capture.live_switch import LiveSwitch
from msprobe.config.settings import Settings
from msprobe.errors import InvalidInputError
from msprobe.guard import answers_user, attempt, guarded
from msprobe.messages import said
from msprobe.store.ownership import refuse_old_dumps

#: Why nothing was recorded, as the catalogue names it.
SWITCHED_OFF = "dump-enable-is-off"

_Own = TypeVar("_Own", bound="Debugger")


class Debugger:
    """The part of ``PrecisionDebugger`` that asks no framework. All methods work on the class and on the object.

    A framework's class names itself with ``one_per_process=True``; classes that users derive from it share its object.
    """

    #: Begin recording; each framework's own.
    start: Any
    settings: Settings
    # The framework's own: session, stop(), next_step(), detach(), close(), as TorchRecorder has them.
    recorder: Any
    _tokens: Any = None
    # Looks for changes of the configuration file; None where recording is not to be switched by it.
    _switch: LiveSwitch | None = None
    # Settings of a changed file that wait for the end of a step that is being recorded.
    _next_settings: Settings | None = None
    _ready = False
    # Task grad_probe: the module of the room above this one that watches gradients, what watches them here, and whether
    # the program frames its iterations by start and stop.
    _probe_module: ClassVar[str]
    # Task free_benchmark: the module of the room that makes calls again, and its listener here.
    _benchmark_module: ClassVar[str]
    _benchmark: Any = None
    _probe: Any = None
    # Task lockstep: the room that runs a training against a recorded one, and what does it here.
    _lockstep_module: ClassVar[str] = ""
    _lockstep: Any = None
    _frames_iterations = False
    # The online check: what its module gave, which sends the records of this process.
    _sending: Any = None
    _home: ClassVar[type[Debugger]]
    _stands_beside: ClassVar[bool] = False
    # Of classes that record beside the program's: who gives way to it.
    _beside: ClassVar[dict[type[Debugger], Callable[[], None]]] = {}
    _instance: ClassVar[Any] = None

    def __init_subclass__(cls, one_per_process: bool = False, **more: Any) -> None:
        super().__init_subclass__(**more)
        if one_per_process:
            cls._home = cls
            cls._instance = None

    def __new__(cls: type[_Own], *args: Any, **kwargs: Any) -> _Own:
        home = cls._home
        if home._instance is None:
            home._instance = super().__new__(cls)
        instance: _Own = home._instance
        return instance

    def _is_second(self, *given: Any) -> bool:
        """True if this object was made before; a warning says that what was ``given`` now is not looked at."""
        if self._ready and any(given):
            log.once(
                "second construction",
                "warning",
                said("debugger-constructed-twice"),
            )
        return self._ready

    @staticmethod
    def _refuse_old_dumps(settings: Settings, rank: int | None) -> None:
        """Raise PathError if an old dump of this rank is in the way and the settings say to refuse that."""
        if settings.existing == "refuse" and settings.wants_rank(rank or 0):
            refuse_old_dumps(settings.dump_path, rank, settings.wants_step)

    # ---------------------------------------------------------------- the interface

    @classmethod
    @answers_user
    def forward_backward_dump_end(cls) -> None:
        """The same as ``stop``."""
        cls.stop()

    @classmethod
    @answers_user
    def stop(cls) -> None:
        """Stop recording and write the files. Recording may start again in the same step and goes on there."""
        self = cls._require()
        self._look_at_config()
        self._stop()

    @classmethod
    @answers_user
    def step(cls) -> None:
        """This iteration is over: finish its files; all numbers begin at zero again."""
        self = cls._require()
        self._step()
        self._look_at_config()

    @classmethod
    @answers_user
    def set_init_step(cls, step: int) -> None:
        """Number the steps from ``step`` (a resumed training).

        Called inside a step, between its first start and step(), it is the next step that gets the number.
        """
        self = cls._require()
        if isinstance(step, bool) or not isinstance(step, int) or step < 0:
            raise InvalidInputError(said("init-step-wrong", step))
        if not self.recorder.session.number_steps_from(step):
            log.once(
                "set_init_step",
                "warning",
                said("init-step-later", step, self.recorder.session.step),
            )

    @classmethod
    @answers_user
    def monitor(cls, watched: Any) -> None:
        """Task ``grad_probe``: write numbers and direction of all gradients at each optimizer step from now on, until
        ``stop`` or the end of the program. ``watched``: in PyTorch the model, or a list of models, in MindSpore the
        optimizer. Nothing else is to be called; with any other task nothing is watched, which a warning says.
        """
        self = cls._require()
        if self.settings.gradient_probe is None:
            log.once(
                "monitor",
                "warning",
                said("monitor-without-effect", self.settings.task),
            )
            return
        if self._probe is None:
            self._probe = importlib.import_module(self._probe_module).GradientProbe(self.settings)
        self._probe.watch(watched)

    # ---------------------------------------------------------------- listeners

    @classmethod
    @answers_user
    def add(cls, listener: Any) -> None:
        """Notify ``listener`` (an Observer or a Changer of ``msprobe.listeners``) of what happens between start and
        stop, from the next start on: in the steps and ranks of its own cadence, whether these are dumped or not.
        """
        cls._require().recorder.bus.add(listener)

    @classmethod
    @answers_user
    def remove(cls, listener: Any) -> None:
        """Notify ``listener`` nothing more."""
        cls._require().recorder.bus.remove(listener)

    # ---------------------------------------------------------------- as a block

    @classmethod
    def recording(cls: type[_Own], model: Any = None, into: Any = None, **options: Any) -> _Recording[_Own]:
        """One iteration as a block: start at its beginning, stop and step at its end, also when it raises.

        ``into``: where its records go in place of the dump folder: a :class:`msprobe.capture.memory.Memory`, or another
        :class:`msprobe.capture.sinks.Sink`.
        """
        return _Recording(cls._require(), model, into, options)

    def __enter__(self: _Own) -> _Own:
        return self

    def __exit__(self, *error: object) -> None:
        attempt(self._close)

    # ---------------------------------------------------------------- one per process

    @classmethod
    def beside(cls: type[_Own], give_way: Callable[[], None]) -> type[_Own]:
        """A class whose one object records beside that of the program. ``give_way`` is called when the program's own
        begins to record a step: two dumps at once would each have a little of the other's work in it.
        """

        def fill(names: dict[str, Any]) -> None:
            names["__new__"] = Debugger.__new__
            names["_stands_beside"] = True

        made: type[_Own] = types.new_class(f"{cls.__name__}Beside", (cls,), {"one_per_process": True}, fill)
        Debugger._beside[made] = give_way
        return made

    def _begins_to_record(self) -> None:
        """This debugger is about to record: those beside the program's give way to it."""
        session = self.recorder.session
        if Debugger._beside and not self._stands_beside and session.settings.wants_step(session.step):
            for give_way in list(Debugger._beside.values()):
                attempt(give_way)

    @classmethod
    def existing(cls: type[_Own]) -> _Own | None:
        """The debugger of this process, if there is one."""
        instance: _Own | None = cls._home._instance
        return instance if instance is not None and instance._ready else None

    @classmethod
    @answers_user
    def reset(cls) -> None:
        """End the recording of this process and forget its debugger; another one can be made."""
        self = cls.existing()
        if self is not None:
            self._close()
            atexit.unregister(self._close)
        cls._home._instance = None
        Debugger._beside.pop(cls, None)

    @classmethod
    def _require(cls: type[_Own]) -> _Own:
        instance = cls.existing()
        if instance is None:
            raise InvalidInputError(said("debugger-not-created"))
        return instance

    # ---------------------------------------------------------------- how its steps go

    def _saves_variables(self) -> bool:
        """True if ``save`` has something to do: it is silent at all levels but debug."""
        return self.settings.level == "debug" and self.settings.task in ("statistics", "tensor")

    def _check_model_given(self, model: Any, token_range: Any, parts: str) -> None:
        """Raise InvalidInputError if a model is needed and none is there; ``parts``: what its parts are called."""
        level = self.settings.level
        if model is None and (level in ("L0", "mix") or token_range is not None):
            raise InvalidInputError(
                said("level-needs-model", level, parts) if token_range is None else said("token-range-needs-model")
            )

    def _begins_probing(self) -> bool:
        """True if the task is not the recorder's: ``start`` has nothing to do."""
        if self.settings.gradient_probe is None:
            return False
        self._frames_iterations = True
        if self._probe is None:
            log.once(
                "start without monitor",
                "warning",
                said("start-without-monitor"),
            )
        return True

    def _listen_for_benchmark(self) -> None:
        """Give the recorder, which is new, the listener of task ``free_benchmark`` if the settings ask for it."""
        self._end_benchmark()
        if self.settings.free_benchmark is not None:
            self._benchmark = importlib.import_module(self._benchmark_module).free_benchmark(self.settings)
            self.recorder.bus.add(self._benchmark)

    def _end_benchmark(self) -> None:
        benchmark, self._benchmark = self._benchmark, None
        if benchmark is not None:
            self.recorder.bus.remove(benchmark)
            self.recorder.session.guard(benchmark.end)

    def _end_probe(self) -> None:
        probe, self._probe = self._probe, None
        if probe is not None:
            probe.end()

    def _stop(self) -> None:
        if self.settings.gradient_probe is not None:
            # One that answers a start is the end of an iteration.
            if not self._frames_iterations:
                self._end_probe()
            return
        self._end_tokens()
        if self.settings.level == "debug" and not self.recorder.session.recording:
            return
        if self.recorder.session.recording or self.recorder.session.records_in_step:
            self.recorder.stop()

    def _step(self) -> None:
        if self.settings.gradient_probe is not None:
            return
        self._end_tokens()
        recorder = self.recorder
        session = recorder.session
        recorder.next_step()
        # step without stop: recording goes on in the next step, if that one is wanted.
        if session.is_dumping and not session.settings.wants_step(session.step):
            recorder.detach()
            session.recording = False
        last = self.settings.last_step
        if last is not None and session.step > last and not session.ended:
            if session.is_dumping:
                recorder.detach()
            session.end()
        self._take_next_settings()

    @guarded
    def _close(self) -> None:
        if self.settings.gradient_probe is not None:
            attempt(self._end_probe)
            self.recorder.close(is_end=False)
            return
        attempt(self._end_tokens)
        attempt(self.recorder.close, not self._stands_beside)
        lockstep, self._lockstep = self._lockstep, None
        if lockstep is not None:
            attempt(lockstep.end)
        attempt(self._end_benchmark)
        attempt(self._end_sending)

    # ---------------------------------------------------------------- records that are sent to be checked

    def _begin_sending(self) -> None:
        """Send the records to who checks them, if the settings say so. Raises PathError or InvalidInputError."""
        if self.settings.online is None:
            return
        if self._sending is None:
            module = importlib.import_module("msprobe.precheck.online.sending")
            self._sending = module.Sending(self.settings.online)
        self.recorder.session.record_into(self._sending.sink)

    def _end_sending(self) -> None:
        sending, self._sending = self._sending, None
        if sending is not None:
            sending.close()

    def _end_tokens(self) -> None:
        tokens, self._tokens = self._tokens, None
        if tokens is not None:
            tokens.close()

    # ---------------------------------------------------------------- switched by the configuration file

    def is_on(self) -> bool:
        """False while the configuration says ``"dump_enable": false``."""
        return (self._next_settings or self.settings).dump_enable is not False

    def _watch_config(self, settings: Settings, load: Callable[[], Settings]) -> None:
        """From here on the file is read again when it has changed, if it has the field ``dump_enable``."""
        if settings.dump_enable is not None and settings.config_path is not None:
            self._switch = LiveSwitch(settings.config_path, load, settings.dump_enable)

    def _look_at_config(self) -> None:
        settings = self._switch.look() if self._switch is not None else None
        if settings is not None:
            self._next_settings = settings
            if settings.dump_enable is False and self.recorder.session.is_dumping:
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
            renewed = self._renewed(settings)
            renewed.session.outcome = self.recorder.session.outcome
            renewed.session.number_steps_from(session.step)
            renewed.bus.adopt(self.recorder.bus)
            self.recorder = renewed
        before, self.settings = self.settings, settings
        if replace(settings, dump_enable=None) != replace(before, dump_enable=None):
            self._begin_sending()
            self._listen_for_benchmark()

    def _renewed(self, settings: Settings) -> Any:
        """A recorder for other settings, in place of the one there is: each framework's own."""
        raise NotImplementedError


class _Recording(Generic[_Own]):
    """One recorded iteration."""

    def __init__(self, debugger: _Own, model: Any, into: Any, options: dict[str, Any]) -> None:
        self.debugger = debugger
        self.model = model
        self.into = into
        self._session: Any = None
        self._before: Any = None
        self.options = options

    def __enter__(self) -> _Own:
        if self.into is not None:
            self._session = self.debugger.recorder.session
            self._before = self._session.record_into(self.into)
        try:
            self.debugger.start(self.model, **self.options)
        except BaseException:
            self._restore()
            raise
        return self.debugger

    def __exit__(self, *error: object) -> None:
        try:
            self.debugger.stop()
            self.debugger.step()
        finally:
            self._restore()

    def _restore(self) -> None:
        if self._session is not None:
            self._session.sink = self._before
