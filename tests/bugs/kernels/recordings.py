"""All recordings of the bench, and the pairs that they make."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from .faults import FAULTS, Fault
from .record import Recording, recorded
from .truth import Truth, first_wrong
from .variants import VARIANTS


@dataclass(frozen=True)
class KernelPair:
    """A device against torch's own kernels. ``truth``: None of a healthy pair."""

    network: str
    precision: str
    variant: str
    fault: Fault | None
    candidate: Path
    reference: Path
    truth: Truth | None

    @property
    def id(self) -> str:
        """In words for a table."""
        return f"{self.network} {self.precision} {self.variant}{f' {self.fault.id}' if self.fault else ''}"


def variant_of(fault: Fault) -> str:
    """The device that a fault is put into: they take turns in each network."""
    among = [one for one in FAULTS.values() if one.network == fault.network]
    return list(VARIANTS)[among.index(fault) % len(VARIANTS)]


def healthy_pairs(network: str, precision: str, cache: Path) -> Iterator[KernelPair]:
    """Each device without a fault."""
    reference = recorded(Recording(network, precision), cache)
    for variant in VARIANTS:
        candidate = recorded(Recording(network, precision, variant), cache)
        yield KernelPair(network, precision, variant, None, candidate, reference, None)


def faulty_pairs(network: str, precision: str, cache: Path, only: Sequence[str] = ()) -> Iterator[KernelPair]:
    """Each wrong kernel that makes any difference in this precision; ``only`` those of these names."""
    reference = recorded(Recording(network, precision), cache)
    for fault in FAULTS.values():
        if fault.network != network or (only and fault.id not in only):
            continue
        variant = variant_of(fault)
        healthy = recorded(Recording(network, precision, variant), cache)
        candidate = recorded(Recording(network, precision, variant, fault), cache)
        truth = first_wrong(healthy, candidate)
        if truth is not None:
            yield KernelPair(network, precision, variant, fault, candidate, reference, truth)


def every_pair(network: str, precision: str, cache: Path) -> list[KernelPair]:
    """All of a network in a precision."""
    return [*healthy_pairs(network, precision, cache), *faulty_pairs(network, precision, cache)]
