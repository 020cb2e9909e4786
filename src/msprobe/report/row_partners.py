"""How rows find their partners where names differ: by the mappings that the user gave, or as the verdict pairs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from msprobe.compare.comparison import FindNames
from msprobe.compare.frameworks import crosses, framework_of
from msprobe.compare.mapping import Mappings, apply_mappings, pairs_by_hand
from msprobe.compare.mapping_files import DataMapping
from msprobe.compare.matching import NameMapping
from msprobe.compare.rows import Rows
from msprobe.store.part import DumpPart


def find_by_mappings(mappings: Mappings, generated: Callable[[DataMapping], None] = lambda mapping: None) -> FindNames:
    """Rows answer to those that mappings name. ``generated`` is given the data mapping that layers come to."""

    def find(ours: Rows, theirs: Rows, our_part: DumpPart, other: DumpPart) -> NameMapping:
        applied = apply_mappings(mappings, ours, theirs, our_part, other)
        if applied.generated is not None:
            generated(applied.generated)
        return applied.names

    return find


def find_as_verdict(mappings: Mappings) -> FindNames:
    """Rows of a run in MindSpore and one in PyTorch answer to each other as the verdict pairs them, or by name
    where it pairs none. ``mappings`` of functions and modules serve it, and a pair of a data mapping is the last word.
    """

    def find(ours: Rows, theirs: Rows, our_part: DumpPart, other: DumpPart) -> NameMapping:
        from msprobe.diagnose.pairing.rows import partners_of_verdict  # few comparisons need it

        by_hand = {} if mappings.data is None else pairs_by_hand(mappings.data, ours, theirs)
        partners = partners_of_verdict(ours, theirs, (our_part, other), replace(mappings, data=None))
        # Of a few calls by themselves a verdict may judge none; then names are all there is.
        return NameMapping(partners.get if partners else None, by_hand, views=True)

    return find


def records_as_verdict(our_part: DumpPart, other: DumpPart) -> Mapping[str, str]:
    """The records that answer to each other as the verdict pairs them; saved variables, which it does not compare, by
    name.
    """
    from msprobe.diagnose.pairing.rows import records_of_verdict  # few comparisons need it

    return (
        {name: name for name in our_part.names()} if our_part.kind == "debug" else records_of_verdict(our_part, other)
    )


def crosses_frameworks(first: DumpPart, second: DumpPart) -> bool:
    """True if the frameworks differ. Dumps that do not say theirs are taken for one."""
    known = [part.header.get("framework") for part in (first, second)]
    if known[0] == known[1]:
        return False
    return crosses(framework_of(first), framework_of(second))


def names_differ(first: DumpPart, second: DumpPart) -> bool:
    """True if one side was recorded in MindSpore and the other in PyTorch, so that names do not answer to each other.

    PyTorch on MindSpore has PyTorch's names, and saved variables those that the user gave them.
    """
    if first.kind == "debug" or not crosses_frameworks(first, second):
        return False
    return {framework_of(first), framework_of(second)} == {"mindspore", "pytorch"}
