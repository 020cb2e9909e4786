"""Since when ranks hold what they should not: copies that are not the same, terms of a sum that nothing has added up.

A copy may be apart by less than can be said of it, and a module later by more; what the ranks hold of a sum is reported
by its mean alone. Both show later, where they no longer fit; what is at fault is where they began.
"""

from __future__ import annotations

from msprobe.diagnose.layout.measured import MeasuredTensor, RecordPair
from msprobe.diagnose.layout.statements import collectives_in
from msprobe.diagnose.tolerance import layouts

Place = tuple[RecordPair, MeasuredTensor]


class Beginnings:
    """Follows the modules of one direction in order of execution."""

    def __init__(self) -> None:
        #: What ranks hold terms of since then, if they still do.
        self.terms: Place | None = None
        self._torn: Place | None = None

    def follow(self, pair: RecordPair) -> None:
        """Note what ranks hold after a pass of a module."""
        if (
            self.terms is not None
            and not _is_around(pair, self.terms[0])
            and any(_is_whole(tensor) for tensor in pair.inputs)
        ):
            self.terms = None
        if self.terms is None:
            terms = next((output for output in pair.outputs if output.is_sum), None)
            self.terms = None if terms is None else (pair, terms)
        if self._torn is None and not any(tensor.torn for tensor in (*pair.inputs, *pair.parameters)):
            torn = next((output for output in pair.outputs if output.torn and not output.is_sum), None)
            self._torn = None if torn is None else (pair, torn)

    def terms_used_by(self, pair: RecordPair) -> Place | None:
        """The terms that go into a module, or that modules inside it have made and no communication of it adds up."""
        if self.terms is None:
            return None
        inside = _is_around(pair, self.terms[0]) and not collectives_in(pair.event)
        return self.terms if inside or any(tensor.is_sum for tensor in pair.inputs) else None

    def beginning_of_results(self, pair: RecordPair) -> Place | None:
        """Where copies began to be apart that went into a module whose results are too far apart now."""
        if self._torn is None or not any(tensor.torn for tensor in pair.inputs):
            return None
        return self._torn if pair.left <= layouts.handed_on(self._torn[1].torn) else None

    def beginning_of_copies(self, pair: RecordPair, tensor: MeasuredTensor) -> Place:
        """Where the copies of a result began to be apart that are too far apart now."""
        if self._torn is None or not any(each.torn for each in (*pair.inputs, *pair.parameters)):
            return pair, tensor
        return self._torn if tensor.torn <= layouts.handed_on(self._torn[1].torn) else (pair, tensor)


def _is_whole(tensor: MeasuredTensor) -> bool:
    return tensor.fit is not None and not tensor.is_sum


def _is_around(pair: RecordPair, other: RecordPair) -> bool:
    """True if the module ``other`` is inside that of ``pair``: what went in there went in before."""
    return other.place.path.startswith(f"{pair.place.path}.") or not pair.place.path
