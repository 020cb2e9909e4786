"""The section ``run_ut`` (26.2: ``acc_check``) of ``config.json``: all mistakes are reported at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from msprobe import log
from msprobe.capture.api_list import shipped_list
from msprobe.config.fields import known_names
from msprobe.config.load import read_file
from msprobe.config.mistakes import ConfigSource, Mistake, raise_mistakes, shown
from msprobe.config.online import address_of, online_mistakes
from msprobe.config.other_tasks import RunUtFields
from msprobe.config.sections import Section, read_section, unknown_field_warnings
from msprobe.config.settings import Online
from msprobe.errors import InvalidInputError
from msprobe.foreign.nearest import near_words
from msprobe.messages import said
from msprobe.precheck.selection import Selection

_GROUPS = ("functional", "tensor", "torch", "torch_npu")
_SECTIONS = ("run_ut", "acc_check")


@dataclass(frozen=True)
class Settings:
    """What ``config.json`` says of the check. ``decimals``: of the floats in the csv files. ``is_online``: calls come
    from trainings, by ``address``; ``ranks``: those of which they are checked, all if empty.
    """

    selection: Selection = field(default_factory=Selection)
    error_data_path: str = "./"
    decimals: int = 14
    is_online: bool = False
    address: Online = field(default_factory=Online)
    ranks: tuple[int, ...] = ()


def load_settings(path: str | None) -> Settings:
    """Read the section of a config file; the defaults without one. Raises PathError or InvalidInputError."""
    if not path:
        return Settings()
    name, document = read_file(path)
    source = ConfigSource(name, document, {})
    title = next((section for section in _SECTIONS if section in document.value), _SECTIONS[0])
    raw = document.value.get(title)
    if raw is None:
        log.warning(said("config-without-section", name, title))
    for line in unknown_field_warnings(raw, (title,), known_names(RunUtFields), {}, source):
        log.warning(line)
    section = read_section(RunUtFields, raw, (title,), source)
    mistakes = [*section.mistakes, *_mistakes(section, title, source)]
    if mistakes:
        raise_mistakes(mistakes, name, InvalidInputError)
    fields = section.fields
    return Settings(
        Selection(frozenset(fields.white_list), frozenset(fields.black_list)),
        fields.error_data_path,
        fields.precision,
        fields.is_online,
        address_of(fields, "server"),
        tuple(fields.rank_list),
    )


def _mistakes(section: Section[RunUtFields], title: str, source: ConfigSource) -> Iterator[Mistake]:
    """What is wrong with fields whose types are right."""
    fields = section.fields
    yield from _unknown_apis(fields, title, source)
    folder = fields.error_data_path
    if not Path(folder or ".").is_dir():
        yield source.mistake((title, "error_data_path"), said("folder-does-not-exist", shown(folder)))
    yield from online_mistakes(section, "is_online", "server", (title,), source)


def _unknown_apis(fields: RunUtFields, title: str, source: ConfigSource) -> Iterator[Mistake]:
    lists = {"white_list": fields.white_list, "black_list": fields.black_list}
    if not any(lists.values()):
        return
    groups = shipped_list("msprobe.capture.torch")
    known = {name for group in _GROUPS for name in groups.get(group, ())}
    for word, names in lists.items():
        for place, name in enumerate(names):
            if name not in known:
                # Comparing stops by itself where very many names are wrong.
                near = near_words(name, known, 1)
                hint = said("near-word", shown(near[0])) if near else ""
                text = said("api-not-listed", shown(name), ", ".join(_GROUPS), hint)
                yield source.mistake((title, word, place), text)
