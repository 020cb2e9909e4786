"""One call computes in another precision than it should.

Three forms: a softmax, a norm or a loss whose 32-bit input is cast to half precision for this call and whose result is
cast back; one layer of a stack in another precision than all others; double precision that begins in the middle of
single precision.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator

from msprobe.compare.entry_names import operation
from msprobe.diagnose import operators
from msprobe.diagnose.check.moment import CheckedStep
from msprobe.diagnose.check.siblings import relative_place
from msprobe.diagnose.check.values import floats, measured
from msprobe.diagnose.differences.records import fingerprint, numel
from msprobe.diagnose.differences.words import dtype_word
from msprobe.diagnose.findings import Finding
from msprobe.diagnose.operators import CASTS
from msprobe.diagnose.steps.timeline import Event
from msprobe.messages import said

_HALF = frozenset(("float16", "bfloat16"))
#: A tensor that was cast is looked for behind so many calls that give it another shape.
_RESHAPED = 8


def check(moment: CheckedStep) -> Iterable[Finding]:
    """Casts around sensitive calls, layers unlike their siblings, and double precision by accident."""
    named: set[str | None] = set()
    for finding in (*_squeezed(moment), *_doubles(moment), *_unlike(moment)):
        if finding.entry not in named:
            named.add(finding.entry)
            yield finding


def _squeezed(moment: CheckedStep) -> Iterator[Finding]:
    """Sensitive calls between a cast down and a cast up."""
    raised = _raised(moment)
    makers = moment.makers
    for event in moment.calls:
        if operation(event.stem) not in operators.SENSITIVE:
            continue
        given, results = floats(event.inputs()), floats(event.outputs())
        if not given or not results or dtype_word(given[0]) not in _HALF or dtype_word(results[0]) not in _HALF:
            continue
        cast = makers.of(given[0], event)
        if cast is None or operation(cast.stem) not in CASTS:
            continue
        sources = floats(cast.inputs())
        if not sources or dtype_word(sources[0]) != "float32" or fingerprint(results[0]) not in raised:
            continue
        word = operation(event.stem)
        message = said("cast-down-for-one-call", word, dtype_word(given[0]))
        evidence = {"input": measured(given[0]), "before_the_cast": measured(sources[0]), "cast": cast.name}
        yield moment.finding(event, "dtype", message, evidence=evidence)


def _raised(moment: CheckedStep) -> set[Hashable]:
    """What distinguishes half-precision tensors that are cast to single precision."""
    marks: set[Hashable] = set()
    for event in moment.calls:
        if operation(event.stem) in CASTS:
            given, results = floats(event.inputs()), floats(event.outputs())
            if given and results and dtype_word(given[0]) in _HALF and dtype_word(results[0]) == "float32":
                marks.add(fingerprint(given[0]))
    marks.discard(None)
    return marks


def _doubles(moment: CheckedStep) -> Iterator[Finding]:
    """Calls that make large double-precision tensors of single-precision ones, where hardly anything else is double."""
    counts: Counter[str] = Counter()
    first: list[Event] = []
    for event in moment.calls:
        results, given = floats(event.outputs()), floats(event.inputs())
        if not results:
            continue
        counts[dtype_word(results[0])] += 1
        lower = [leaf for leaf in given if dtype_word(leaf) in ("float32", *_HALF) and numel(leaf) > 1]
        promoted = dtype_word(results[0]) == "float64" and operation(event.stem) not in CASTS
        if promoted and lower and max(map(numel, lower)) >= numel(results[0]) > 1:
            doubled = [leaf for leaf in given if dtype_word(leaf) == "float64"]
            # Single and double together: the small one decides without being asked.
            if doubled and max(map(numel, doubled)) < numel(results[0]):
                first.append(event)
    if not first or counts["float64"] > 0.2 * sum(counts.values()):
        return
    event = first[0]
    given = floats(event.inputs())
    doubled = [leaf for leaf in given if dtype_word(leaf) == "float64"]
    message = said("computes-in-float64", operation(event.stem), doubled[0].get("shape"))
    evidence = {"inputs": [measured(leaf) for leaf in given], "output": measured(floats(event.outputs())[0])}
    yield moment.finding(event, "dtype", message, evidence=evidence)


def _unlike(moment: CheckedStep) -> Iterator[Finding]:
    """Calls that compute in a type of their own among the layers of a stack."""
    places: dict[tuple[Hashable, ...], dict[str, Event]] = {}
    for event in moment.calls:
        module = event.parent
        if (
            module is None
            or not module.is_module
            or operation(event.stem) in operators.STORED_OTHERWISE
            or not floats(event.outputs())
        ):
            continue
        place = relative_place(module)
        if place is not None:
            key = (place, operation(event.stem), module.parts.number, _number(event, module))
            places.setdefault(key, {})[module.parts.path] = event
    overall = Counter(
        (operation(event.stem), _types(event)[1]) for calls in places.values() for event in calls.values()
    )
    known: set[str] = set()
    for calls in sorted(places.values(), key=lambda calls: min(event.index for event in calls.values())):
        counts = Counter(_types(event)[1] for event in calls.values())
        if len(counts) < 2 or len(calls) < 2:
            continue
        usual = max(counts, key=lambda called: (counts[called], _common(overall, called, calls)))
        alone = [path for path, event in calls.items() if _types(event)[1] != usual]
        if len(alone) != 1 or alone[0] in known:
            continue
        path = alone[0]
        event = calls[path]
        if _follows_its_input(moment, event, calls):
            continue
        known.add(path)
        message = said("dtype-differs-from-other-layers", operation(event.stem), path, _types(event)[1], usual)
        evidence = {"types": list(_types(event)), "usual": usual, "layers": len(calls)}
        yield moment.finding(event, "dtype", message, evidence=evidence)


def _follows_its_input(moment: CheckedStep, event: Event, calls: dict[str, Event]) -> bool:
    """Whether the call gives the type of what it gets, which no other layer gets, and no cast made any of that.

    The first layer gets what an embedding or a recurrent network gave, the others what was added up. Where the others
    cast what they get, this one may have forgotten to.
    """
    given, gives = _types(event)
    if given != gives or operation(event.stem) in operators.PRODUCTS:
        return False  # Autocast casts for products of matrices.
    if any(_types(other)[0] == given for other in calls.values() if other is not event):
        return False
    return gives == "float32" or not any(_is_cast(moment, call) for call in calls.values())


def _is_cast(moment: CheckedStep, event: Event) -> bool:
    """Whether the first argument is what a cast made of another type, in whatever shape."""
    makers = moment.makers
    for _ in range(_RESHAPED):
        given = floats(event.inputs())
        maker = makers.of(given[0], event) if given else None
        if maker is None:
            return False
        event = maker
        sources = floats(maker.inputs())
        word = operation(maker.stem)
        if word in CASTS and (not sources or dtype_word(sources[0]) != dtype_word(given[0])):
            return True
        if word not in operators.STORED_OTHERWISE | operators.RESHAPES | operators.CASTS:
            return False
    return False


def _common(overall: Counter[tuple[str, str]], called: str, calls: dict[str, Event]) -> int:
    word = operation(next(iter(calls.values())).stem)
    return overall[(word, called)]


def _number(event: Event, module: Event) -> int:
    """Which of the calls of this operation in the module it is."""
    word = operation(event.stem)
    number = 0
    for child in module.children:
        if child is event:
            return number
        number += child.parts.kind == "api" and child.direction == "forward" and operation(child.stem) == word
    return number


def _types(event: Event) -> tuple[str, str]:
    given = floats(event.inputs())
    return dtype_word(given[0]) if given else "", dtype_word(floats(event.outputs())[0])
