"""The look of a page: light and dark, narrow and wide, on paper. Nothing is fetched from anywhere."""

from __future__ import annotations

STYLE = """
:root {
  color-scheme: light dark;
  --paper: #ffffff; --ink: #1d2329; --quiet: #5d6975; --line: #d9dee3; --panel: #f5f7f9; --code: #eef1f4;
  --same: #c9d1d8; --rounding: #4d8fd1; --victim: #e0982b; --guilty: #c8372d; --alone: #8a55b8; --gone: #1f9a94;
  --bad: #b3261e; --good: #1b7f3b; --warn: #8a6100; --mark: #fff3d6;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #15191d; --ink: #e4e8ec; --quiet: #98a4b0; --line: #343c44; --panel: #1d2328; --code: #252c33;
    --same: #46505a; --rounding: #5fa3e6; --victim: #eab04d; --guilty: #f0685e; --alone: #b58ae0; --gone: #4fc4bd;
    --bad: #ff8a80; --good: #6fd08c; --warn: #e3bd62; --mark: #3b3216;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; max-width: 62rem; padding: 1.2rem 1rem 3rem; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
  overflow-wrap: anywhere;
}
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0 0 .4rem; }
h1.bad { color: var(--bad); } h1.good { color: var(--good); } h1.warn { color: var(--warn); }
h2 { font-size: 1.05rem; margin: 2rem 0 .6rem; padding-top: .8rem; border-top: 1px solid var(--line); }
p { margin: .4rem 0; }
.lead { font-size: 1.1rem; }
.quiet, dt, th, .phase { color: var(--quiet); }
code, .name, pre, td.call {
  font-family: ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: .88em;
}
pre {
  margin: .2rem 0 .5rem; padding: .35rem .6rem; background: var(--code); border-radius: 4px;
  white-space: pre-wrap;
}
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem .9rem; margin: .6rem 0; }
dd { margin: 0; min-width: 0; }
table { border-collapse: collapse; margin: .5rem 0; }
th, td { text-align: left; padding: .16rem .9rem .16rem 0; vertical-align: top; font-weight: normal; }
thead th { border-bottom: 1px solid var(--line); }
td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.evidence td { font-variant-numeric: tabular-nums; }
.evidence tr.other td { font-weight: 600; }
.wide { overflow-x: auto; } .wide table { min-width: 44rem; width: 100%; font-size: .9em; }
.wide th, .wide td { overflow-wrap: normal; white-space: nowrap; }
.wide td.call { white-space: normal; min-width: 14rem; }
.wide th:nth-child(n+4):nth-child(-n+6) { text-align: right; }
.todo { border-left: 3px solid var(--rounding); padding: .1rem 0 .1rem .7rem; margin: .8rem 0; }
details { margin: .35rem 0; } summary { cursor: pointer; }
details.finding { border: 1px solid var(--line); border-radius: 6px; padding: .35rem .7rem; }
details.finding[open] { background: var(--panel); }
.kind { display: inline-block; padding: 0 .45rem; border-radius: 4px; background: var(--code); font-size: .85em; }
ol.frames { list-style: none; margin: .3rem 0; padding: 0; } ol.frames li { margin: .15rem 0; }
.strip { position: relative; margin: 1.6rem 0 .3rem 2.9rem; }
.strip svg { display: block; width: 100%; height: 9rem; background: var(--panel); }
.strip .scale {
  position: absolute; left: -2.9rem; width: 2.6rem; text-align: right; font-size: .72rem; color: var(--quiet);
  transform: translateY(-50%);
}
.strip .origin { position: absolute; top: -1.35rem; font-size: .78rem; font-weight: 600; white-space: nowrap; }
.strip .origin.left { transform: translateX(-.35rem); }
.strip .origin.right { transform: translateX(calc(-100% + .35rem)); }
.phases { display: flex; margin: 0 0 .6rem 2.9rem; font-size: .75rem; }
.phase {
  overflow: hidden; white-space: nowrap; border-left: 1px solid var(--line); padding-left: .25rem;
  min-width: 0;
}
.legend {
  display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; padding: 0; margin: .5rem 0; list-style: none;
  font-size: .88rem;
}
.legend i, td i { display: inline-block; width: .75em; height: .75em; border-radius: 2px; margin-right: .4em; }
.same { fill: var(--same); } .rounding { fill: var(--rounding); } .victim { fill: var(--victim); }
.guilty { fill: var(--guilty); } .candidate_only { fill: var(--alone); }
.reference_only { fill: var(--gone); }
i.same {
  background: var(--same); } i.rounding { background: var(--rounding); } i.victim { background: var(--victim);
}
i.guilty { background: var(--guilty); } i.candidate_only { background: var(--alone); }
i.reference_only { background: var(--gone); }
.grid { stroke: var(--line); stroke-width: 1; vector-effect: non-scaling-stroke; }
.here { stroke: var(--ink); stroke-width: 1.5; vector-effect: non-scaling-stroke; }
tr.here td { background: var(--mark); } tr.here td.call { font-weight: 600; }
footer { margin-top: 2.5rem; font-size: .82rem; color: var(--quiet); }
@media (max-width: 34rem) {
  body { font-size: 14px; padding: .8rem .7rem 2rem; } h1 { font-size: 1.25rem; }
  dl { grid-template-columns: 1fr; gap: 0; } dd { margin-bottom: .35rem; }
  .strip svg { height: 7rem; }
  .phase { font-size: .65rem; padding-left: .1rem; }
  .wide table { min-width: 0; font-size: .78em; } .wide td.call { min-width: 0; overflow-wrap: anywhere; }
  .wide th, .wide td { white-space: normal; padding-right: .4rem; }
  .wide th:last-child, .wide td:last-child { display: none; }
}
@media print {
  body { max-width: none; font-size: 10pt; }
  article .own::details-content { content-visibility: visible; display: block; }
  .strip svg, i, tr.here td { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  .wide { overflow: visible; } .wide table { min-width: 0; } article, tr { break-inside: avoid; }
}
"""
