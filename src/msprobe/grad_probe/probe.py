"""Which steps and parameters are wanted, and what becomes of what was found of them. Knows no framework."""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from msprobe import __version__, log
from msprobe.config.settings import GradientProbe, Settings
from msprobe.errors import PathError
from msprobe.foreign.nearest import near_words
from msprobe.grad_probe import layout
from msprobe.grad_probe.rows import GradientRow
from msprobe.grad_probe.writer import Entry, StepFiles, StepWriter
from msprobe.guard import pass_on
from msprobe.messages import said
from msprobe.paths import create_folder, write_atomically

_MOST_NAMED = 5


class Probe:
    """The probe of one process. Steps are counted from 0 on every rank, wanted or not."""

    def __init__(self, settings: Settings, framework: str) -> None:
        assert settings.gradient_probe is not None
        self.settings = settings
        self.fields: GradientProbe = settings.gradient_probe
        self.step = 0
        self._framework = framework
        self._writer = StepWriter(self.fields)
        # By the place of the parameter in the model.
        self._entries: dict[int, Entry] = {}
        # Those of a step whose optimizer has raised.
        self._given_up: dict[int, Entry] = {}
        self._nbytes = 0
        self._without: set[str] = set()
        self._folder: Path | None = None
        self._written = 0
        # As it was at the last step.
        self._rank: int | None = None
        self._closed = False

    # ---------------------------------------------------------------- which

    def is_wanted(self, rank: int | None) -> bool:
        """True if the step that runs now is to be written on this rank; a single process is rank 0."""
        return self.settings.wants_rank(rank or 0) and self.settings.wants_step(self.step)

    @property
    def is_over(self) -> bool:
        """True if no later step is wanted."""
        last = self.settings.last_step
        return last is not None and self.step > last

    def wanted_names(self, names: Sequence[str]) -> frozenset[str]:
        """Those of a model's parameters that are wanted; one warning for each wanted name that there is not."""
        wanted = self.fields.parameters
        if not wanted:
            return frozenset(names)
        for name in wanted:
            if name not in names:
                near = near_words(name, names, n=3, cutoff=0.5)
                near += [other for other in names if other.endswith(f".{name}") and other not in near][:3]
                hint = said("near-parameters", ", ".join(near)) if near else said("its-parameters", _some(names))
                log.once(("param_list", name), "warning", said("param-list-unknown", name, hint))
        return frozenset(names) & frozenset(wanted)

    # ---------------------------------------------------------------- what is found

    def announce(self, rank: int | None, names: Sequence[str]) -> None:
        """Say which parameters are watched."""
        if not rank:
            log.info(said("gradients-watched", self.fields.grad_level, len(names)))
            log.debug(f"grad_probe: {', '.join(names)}")

    def check_folder(self, rank: int | None) -> None:
        """Raise PathError if steps of an earlier run are there and the settings say to refuse that."""
        folder = self._rank_folder(rank)
        if self.settings.existing == "refuse" and self.settings.wants_rank(rank or 0) and _old_steps(folder):
            raise PathError(said("gradients-of-earlier-run", folder))

    def add(self, place: int, name: str, gradient: Any, count: int, read: Callable[..., Entry], *more: Any) -> None:
        """The gradient of the parameter at this place of the model, in the step that runs now: of ``count`` elements,
        measured by ``read(name, gradient, *more)``. One that cannot be read has a row without numbers.
        """
        try:
            self._entries[place] = read(name, gradient, *more)
        except Exception as error:
            pass_on(error)
            self._entries[place] = self._unreadable(name, gradient, error)
        self._nbytes += count + 1000

    def note_kind(self, name: str, kind: str) -> None:
        """The gradient of a parameter is no plain one. ``kind``: of the catalogue's pieces the one that says what."""
        log.once(("kind", name), "warning", said("gradient-of-parameter", name, said(kind)))

    def note_missing(self, names: Sequence[str]) -> None:
        """These parameters have no gradient; each is named once."""
        new = [name for name in names if name not in self._without]
        if new:
            self._without.update(new)
            more = said("and-more-of", len(new) - 8) if len(new) > 8 else ""
            log.info(said("gradients-missing", ", ".join(new[:8]), more, self.step))

    def _unreadable(self, name: str, gradient: Any, error: Exception) -> Entry:
        log.once(
            ("gradient", name),
            "warning",
            said("gradient-unreadable", name, type(gradient).__name__, type(error).__name__, str(error)[:200]),
        )
        shares = (float("nan"),) * (len(self.fields.bounds) + 1)
        return GradientRow(name, tuple(getattr(gradient, "shape", ())), shares=shares), None

    def end_step(self, rank: int | None) -> None:
        """The step is over: have it written, if it is wanted, also where no parameter had a gradient."""
        entries, self._entries, self._given_up = self._entries, {}, {}
        nbytes, self._nbytes = self._nbytes, 0
        self._rank = rank
        if self.is_wanted(rank):
            if self._folder is None:
                log.set_rank(rank)
                self._folder = self._rank_folder(rank)
                self._begin(self._folder, rank)
            ordered = [entries[place] for place in sorted(entries)]
            self._writer.put(StepFiles(self._folder, self.step, ordered, nbytes + 1))
            self._written += 1
        self.step += 1

    def give_up_step(self) -> None:
        """An optimizer has raised: the step counts only if the training ends by that."""
        self._given_up, self._entries = self._entries, {}

    def end_training(self, rank: int | None, has_begun: bool) -> None:
        """The training ends; ``has_begun``: in a step that some optimizers have made and others have not."""
        if not has_begun and self._given_up:
            self._entries, has_begun = self._given_up, True
        if has_begun:
            self.end_step(rank)

    def close(self, why_nothing: str = "") -> None:
        """Wait for the files, and say what came of it. ``why_nothing``: why there was no step, where that is known."""
        if self._closed:
            return
        self._closed = True
        self._writer.flush()
        if self._written:
            steps = "step" if self._written == 1 else "steps"
            log.info(said("gradients-written", self._written, steps, self._folder))
            return
        settings = self.settings
        if self._rank is not None and not settings.wants_rank(self._rank):
            return
        reason = why_nothing or said("no-optimizer-step")
        if self.step:
            asked = [said("asked-for-steps", list(settings.steps)[:8])] if settings.steps else []
            if not settings.wants_rank(self._rank or 0):
                asked.append(said("asked-for-ranks", list(settings.ranks)[:8]))
            reason = said(
                "steps-not-asked-for", self.step, said("asked-for-both", *asked) if len(asked) > 1 else asked[0]
            )
        log.warning(said("gradients-nothing-written", reason))

    # ---------------------------------------------------------------- the folder of the rank

    def _rank_folder(self, rank: int | None) -> Path:
        return Path(self.settings.dump_path) / f"rank{rank or 0}"

    def _begin(self, folder: Path, rank: int | None) -> None:
        """Make room, and write which run this is. What fails is reported when the steps are written."""
        with contextlib.suppress(PathError, OSError):
            create_folder(folder)
            self._deal_with_old(folder)
            fields = self.fields
            facts = {
                "task": "grad_probe",
                "run": uuid.uuid4().hex,
                "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
                "msprobe": __version__,
                "framework": self._framework,
                "rank": rank or 0,
                "grad_level": fields.grad_level,
                "bounds": list(fields.bounds),
                "checksum": fields.checksum,
                "direction": fields.direction,
                "compat_norm": fields.compat_norm,
            }
            write_atomically(folder / layout.RUN_FILE, json.dumps(facts, indent=1).encode() + b"\n", fsync=False)

    def _deal_with_old(self, folder: Path) -> None:
        old = _old_steps(folder)
        if not old:
            return
        if self.settings.existing == "overwrite":
            log.warning(said("earlier-gradients-replaced", folder, len(old)))
            return
        for step, directions in layout.directions_of(folder).items():
            if step in old:
                for file in directions.glob("*.npy"):
                    file.unlink(missing_ok=True)
                with contextlib.suppress(OSError):  # something else is in it
                    directions.rmdir()
        for file in layout.summaries_of(folder).values():
            file.unlink(missing_ok=True)
        log.info(said("earlier-gradients-removed", len(old), folder))


def _old_steps(folder: Path) -> frozenset[int]:
    try:
        return frozenset(layout.summaries_of(folder))
    except OSError:
        return frozenset()


def _some(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (said("and-more-of", more) if more > 0 else "")
