"""A verdict as a page: one file without script that fetches nothing, to be opened, printed or sent."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape

from msprobe import __version__
from msprobe.diagnose.findings import Finding, Verdict
from msprobe.diagnose.verdict.calls import Call, StepCalls
from msprobe.report import phrases
from msprobe.report.advice import advice_on
from msprobe.report.counts import counts
from msprobe.report.html_strip import WORDS, strip
from msprobe.report.html_style import STYLE
from msprobe.report.phrases import Frame, clean

# Nothing may be fetched or run, whatever stands in the names of a dump.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_TONES = {"diverged": "bad", "incomparable": "bad", "harmless": "warn", "agree": "good"}
_BEFORE, _AFTER = 8, 16
_OWN_FRAMES = 4


def verdict_page(verdict: Verdict) -> str:
    """The page of a verdict; with :attr:`Verdict.calls` it shows all calls of the step where they part."""
    return "\n".join(part for part in _parts(verdict) if part) + "\n"


def _parts(verdict: Verdict) -> Iterator[str]:
    title = phrases.headline(verdict)
    yield '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>{_text(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>"
    yield f'<header><h1 class="{_TONES[verdict.status]}">{_text(title)}</h1>'
    settings = [("settings", _text(text)) for text in phrases.settings_apart(verdict)]
    yield _pairs([("candidate", _name(verdict.candidate)), ("reference", _name(verdict.reference)), *settings])
    yield "</header>\n<main>"
    findings = phrases.leading(verdict)
    if findings and verdict.status in ("diverged", "harmless"):
        yield f'<article>\n<p class="lead">{_text(findings[0].message)}</p>'
        yield from _finding(findings[0])
        yield "</article>"
        yield from _step(verdict.calls, findings[0])
        words = "Later ones may follow from earlier ones."
        yield from _further(findings[1:], "Further findings", words, verdict.status == "diverged")
    else:
        yield from _step(verdict.calls, None)
        yield from _further(findings, "Findings", "", mixed=False)
    yield from _list("Notes", phrases.further_notes(verdict))
    yield from _list("Compared", counts(verdict))
    yield f"</main>\n<footer>msprobe {_text(__version__)}</footer>\n</body>\n</html>"


def _finding(finding: Finding) -> Iterator[str]:
    about = [("kind", f'<span class="kind">{_text(finding.kind)}</span> {_text(finding.meaning)}')]
    about += [(label, _name(text)) for label, text in phrases.whereabouts(finding)]
    source = phrases.source_of(finding)
    if source is not None:
        about.append(("source", _frame(source)))
    yield _pairs(about)
    yield from _evidence(finding)
    advice = advice_on(finding)
    if advice:
        yield f'<p class="todo">{_text(advice)}</p>'
    yield from _stack(finding, source)


def _evidence(finding: Finding) -> Iterator[str]:
    rows = phrases.evidence_rows(finding)
    if rows:
        yield '<table class="evidence"><thead><tr><th></th><th>candidate</th><th>reference</th></tr></thead><tbody>'
        for row in rows:
            other = ' class="other"' if row.candidate != row.reference else ""
            yield (
                f"<tr{other}><th>{_text(row.label)}</th><td>{_text(row.candidate)}</td>"
                f"<td>{_text(row.reference)}</td></tr>"
            )
        yield "</tbody></table>"
    for line in phrases.evidence_lines(finding):
        yield f"<p>{_text(line)}</p>"
    for key in ("parameters", "calls"):
        names = finding.evidence.get(key)
        if isinstance(names, (list, tuple)) and len(names) > phrases.SHOWN:
            shown = "\n".join(_text(name) for name in names)
            yield f"<details><summary>all {len(names)} {key}</summary><pre>{shown}</pre></details>"


def _stack(finding: Finding, source: Frame | None) -> Iterator[str]:
    every = phrases.frames(finding.stack)
    own = phrases.callers_of(finding, _OWN_FRAMES)
    if own:
        yield f'<details class="own"><summary>called by</summary>{_frames(own)}</details>'
    if len(every) > len(own) + 1:
        yield f"<details><summary>whole call stack ({len(every)} frames)</summary>{_frames(every)}</details>"


def _frames(frames: Sequence[Frame]) -> str:
    return f'<ol class="frames">{"".join(f"<li>{_frame(frame)}</li>" for frame in frames)}</ol>'


def _frame(frame: Frame) -> str:
    within = f" in {_text(frame.function)}" if frame.function else ""
    code = f"<pre>{_text(frame.code)}</pre>" if frame.code else ""
    return f"{_name(frame.place)}{within}{code}"


def _step(found: StepCalls | None, finding: Finding | None) -> Iterator[str]:
    if found is None or not found.calls:
        return
    origin = None if finding is None else origin_of(found.calls, finding)
    step = "" if found.step is None else f" of step {found.step}"
    rank = f", rank {found.rank}" if isinstance(found.rank, int) else ""
    yield f"<section><h2>The calls{_text(step)}{_text(rank)} in order of execution</h2>"
    yield '<p class="quiet">The height of a bar is the relative difference of the result.</p>'
    yield strip(found.calls, origin)
    if origin is not None:
        yield from _neighbours(found.calls, origin)
    yield "</section>"


def origin_of(calls: Sequence[Call], finding: Finding) -> int | None:
    """The index of the call that a finding names; of the first that differs where it names none of them."""
    for index, call in enumerate(calls):
        if call.name == finding.entry:
            return index
    return next((index for index, call in enumerate(calls) if call.status not in ("same", "rounding")), None)


def _neighbours(calls: Sequence[Call], origin: int) -> Iterator[str]:
    first = max(0, origin - _BEFORE)
    yield "<h2>Around it</h2>"
    yield (
        '<p class="quiet">In the order in which calls ended: a module stands behind what ran in it. The number is that '
        "of its beginning, in the reference where the call is only there. Explained: how much of the difference "
        "rounding and what came in can make.</p>"
    )
    yield '<div class="wide"><table><thead><tr><th>began</th><th>call</th><th>judged</th>'
    yield "<th>input</th><th>result differs</th><th>explained</th><th>module</th></tr></thead><tbody>"
    for index in range(first, min(len(calls), origin + _AFTER + 1)):
        call = calls[index]
        mark = ' class="here"' if index == origin else ""
        sizes = ("", "", "")
        if call.status not in ("candidate_only", "reference_only"):
            allowed = _size(call.allowed) if call.left else ""
            sizes = (_size(call.arrived), _size(call.left), allowed)
        yield (
            f'<tr{mark}><td class="number">{call.order}</td><td class="call">{_breakable(call.name)}</td>'
            f'<td><i class="{call.status}"></i>{_text(WORDS[call.status])}</td>'
            + "".join(f'<td class="number">{size}</td>' for size in sizes)
            + f"<td>{_text(call.module or '')}</td></tr>"
        )
    yield "</tbody></table></div>"


def _size(value: float) -> str:
    return "" if value == 0.0 else "no size" if not math.isfinite(value) else phrases.short(value)


def _further(findings: Sequence[Finding], title: str, words: str, mixed: bool) -> Iterator[str]:
    if not findings:
        return
    yield f"<section><h2>{title} ({len(findings)})</h2>"
    if words:
        yield f'<p class="quiet">{words}</p>'
    for finding in findings:
        harmless = " (harmless)" if mixed and finding.harmless else ""
        rank = f" rank {finding.rank}:" if isinstance(finding.rank, int) else ""
        yield '<details class="finding"><summary>'
        yield f'<span class="kind">{_text(finding.kind)}</span>{harmless}{rank} {_text(finding.message)}</summary>'
        yield from _finding(finding)
        yield "</details>"
    yield "</section>"


def _list(title: str, texts: Sequence[str]) -> Iterator[str]:
    if texts:
        items = "".join(f"<li>{_text(text)}</li>" for text in texts)
        yield f"<section><h2>{title}</h2><ul>{items}</ul></section>"


def _pairs(pairs: Sequence[tuple[str, str]]) -> str:
    """Labels and their contents, which are HTML already."""
    return f"<dl>{''.join(f'<dt>{_text(label)}</dt><dd>{content}</dd>' for label, content in pairs)}</dl>"


def _name(text: str) -> str:
    return f'<span class="name">{_text(text)}</span>'


def _breakable(name: str) -> str:
    """A name that may be broken at its dots."""
    return _text(name).replace(".", ".<wbr>")


def _text(text: object) -> str:
    return escape(clean(text))
