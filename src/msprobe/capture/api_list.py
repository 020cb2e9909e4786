"""The lists of functions that are recorded as calls: the shipped ones, and one that the user gives in their place.

A list is a YAML file ``support_wrap_ops.yaml``: groups, each with the names of functions. That is the form that
mindstudio-probe has, so files that were made for it can be used (``"api_list_file"`` in config.json).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib.resources import files
from typing import Any

from msprobe.config.mistakes import ConfigSource, Mistake, did_you_mean, raise_mistakes, shown
from msprobe.messages import said

LIST_FILE = "support_wrap_ops.yaml"

Groups = Mapping[str, tuple[str, ...]]
#: Group -> whether it has a function of this name; None where that cannot be known (its package is not installed).
Known = Callable[[str], Callable[[str], bool] | None]


@lru_cache(maxsize=4)
def shipped_list(package: str) -> Groups:
    """The list that a package carries: group -> names. It may be edited by users; a missing group is an empty one."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    groups = yaml.load(files(package).joinpath(LIST_FILE).read_text(encoding="utf-8"), Loader=loader) or {}
    return {str(group): tuple(map(str, names or ())) for group, names in groups.items()}


def api_list(package: str, file: str | None, known: Known) -> Groups:
    """The list of ``file``, or the shipped one if that is None.

    Raises PathError if the file cannot be read, InvalidInputError with one line for each group and name that is
    neither in the shipped list nor to be found in the framework that is installed.
    """
    shipped = shipped_list(package)
    if file is None:
        return shipped
    from msprobe.config.yaml_source import read_yaml

    source = read_yaml(file, "api_list_file")
    groups, mistakes = _read(source, shipped, known)
    if mistakes:
        raise_mistakes(mistakes, source.name)
    return groups


def _read(source: ConfigSource, shipped: Groups, known: Known) -> tuple[Groups, list[Mistake]]:
    value = source.document.value
    if not isinstance(value, dict):
        return {}, [source.mistake((), said("api-groups-wrong", shown(value)))]
    groups: dict[str, tuple[str, ...]] = {}
    mistakes = []
    for group, names in value.items():
        if group not in shipped:
            text = said("api-group-unknown", did_you_mean(group, shipped), ", ".join(shipped))
            mistakes.append(source.mistake((group,), text))
        elif names is not None and not isinstance(names, list):
            mistakes.append(source.mistake((group,), said("api-names-wrong", shown(names))))
        else:
            mistakes += _wrong_names(source, group, names or [], shipped[group], known(group))
            groups[group] = tuple(dict.fromkeys(str(name) for name in names or ()))
    return groups, mistakes


def _wrong_names(
    source: ConfigSource,
    group: str,
    names: list[Any],
    shipped: tuple[str, ...],
    has: Callable[[str], bool] | None,
) -> list[Mistake]:
    usual = frozenset(shipped)
    mistakes = []
    for place, name in enumerate(names):
        if not isinstance(name, str) or not name:
            mistakes.append(source.mistake((group, place), said("api-name-wrong", shown(name))))
        elif name not in usual and has is not None and not has(name):
            text = said("api-name-unknown", shown(name), group, did_you_mean(name, shipped))
            mistakes.append(source.mistake((group, place), text))
    return mistakes
