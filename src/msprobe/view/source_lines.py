"""The source lines from which the calls of a place were made: what the search of the page looks at beside names."""

from __future__ import annotations

from msprobe.diagnose.steps.timeline import Event
from msprobe.report.source_frames import Frame, own_frame
from msprobe.view.judged import JudgedStep
from msprobe.view.protocol import LinesAnswer


def lines_of(step: JudgedStep) -> LinesAnswer:
    """The answer of ``/api/lines``: the innermost line of the user's own code of each row."""
    lines: dict[str, int] = {}
    known: dict[tuple[str, ...], int] = {}
    rows = []
    for row in step.rows:
        stack = stack_of(step, row.event)
        if stack not in known:
            own = own_frame(stack)
            known[stack] = lines.setdefault(in_words(own), len(lines)) if own is not None else -1
        rows.append(known[stack])
    return {"lines": list(lines), "rows": rows}


def stack_of(step: JudgedStep, event: Event | None) -> tuple[str, ...]:
    """The frames from which a call was made, innermost first; of a backward call, those of its forward call."""
    if event is None:
        return ()
    timeline = step.candidate if step.is_of_candidate(event) else step.reference
    if timeline is None:
        return ()
    forward = timeline.forward_of(event) or event if event.direction == "backward" else event
    frames = tuple(frame for frame in timeline.part.stack(forward.name) if isinstance(frame, str))
    return frames or ((forward.source,) if forward.source else ())


def in_words(frame: Frame) -> str:
    """``model.py:57 in forward: return self.fc(x)``, as far as it is known."""
    return f"{frame.place}{f' in {frame.function}' if frame.function else ''}{f': {frame.code}' if frame.code else ''}"
