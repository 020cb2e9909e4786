"""Rules between fields: values that are legal each for itself and wrong together."""

from __future__ import annotations

from typing import cast

from msprobe.config.fields import (
    CommonFields,
    FilterFields,
    StatisticsFields,
    TensorFields,
    ValueFields,
    known_names,
)
from msprobe.config.mistakes import ConfigSource, Mistake, shown
from msprobe.config.online import online_mistakes
from msprobe.config.scope_patterns import API_EXAMPLE, MODULE_EXAMPLE, entry_kind, scope_kinds
from msprobe.config.sections import Section
from msprobe.config.settings import Level
from msprobe.messages import said


def _permitted(kinds: tuple[str, ...]) -> str:
    """What scope may be where records are of these kinds."""
    if kinds == ("api",):
        return said("scope-for-apis", API_EXAMPLE)
    if kinds == ("module",):
        return said("scope-for-modules", MODULE_EXAMPLE)
    return said("scope-for-both", API_EXAMPLE, MODULE_EXAMPLE)


def effective_level(common: CommonFields) -> Level:
    """The level that will be recorded: task structure knows L0 and mix only, and takes mix for the others."""
    if common.task == "structure" and common.level not in ("L0", "mix"):
        return "mix"
    return common.level


def cross_mistakes(
    common: Section[CommonFields], section: Section[FilterFields], source: ConfigSource
) -> list[Mistake]:
    """All mistakes that several fields make together. A field that is broken by itself takes part in none."""
    return [
        *_scope_mistakes(common, section, source),
        *_async_mistakes(common, section, source),
        *_online_mistakes(common, section, source),
        *_graph_mistakes(common, section, source),
    ]


# The fields of the top level that tasks of the rooms above the recorder read; the others do nothing there.
_USED: dict[str, frozenset[str]] = {
    "grad_probe": frozenset(("task", "dump_path", "rank", "step", "existing")),
    "free_benchmark": frozenset(
        ("task", "dump_path", "rank", "step", "level", "enable_dataloader", "dump_enable", "extra_info", "api_scope",
         "api_list_file", "existing", "compile")
    ),
}  # fmt: skip
# What an online check alone reads.
_ONLINE = ("nfs_path", "host", "port", "tls_path")


def unused_field_warnings(common: CommonFields, task: str, source: ConfigSource) -> list[str]:
    """One line for the fields of the top level that a task does not read, where they are not at their defaults."""
    used = _USED.get(task)
    if used is None:
        return []
    usual = CommonFields.model_validate({})
    names = [name for name in known_names(CommonFields) if name not in used]
    given = [name for name in names if getattr(common, name) != getattr(usual, name)]
    return [said("no-effect-with-task", source.where((name,)), task) for name in given]


def adjustment_warnings(common: CommonFields, section: FilterFields, source: ConfigSource) -> list[str]:
    """One line for each thing asked for that will not be done as asked."""
    lines: list[str] = []
    level = effective_level(common)
    if level != common.level:
        lines.append(said("structure-takes-mix", source.where(("level",)), common.level))
    if level == "debug" and common.task not in ("statistics", "tensor"):
        lines.append(said("debug-needs-task", source.where(("level",)), common.task))
    if common.async_dump and common.task not in ("statistics", "tensor"):
        lines.append(said("no-effect-with-task", source.where(("async_dump",)), common.task))
    if level == "debug" and isinstance(section, StatisticsFields) and section.tensor_list:
        lines.append(said("no-effect-at-debug", source.where((common.task, "tensor_list"))))
    if isinstance(section, TensorFields):
        usual = TensorFields.model_validate({})
        given = [name for name in _ONLINE if getattr(section, name) not in (getattr(usual, name), "./")]
        if given and not section.online_run_ut:
            lines += [said("no-effect-without-online", source.where((common.task, name))) for name in given]
        if section.diff_nums != usual.diff_nums:
            where = source.where((common.task, "diff_nums"))
            lines.append(said("no-effect-without-bench", where))
    return lines


def _scope_mistakes(
    common: Section[CommonFields], section: Section[FilterFields], source: ConfigSource
) -> list[Mistake]:
    scope = section.fields.scope
    path = (common.fields.task, "scope")
    if "scope" in section.broken or not scope:
        return []
    level = "mix" if common.broken & {"level", "task"} else effective_level(common.fields)
    kinds = scope_kinds(level)
    permitted = _permitted(kinds)
    if len(scope) != 2:
        if len(scope) == 1:
            text = said("scope-of-one-name", shown(scope), permitted)
        else:
            text = said("scope-of-names", shown(scope), len(scope), permitted)
        return [source.mistake(path, text, "scope")]
    mistakes = []
    for index, name in enumerate(scope):
        kind = entry_kind(name)
        if kind not in kinds:
            what = said("not-full-name") if kind is None else said("name-of-kind-of-entry", _ARTICLE[kind])
            text = said("found-because", shown(name), what, permitted, "")
            mistakes.append(source.mistake((*path, index), text, "scope"))
    return mistakes


def _online_mistakes(
    common: Section[CommonFields], section: Section[FilterFields], source: ConfigSource
) -> list[Mistake]:
    """Records that are sent to be checked need an address, and calls among them."""
    values = section.fields
    if not isinstance(values, TensorFields) or not values.online_run_ut or common.fields.task != "tensor":
        return []
    mistakes = online_mistakes(cast(Section[TensorFields], section), "online_run_ut", "client", ("tensor",), source)
    if effective_level(common.fields) not in ("L1", "mix"):
        text = said("online-at-level", effective_level(common.fields))
        mistakes.append(source.mistake(("tensor", "online_run_ut"), text))
    return mistakes


def _graph_mistakes(
    common: Section[CommonFields], section: Section[FilterFields], source: ConfigSource
) -> list[Mistake]:
    """Inside of a graph that is captured there are statistics of what runs forward, and no values."""
    fields, values = common.fields, section.fields
    if fields.graphs != "record" or common.broken & {"task", "level", "graphs"}:
        return []
    texts = []
    if fields.task not in ("statistics", "overflow_check", "nan_check"):
        texts.append(said("graphs-with-task", fields.task))
    elif isinstance(values, ValueFields):
        mode = values.summary_mode
        if mode != "statistics" and (not isinstance(mode, list) or "md5" in mode):
            texts.append(said("graphs-with-digests", "md5" if isinstance(mode, list) else mode))
        if isinstance(values, StatisticsFields) and values.tensor_list:
            texts.append(said("graphs-with-tensor-list"))
    if effective_level(fields) not in ("L0", "L1", "mix"):
        texts.append(said("graphs-at-level", effective_level(fields)))
    if "backward" in values.data_mode and not {"forward", "all"} & set(values.data_mode):
        texts.append(said("graphs-without-forward"))
    return [source.mistake(("graphs",), text) for text in texts]


_ARTICLE = {"api": "an API", "module": "a module"}


def _async_mistakes(
    common: Section[CommonFields], section: Section[FilterFields], source: ConfigSource
) -> list[Mistake]:
    fields, values = common.fields, section.fields
    if not fields.async_dump or "task" in common.broken or not isinstance(values, ValueFields):
        return []
    mistakes = []
    if values.summary_mode == "md5" or (isinstance(values.summary_mode, list) and "md5" in values.summary_mode):
        text = said("async-with-md5")
        mistakes.append(source.mistake(("async_dump",), text))
    is_debug = fields.level == "debug" or "level" in common.broken
    if fields.task == "tensor" and not (is_debug or values.api_list or "list" in section.broken):
        text = said("async-without-list")
        mistakes.append(source.mistake(("async_dump",), text))
    return mistakes
