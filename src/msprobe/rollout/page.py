"""``rollout.html``: the answer as one page. What the sides say of names is text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape

from msprobe.foreign import html_page
from msprobe.foreign.console import harmless
from msprobe.foreign.html_page import text
from msprobe.messages import find, said
from msprobe.rollout.compared import ComparedOperator
from msprobe.rollout.contract import RolloutFinding, RolloutStatus
from msprobe.rollout.texts import advice, sentence

_CLASSES: Mapping[RolloutStatus, str] = {"agree": "good", "diverged": "bad", "incomparable": "warning"}
_STYLE = "body { max-width: 1100px; } .finding { margin: 10px 0; } .wrong { color: var(--bad); }"


def page(
    status: RolloutStatus,
    headline: str,
    findings: Sequence[RolloutFinding],
    remarks: Sequence[str],
    operators: Mapping[str, ComparedOperator] | None = None,
) -> bytes:
    """The page. ``remarks``: measures and notes, in the catalogue's words."""
    body = (f"{piece}\n" for piece in _body(status, headline, findings, remarks, operators or {}))
    return "".join(html_page.page("msprobe rollout", body, style=_STYLE)).encode()


def _body(
    status: RolloutStatus,
    headline: str,
    findings: Sequence[RolloutFinding],
    remarks: Sequence[str],
    operators: Mapping[str, ComparedOperator],
) -> Iterator[str]:
    yield f'<h1 class="{_CLASSES[status]}">{text(headline)}</h1>'
    for finding in findings:
        message = find(finding.name)
        code = "" if message is None else f"{message.code} {message.name}"
        names = ", ".join(finding.responses)
        shown = text(said("of-responses", names)) if names else ""
        yield f'<div class="finding"><code>{escape(code)}</code> {text(sentence(finding))}{shown}'
        yield f'<div class="dim">{text(advice(finding))}</div></div>'
    yield from (f"<p>{text(remark)}</p>" for remark in remarks)
    if operators:
        yield '<div class="scroll"><table>'
        yield "".join(f"<th>{text(said(name))}</th>" for name in _COLUMNS)
        for path, line in sorted(operators.items(), key=lambda operator: (-operator[1].wrong, operator[1].bits)):
            yield "<tr>" + "".join(_cells(path, line)) + "</tr>"
        yield "</table></div>"


_COLUMNS = (
    *("operators-module", "column-rows", "column-wrong", "column-bits", "column-engine-units"),
    *("column-trainer-units", "column-engine-bias", "column-trainer-bias", "column-nearer"),
)


def _cells(path: str, line: ComparedOperator) -> Iterator[str]:
    yield f"<td><code>{escape(harmless(path))}</code></td>"
    numbers = (f"{line.engine[0]:.3g}", f"{line.trainer[0]:.3g}", f"{line.engine[1]:.2g}", f"{line.trainer[1]:.2g}")
    wrong = f'<span class="wrong">{line.wrong}</span>' if line.wrong else "0"
    for cell in (str(line.rows), wrong, f"{line.bits:.1%}", *numbers):
        yield f'<td class="number">{cell}</td>'
    yield f"<td>{text(said(f'nearer-{line.nearer}'))}</td>"
