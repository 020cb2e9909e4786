"""One page with all curves of a comparison: it holds its data, and fetches nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msprobe.foreign import html_page
from msprobe.grad_probe.comparison import RankComparison
from msprobe.grad_probe.verdict import DROP, FIRST, Problem
from msprobe.messages import ENTRIES, Wording, in_both, said
from msprobe.messages.pages import GRADIENTS

_STYLE = """
:root { --curve: light-dark(#8a94a6, #7d8799); --all: light-dark(#1558b0, #7ab2ff); }
.controls { display: flex; gap: 12px; margin: 14px 0; align-items: center; flex-wrap: wrap; }
input, select { font: inherit; padding: 3px 6px; } input[type=search] { width: 22em; max-width: 60vw; }
main { display: grid; grid-template-columns: minmax(0, 4fr) minmax(0, 3fr); gap: 16px; align-items: start; }
@media (max-width: 900px) { main { grid-template-columns: minmax(0, 1fr); } }
svg { width: 100%; height: auto; border: 1px solid var(--edge); border-radius: 4px; }
svg text { font-size: 11px; fill: currentColor; } .axis { stroke: var(--edge); }
.curve { fill: none; stroke: var(--curve); stroke-width: 1; opacity: .45; }
.curve.suspicious { stroke: var(--bad); opacity: .9; }
.curve.summary { stroke: var(--all); stroke-width: 2.2; opacity: 1; }
.curve.chosen { stroke-width: 3.2; opacity: 1; } .point { fill: var(--bad); }
.list { max-height: 74vh; overflow: auto; border: 1px solid var(--edge); border-radius: 4px; }
table { width: 100%; } td, th { padding: 2px 6px; text-align: right; white-space: nowrap; }
th { position: sticky; top: 0; background: var(--back); } td:first-child, th:first-child { text-align: left; }
td:first-child { max-width: 18em; overflow: hidden; text-overflow: ellipsis; }
tr.chosen td { background: light-dark(#e8f0fd, #22304a); } tbody tr { cursor: pointer; }
ul { margin: 6px 0; padding-left: 20px; }
"""

_SCRIPT = """
'use strict';
const by = id => document.getElementById(id);
const make = (tag, text, name) => {
  const node = document.createElement(tag); if (text !== undefined) node.textContent = text;
  if (name) node.className = name; return node; };
const draw = (tag, values, name, text) => {
  const node = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const key in values) node.setAttribute(key, values[key]);
  if (name) node.setAttribute('class', name); if (text !== undefined) node.textContent = text; return node; };
const W = 760, H = 420, L = 52, R = 12, T = 14, B = 34;
let rank = data.ranks[0], chosen = null;
const shown = value => value === null || value === undefined ? '' : String(+value.toPrecision(6));
function scales() {
  const low = Math.min(data.first, ...rank.parameters.flatMap(p => p.values.filter(v => v !== null)));
  const bottom = Math.max(0, Math.floor((low - 0.01) * 20) / 20), first = rank.steps[0] ?? 0;
  const last = rank.steps[rank.steps.length - 1] ?? 1, span = last - first || 1;
  return { bottom, first, last, x: s => L + (W - L - R) * (s - first) / span,
           y: v => T + (H - T - B) * (1 - (v - bottom) / (1 - bottom || 1)) };
}
function path(values, at) {
  let text = '', pen = false;
  values.forEach((value, i) => {
    if (value === null) { pen = false; return; }
    text += (pen ? 'L' : 'M') + at.x(rank.steps[i]).toFixed(1) + ' ' + at.y(value).toFixed(1); pen = true; });
  return text;
}
function chart() {
  const svg = by('chart'), at = scales(); svg.replaceChildren();
  for (let i = 0; i <= 4; i++) {
    const value = at.bottom + (1 - at.bottom) * i / 4, y = at.y(value);
    svg.append(draw('line', { x1: L, x2: W - R, y1: y, y2: y }, 'axis'),
               draw('text', { x: L - 6, y: y + 4, 'text-anchor': 'end' }, '', value.toFixed(3))); }
  const end = rank.steps.length - 1, ticks = Math.min(end + 1, 8), numbers = new Set();
  for (let i = 0; i < ticks; i++) numbers.add(rank.steps[Math.round(i * end / Math.max(1, ticks - 1))]);
  for (const step of numbers)
    svg.append(draw('text', { x: at.x(step), y: H - 16, 'text-anchor': 'middle' }, '', String(step)));
  svg.append(draw('text', { x: (L + W) / 2, y: H - 2, 'text-anchor': 'middle' }, '', 'step'));
  const limit = at.y(data.first);
  svg.append(draw('line', { x1: L, x2: W - R, y1: limit, y2: limit, 'stroke-dasharray': '4 4' }, 'axis'));
  const wanted = visible(), order = p => (p === chosen ? 2 : p.bad !== null ? 1 : 0);
  for (const one of [...wanted].sort((a, b) => order(a) - order(b))) {
    const curve = draw('path', { d: path(one.values, at) },
      'curve' + (one.bad !== null ? ' suspicious' : '') + (one === chosen ? ' chosen' : ''));
    curve.append(draw('title', {}, '', one.name)); curve.addEventListener('click', () => choose(one));
    svg.append(curve);
    const i = one.bad === null ? -1 : rank.steps.indexOf(one.bad);
    if (i >= 0 && one.values[i] !== null) {
      const r = one === chosen ? 4 : 2.2;
      svg.append(draw('circle', { cx: at.x(one.bad), cy: at.y(one.values[i]), r }, 'point')); } }
  svg.append(draw('path', { d: path(rank.summary, at) }, 'curve summary'));
  if (chosen) svg.append(draw('text', { x: L + 6, y: H - B - 8 }, '', chosen.name));
}
function visible() {
  const word = by('filter').value.trim().toLowerCase();
  return rank.parameters.filter(one => !word || one.name.toLowerCase().includes(word));
}
function table() {
  const body = by('rows'); body.replaceChildren();
  for (const one of visible().slice(0, 2000)) {
    const row = make('tr', undefined, one === chosen ? 'chosen' : ''), known = one.values.filter(v => v !== null);
    const cells = [one.name, said(one.rule) || (one.bad === null ? '' : String(one.bad)), shown(known[0]),
                   known.length ? shown(Math.min(...known)) : '', shown(known[known.length - 1])];
    cells.forEach((text, i) => {
      const cell = make('td', text, i === 1 && one.bad !== null ? 'bad' : ''); cell.title = text; row.append(cell); });
    row.addEventListener('click', () => choose(one)); body.append(row); }
}
function choose(one) { chosen = one === chosen ? null : one; show(); }
function show() { chart(); table(); }
function begin() {
  by('line').className = data.bad ? 'bad' : '';
  for (const one of data.ranks) by('rank').append(make('option', 'rank ' + one.rank));
  by('rank').addEventListener('change', event => {
    rank = data.ranks[event.target.selectedIndex]; chosen = null; show(); });
  by('filter').addEventListener('input', show);
  inBoth(() => {
    by('line').textContent = said(data.line);
    by('notes').replaceChildren(...data.notes.map(note => make('li', said(note))));
    by('filter').placeholder = by('filter').ariaLabel = t('gradients-filter');
    by('rank').ariaLabel = t('gradients-rank'); by('chart').setAttribute('aria-label', t('gradients-chart'));
    show(); });
}
begin();
"""

_BODY = """<h1>{title}</h1>
<div id="line"></div>
<ul id="notes" class="dim"></ul>
<div class="controls"><select id="rank"></select><input id="filter" type="search">
<span class="dim">{similarity}</span></div>
<main><svg id="chart" viewBox="0 0 760 420" role="img"></svg>
<div class="list"><table>
<thead><tr><th>{parameter}</th><th>{suspicious-at}</th><th>{first}</th><th>{least}</th><th>{last}</th></tr></thead>
<tbody id="rows"></tbody></table></div></main>
"""


def page(ranks: Sequence[RankComparison], problems: Sequence[Problem], notes: Sequence[str]) -> str:
    """The page as HTML. Parameters come in the order in which to look at them, then in that of the model."""
    line = said("gradients-first-suspicious", problems[0].line) if problems else said("gradients-none-suspicious")
    data = {
        "line": in_both(line),
        "bad": bool(problems),
        "notes": [in_both(note) for note in notes[:200]],
        "first": FIRST,
        "drop": DROP,
        "ranks": [_rank(rank, problems) for rank in ranks],
    }
    names = [piece.name for piece in GRADIENTS]
    words = {
        name.removeprefix("gradients-"): html_page.text(said(name)) for name in names if not ENTRIES[name].arguments
    }
    title, body = said("gradients-title"), [_BODY.format_map(words)]
    return "".join(html_page.page(title, body, style=_STYLE, script=_SCRIPT, data=data, texts=names))


def _rank(rank: RankComparison, problems: Sequence[Problem]) -> dict[str, Any]:
    worst: dict[str, Problem] = {}
    for problem in problems:
        if problem.rank == rank.rank:
            worst.setdefault(problem.parameter, problem)
    names = [*worst, *(name for name in rank.parameters if name not in worst)]
    return {
        "rank": rank.rank,
        "steps": rank.steps,
        "summary": [_rounded(rank.summary(step)) for step in rank.steps],
        "parameters": [
            {
                "name": name,
                "values": [_rounded(rank.value(name, step)) for step in rank.steps],
                "bad": worst[name].step if name in worst else None,
                "rule": in_both(Wording("{}: {}", worst[name].step, worst[name].rule)) if name in worst else "",
            }
            for name in names
        ],
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)
