"""``ConfigChecker``: two lines in a training script, and its first micro-steps are in a pack."""

from __future__ import annotations

import atexit
import os
import types
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from msprobe import log
from msprobe.config_check import settings as dynamic
from msprobe.config_check.collection import Collection
from msprobe.config_check.framework import CheckedFramework, framework
from msprobe.config_check.random_calls import RandomCalls
from msprobe.environment.configuration import collecting
from msprobe.environment.configuration.pack import PackWriter, check_pack_path
from msprobe.environment.hyperparameters.reading import NotAListError, UnknownSourceError, check_sources
from msprobe.errors import InvalidInputError
from msprobe.guard import answers_user, guarded
from msprobe.messages import joined, said

__all__ = ["CHECKERS", "ConfigChecker"]

DEFAULT_PACK = "./config_check_pack.zip"
#: The parts of a check, and what each is called in a result.
CHECKERS = types.MappingProxyType(
    {
        "env": "env",
        "pip": "pip",
        "dataset": "dataset",
        "weights": "weights",
        "hyperparameter": "hyperparameters",
        "random": "random",
    }
)


class ConfigChecker:
    """Collects what a training begins with into a pack, which ``msprobe config_check -c A.zip B.zip`` compares.

    ::

        from msprobe.core.config_check import ConfigChecker

        ConfigChecker.apply_patches("pytorch")          # first: calls of random functions are counted from here on
        ...
        ConfigChecker(model, ["train.sh", "ds.json"], "pack.zip", "pytorch", settings=args)

    Rank 0 writes environment variables, packages and hyper-parameters; every rank writes statistics and digests of all
    weights and of the inputs of the first ``steps`` forward passes (micro-steps), calls of random functions, seeds,
    states of generators and dropout layers. Then everything is taken off again. The training is not changed, and an
    error in here ends the collection with one line in the log.

    ``model``: the model, or a list of its parts, whose first marks the micro-steps; None collects neither weights
    nor inputs.
    ``shell_path``: files of hyper-parameters (scripts, settings). ``output_zip_path``: ends with ``.zip``.
    ``fmk``: ``pytorch`` or ``mindspore``. ``steps``: how many micro-steps, 1 or more. ``settings``: the arguments
    of the program, as a dict, a namespace, a dataclass or a configuration, or several in a list. Those of Megatron are
    found.

    ``watch=False``: the program says by :meth:`collect` when a micro-step begins.

    Raises InvalidInputError for arguments that cannot be used: a TypeError, too, for a ``shell_path`` that is no list,
    a ValueError for a kind of file that is not read.
    """

    checkers: ClassVar[types.MappingProxyType[str, str]] = CHECKERS
    #: The micro-step that comes next in the last collection.
    step: ClassVar[int] = 0
    result_filename: ClassVar[str] = "result.xlsx"
    result_header: ClassVar[list[str]] = ["filename", "pass_check"]

    _calls: ClassVar[RandomCalls | None] = None
    _collections: ClassVar[list[Collection]] = []
    _collection: Collection | None = None

    @answers_user
    def __init__(
        self,
        model: Any = None,
        shell_path: Sequence[str | os.PathLike[str]] | None = None,
        output_zip_path: str = DEFAULT_PACK,
        fmk: str = "pytorch",
        steps: int = 1,
        settings: Any = None,
        watch: bool = True,
    ) -> None:
        chosen, models, paths = _checked(model, shell_path, output_zip_path, fmk, steps)
        given = dynamic.without_path(dynamic.as_settings(settings), output_zip_path)
        writer = PackWriter(output_zip_path)
        is_first = chosen.rank() == 0
        _guarded("collects-nothing", lambda: self._write_start(writer, paths, given, is_first))
        if models:
            calls, type(self)._calls = type(self)._calls or RandomCalls(()), None
            self._collection = Collection(chosen, models, writer, steps, calls, self._count_step)
            self._collection.given = given if is_first else None
            begin = self._collection.begin if watch else self._collection.wait
            type(self)._collections.append(self._collection)
            _guarded("collects-no-weights", begin)

    @classmethod
    @answers_user
    def apply_patches(cls, fmk: str = "pytorch") -> None:
        """Count calls of random functions and note seeds from here on, until the first micro-steps are collected.

        Raises InvalidInputError for another framework than ``pytorch`` and ``mindspore``.
        """
        chosen = framework(fmk)
        if cls._calls is None:
            cls._calls = RandomCalls(chosen.functions, chosen.is_compiling, chosen.compilers)
        _guarded("counts-no-calls", cls._calls.begin)

    @classmethod
    @answers_user
    def remove_patches(cls) -> None:
        """Put everything back that was replaced or watched, in all collections; packs stay as they are."""
        if cls._calls is not None:
            cls._calls.end()
            cls._calls = None
        for collection in cls._collections:
            collection.end()
        cls._collections.clear()

    @staticmethod
    def compare(bench_zip_path: str, cmp_zip_path: str, output_path: str, fmk: str = "pytorch") -> None:
        """Compare two packs, the trusted one first, and write result.xlsx and a page into the folder ``output_path``.

        Packs know their framework; ``fmk`` must be the name of one all the same. Raises PathError, InvalidInputError
        for packs that cannot be read, a folder that holds something else and another ``fmk``.
        """
        if fmk not in ("pytorch", "mindspore"):
            raise InvalidInputError(said("fmk-of-compare", fmk))
        from msprobe.report.configuration.folder import compare_to_folder
        from msprobe.report.configuration.text import lines

        for line in lines(compare_to_folder(bench_zip_path, cmp_zip_path, output_path)):
            log.info(line)

    @answers_user
    def collect(self, *args: Any, **kwargs: Any) -> None:
        """Say that a micro-step begins, with these inputs: for a model that is not called, or a compiled graph."""
        if self._collection is not None:
            self._collection.before(args, kwargs)
            self._collection.after()

    @property
    def is_collecting(self) -> bool:
        """True while micro-steps are still to come."""
        return self._collection is not None and self._collection.is_watching

    @staticmethod
    def _write_start(writer: PackWriter, paths: list[str], given: dict[str, Any], is_first: bool) -> None:
        if not is_first:
            return
        entries = collecting.static_entries(dict(os.environ), paths)
        settings = {**dynamic.without_path(dynamic.megatron_settings() or {}, writer.path), **given}
        if settings:
            entries.update(collecting.dynamic_entry(settings))
        writer.add(entries)

    @classmethod
    def _count_step(cls, step: int) -> None:
        ConfigChecker.step = step


def _checked(
    model: Any, shell_path: Any, output_zip_path: Any, fmk: Any, steps: Any
) -> tuple[CheckedFramework, list[Any], list[str]]:
    """The framework, the models and the files. Raises InvalidInputError with all that is wrong."""
    problems: list[InvalidInputError] = []

    def tried(check: Callable[[], Any]) -> Any:
        try:
            return check()
        except InvalidInputError as problem:
            problems.append(problem)
            return None

    chosen = tried(lambda: framework(fmk))
    tried(lambda: check_pack_path(output_zip_path))
    paths = tried(lambda: check_sources(shell_path or [])) or []
    models = tried(lambda: chosen.models_of(model)) if chosen is not None and model is not None else []
    if type(steps) is not int or steps < 1:
        problems.append(InvalidInputError(said("config-check-steps-wrong", repr(steps)[:80])))
    if problems:
        kinds = [
            kind
            for kind in (NotAListError, UnknownSourceError)
            if any(isinstance(problem, kind) for problem in problems)
        ]
        kind = kinds[0] if kinds else InvalidInputError
        raise kind(joined(" ", (problem.message for problem in problems))) from problems[0]
    return chosen, models, paths


def _guarded(loss: str, function: Callable[[], object]) -> None:
    """Run a part of the check; what goes wrong is reported once, and never the training's problem. ``loss``: the piece
    that says what is lost then.
    """
    try:
        function()
    except Exception as problem:
        log.once(f"config_check: {loss}", "error", said("config-check-failed", said(loss), problem))


@guarded
def _at_exit() -> None:
    _guarded("did-not-end", ConfigChecker.remove_patches)


atexit.register(_at_exit)
