"""Keyword arguments over the file: each takes the place of the field of its name."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from msprobe.config.fields import TASK_SECTIONS, CommonFields, known_names
from msprobe.config.jsonc import Document, FieldPath
from msprobe.config.mistakes import ConfigSource, Mistake, did_you_mean, nearest, shown
from msprobe.config.other_tasks import OTHER_TASK_SECTIONS
from msprobe.messages import joined, said

# Names under which fields of Settings may be given as arguments, where the file has another name.
_OTHER_NAMES = {"api_list": "list", "ranks": "rank", "steps": "step"}


def put_arguments(
    name: str, document: Document, named: Mapping[str, Any]
) -> tuple[dict[str, Any], ConfigSource, list[Mistake]]:
    """The file's object with the arguments in it, where each value comes from, and arguments without a place.

    An argument that is None was not given.
    """
    arguments = {key: _as_in_file(value) for key, value in named.items() if value is not None}
    raw = dict(document.value)
    task = section_name(arguments.get("task", raw.get("task")))
    section = raw.get(task) if raw.get(task) is not None else {}
    common_names = known_names(CommonFields)
    models = {**OTHER_TASK_SECTIONS, **TASK_SECTIONS}
    model = models.get(task)
    section_names = known_names(model) if model is not None else ()
    taken: dict[FieldPath, str] = {}
    unknown = []
    for argument, value in arguments.items():
        field = _OTHER_NAMES.get(argument, argument)
        if field in common_names:
            raw[field] = value
            taken[(field,)] = argument
        elif field in section_names and isinstance(section, Mapping):
            section = {**section, field: value}
            raw[task] = section
            taken[(task, field)] = argument
        elif field not in section_names:
            hint = did_you_mean(argument, [*common_names, *section_names])
            owners = [
                owner for owner, section in models.items() if section is not None and field in known_names(section)
            ]
            if owners:
                hint = said("field-of-tasks", joined(" and ", owners))
            unknown.append(
                Mistake(
                    said("argument-named", argument),
                    said("task-has-no-field", shown(value), task, hint),
                    is_argument=True,
                )
            )
    return raw, ConfigSource(name, document, taken), unknown


def section_name(task: object) -> str:
    """The section that belongs to a task; of a task that does not exist, the one that was probably meant."""
    if task is None or task == "":
        return "statistics"
    known = [*TASK_SECTIONS, *OTHER_TASK_SECTIONS]
    return task if isinstance(task, str) and task in known else nearest(task, known) or "statistics"


def _as_in_file(value: Any) -> Any:
    """An argument as the file would hold it: tuples and ranges are lists there, paths are texts."""
    if isinstance(value, (tuple, range)):
        return list(value)
    return os.fspath(value) if isinstance(value, os.PathLike) else value
