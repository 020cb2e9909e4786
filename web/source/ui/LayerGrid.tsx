// Repeated layers at one glance: a row for each layer, a column for each module in it.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { short } from "../model/figures.ts";
import { cellKey, grids } from "../model/layers.ts";
import type { Cell, Grid } from "../model/layers.ts";
import { FLAG, nameOf } from "../model/place.ts";
import type { Place } from "../model/place.ts";
import { windowOf } from "../model/rows.ts";
import type { Session } from "../state/session.ts";
import { t } from "../texts/index.ts";
import type { Key } from "../texts/index.ts";
import { gridKeys, Mark } from "./Mark.tsx";
import { statusWords } from "./Icons.tsx";

const PASSES = [0, 1, 2] as const;
type Pass = (typeof PASSES)[number];
/** Heights of a line, and of the frame of a long grid, pixels. */
const LINE = 20;
const LONG = 600;
type Measure = "norm" | "largest";

/** Kept with the place: going to the calls and back computes nothing. */
const computed = new WeakMap<Place, Partial<Record<Measure, Grid[]>>>();

export function gridsOnce(place: Place, measure: Measure): Grid[] {
  const known = computed.get(place) ?? {};
  computed.set(place, known);
  return (known[measure] ??= grids(place, measure));
}

export function LayerGrid({ session, place }: { session: Session; place: Place }): JSX.Element {
  const [measure, setMeasure] = useState<Measure>("norm");
  const [pass, setPass] = useState<Pass>(0);
  const found = gridsOnce(place, measure);
  const passes = PASSES.filter((each) => found.some((grid) => [...grid.passes.values()].some((ran) => ran[each])));
  const shown = passes.includes(pass) ? pass : (passes[0] ?? 0);
  const go = (event: Event): void => {
    const row = (event.target as HTMLElement).closest<HTMLElement>("[data-row]")?.dataset["row"];
    if (row !== undefined) session.select(Number(row));
  };
  if (!found.length) return <p class="waiting">{t("layers.none")}</p>;
  return (
    <div class="grids" data-own-keys onClick={go} onKeyDown={gridKeys}>
      <div class="grid-head">
        {session.single ? <>
          <div class="chips" role="group" aria-label={t("filter.pass")}>{passes.map((each) => (
            <button key={each} type="button" class="chip" aria-pressed={each === shown} onClick={() => setPass(each)}>{passWords(each)}</button>))}</div>
          <div class="chips" role="group" aria-label={t("heat.measure")}>{(["norm", "largest"] as const).map((name) => (
            <button key={name} type="button" class="chip" aria-pressed={name === measure} onClick={() => setMeasure(name)}>{t(`column.${name}` as Key)}</button>))}</div>
        </> : <p class="quiet">{t("layers.legend")}</p>}
      </div>
      {found.map((grid) => <OneGrid key={grid.name} session={session} place={place} grid={grid} passes={session.single ? [shown] : passes} />)}
    </div>
  );
}

export function passWords(pass: Pass): string {
  return pass === 2 ? t("kind.gradient") : t(pass ? "pass.backward.long" : "pass.forward.long");
}

function OneGrid({ session, place, grid, passes }: { session: Session; place: Place; grid: Grid; passes: Pass[] }): JSX.Element {
  // What is in no layer has a row for each module instead.
  const isLoose = grid.name === "";
  // Hundreds of layers scroll in a frame of their own, which holds those on the screen only.
  const isLong = grid.layers.length > 120;
  const [scroll, setScroll] = useState(0);
  const drawn = isLong ? windowOf(grid.layers.length, LINE, LONG, scroll) : { from: 0, to: grid.layers.length };
  const span = session.single ? valueSpan(grid, passes[0]!) : null;
  const isHere = (found: Cell): boolean => session.selected >= 0 && found.rows.includes(session.selected);
  const passesOf = (part: string): Pass[] => passes.filter((pass) => grid.passes.get(part)?.[pass]);
  const cell = (layer: string, part: string): JSX.Element => {
    const found = grid.cells.get(cellKey(layer, part));
    if (!found) return <td key={part} />;
    if (span) return <ValueCell key={part} place={place} cell={found} pass={passes[0]!} span={span} isSelected={isHere(found)} />;
    return (
      <td key={part} class={isHere(found) ? "here" : ""}>
        <span class="marks">{passesOf(part).map((pass) => found.rows[pass] < 0 ? <i key={pass} class="mark-box none" /> : (
          <Mark key={pass} status={found.status[pass]} row={found.rows[pass]} words={`${nameOf(place, found.rows[pass])}\n${passWords(pass)}: ${statusWords(found.status[pass])}`} />))}</span>
      </td>
    );
  };
  return (
    <section class="grid">
      <h3>{isLoose ? t("layers.other") : `${grid.name}.*`}</h3>
      <div class={isLong ? "long" : ""} onScroll={isLong ? (event) => setScroll(event.currentTarget.scrollTop) : undefined}>
      <table>
        {isLoose ? <tbody>{grid.parts.map((part) => <tr key={part}><th scope="row">{part}</th>{cell("", part)}</tr>)}</tbody> : <>
          <thead><tr><td />{grid.parts.map((part) => <th key={part} scope="col" title={part}><span>{part || t("layers.itself")}</span></th>)}</tr></thead>
          <tbody>
            {drawn.from > 0 && <tr style={{ height: `${drawn.from * LINE}px` }} />}
            {grid.layers.slice(drawn.from, drawn.to).map((layer) => (
              <tr key={layer}><th scope="row" title={t("layers.layer", { layer })}>{layer}</th>{grid.parts.map((part) => cell(layer, part))}</tr>))}
            {drawn.to < grid.layers.length && <tr style={{ height: `${(grid.layers.length - drawn.to) * LINE}px` }} />}
          </tbody>
        </>}
      </table>
      </div>
    </section>
  );
}

function ValueCell({ place, cell, pass, span, isSelected }: { place: Place; cell: Cell; pass: Pass; span: readonly [number, number]; isSelected: boolean }): JSX.Element {
  const row = cell.rows[pass];
  if (row < 0) return <td />;
  const value = cell.values[pass];
  const isBroken = (cell.flags[pass] & FLAG.notFinite) !== 0;
  const share = value > 0 && Number.isFinite(value) ? (Math.log10(value) - span[0]) / Math.max(0.5, span[1] - span[0]) : 0;
  return (
    <td class={isSelected ? "value here" : "value"} data-row={row} tabIndex={-1} title={nameOf(place, row)}
      style={isBroken || Number.isNaN(value) ? {} : { background: `color-mix(in srgb, var(--s-rounding) ${Math.round(6 + share * 44)}%, var(--paper))` }}>
      {isBroken ? cell.flags[pass] & FLAG.bornNotFinite ? <b class="t-unexplained">✕ {t("layers.born")}</b> : <span class="t-unexplained">{t("layers.broken")}</span> : short(value) || (cell.flags[pass] & FLAG.mask ? <span class="quiet">{t("layers.mask")}</span> : "–")}
    </td>
  );
}

function valueSpan(grid: Grid, pass: Pass): readonly [number, number] {
  let low = Infinity;
  let high = -Infinity;
  for (const cell of grid.cells.values()) {
    const value = cell.values[pass];
    if (!(value > 0) || !Number.isFinite(value)) continue;
    low = Math.min(low, Math.log10(value));
    high = Math.max(high, Math.log10(value));
  }
  return low > high ? [0, 1] : [low, high];
}
