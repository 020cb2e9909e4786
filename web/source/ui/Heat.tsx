// The error along the execution: a bar for each pixel column, the worst of what falls into it. A click goes there.

import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { short } from "../model/figures.ts";
import { columnOf, heatOf, strip } from "../model/heat.ts";
import type { Heat as Heat_, Measure } from "../model/heat.ts";
import { nameOf } from "../model/place.ts";
import type { Place } from "../model/place.ts";
import type { Session } from "../state/session.ts";
import { t } from "../texts/index.ts";
import type { Key } from "../texts/index.ts";
import { drawHeat, GUTTER, HEIGHT } from "./heatDrawing.ts";
import { statusWords } from "./Icons.tsx";

interface Props {
  session: Session;
  theme: string;
  language: string;
}

export function Heat({ session, theme, language }: Props): JSX.Element | null {
  const { place } = session;
  if (!place || !place.size) return <div class="heat empty" style={{ height: `${HEIGHT}px` }} />;
  return <Strip session={session} place={place} theme={theme} language={language} />;
}

function Strip({ session, place, theme, language }: Props & { place: Place }): JSX.Element {
  const canvas = useRef<HTMLCanvasElement>(null);
  const box = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  const [scheme, setScheme] = useState(0);
  const [measure, setMeasure] = useState<Measure>(session.single ? "norm" : "outputDifference");
  const [over, setOver] = useState<{ x: number; row: number } | null>(null);

  useLayoutEffect(() => {
    const watch = new ResizeObserver(([entry]) => setWidth(Math.floor(entry!.contentRect.width)));
    watch.observe(box.current!);
    return () => watch.disconnect();
  }, []);
  useEffect(() => {
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const turn = (): void => setScheme((count) => count + 1);
    dark.addEventListener("change", turn);
    return () => dark.removeEventListener("change", turn);
  }, []);

  const columns = Math.max(0, width - GUTTER);
  const rows = useMemo(() => strip(place), [place]);
  const positions = useMemo(() => {
    const result = new Int32Array(place.size).fill(-1);
    rows.forEach((row, at) => { result[row] = at; });
    return result;
  }, [place, rows]);
  const heat = useMemo(() => (columns ? heatOf(place, rows, columns, measure) : null), [place, rows, columns, measure]);
  const span = useMemo(() => selectedColumns(place, positions, rows.length, columns, session.selected), [place, positions, rows, columns, session.selected]);
  const marks = useMemo(() => place.culprits.map(({ row, finding }) => ({
    column: columnOf(positions[row] >= 0 ? positions[row] : lastBelow(place, positions, row), rows.length, columns), finding })),
  [place, positions, rows, columns]);
  const first = place.first >= 0 ? columnOf(positions[place.first] >= 0 ? positions[place.first] : lastBelow(place, positions, place.first), rows.length, columns) : -1;

  useLayoutEffect(() => {
    if (!heat || !canvas.current) return;
    drawHeat(canvas.current, heat, { measure, span, marks, first, empty: t("heat.none"), words: (phase, micro) => segmentWords(phase, micro, place.microSteps) });
  }, [heat, span, marks, first, theme, scheme, language, measure]);

  const at = (event: MouseEvent): number => Math.round(event.clientX - canvas.current!.getBoundingClientRect().left) - GUTTER;
  const rowNear = (column: number): number => nearest(heat!, column);
  const step = (by: number): void => {
    const now = session.selected >= 0 ? positions[session.selected] : -1;
    const next = rows[Math.max(0, Math.min(rows.length - 1, (now < 0 ? 0 : now) + by))];
    if (next !== undefined) session.select(next);
  };
  return (
    <div class="heat" ref={box} style={{ height: `${HEIGHT}px` }}>
      <canvas ref={canvas} role="slider" tabIndex={0} data-own-keys aria-label={t("heat.label")} aria-valuemin={0} aria-valuemax={rows.length - 1}
        aria-valuenow={session.selected >= 0 ? Math.max(0, positions[session.selected]) : 0} aria-valuetext={session.selected >= 0 ? nameOf(place, session.selected) : t("nothing")}
        onClick={(event) => { const row = rowNear(at(event)); if (row >= 0) session.select(row); }}
        onMouseMove={(event) => { const x = at(event); const row = rowNear(x); setOver(row >= 0 && x >= 0 ? { x: x + GUTTER, row } : null); }}
        onMouseLeave={() => setOver(null)}
        onKeyDown={(event) => {
          const by = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
          if (by) { step(by); event.preventDefault(); }
        }} />
      {session.single && (
        <div class="measure" role="group" aria-label={t("heat.measure")}>
          {(["norm", "largest"] as const).map((name) => (
            <button key={name} type="button" class="chip" aria-pressed={measure === name} onClick={() => setMeasure(name)}>{t(`column.${name}` as Key)}</button>))}
        </div>
      )}
      {over && (
        <div class={over.x > width / 2 ? "tip before" : "tip"} style={over.x > width / 2 ? { right: `${width - over.x + 10}px` } : { left: `${over.x + 10}px` }}>
          <span class="mono">{nameOf(place, over.row)}</span>
          <span>{session.single ? `${t(`column.${measure}` as Key)} ${short(place[measure][over.row])}` : `${statusWords(place.status[over.row])} ${short(place.outputDifference[over.row])}`}</span>
        </div>
      )}
    </div>
  );
}

function segmentWords(phase: number, micro: number, microSteps: number): string {
  const name = t(`pass.${["forward", "backward", "optimizer"][phase] ?? "forward"}.long` as Key);
  return microSteps > 1 && phase < 2 ? `${name} ${micro + 1}` : name;
}

function nearest(heat: Heat_, column: number): number {
  for (let by = 0; by < 4; by++) {
    for (const at of [column + by, column - by]) if (at >= 0 && at < heat.columns && heat.rows[at] >= 0) return heat.rows[at];
  }
  return -1;
}

function lastBelow(place: Place, positions: Int32Array, row: number): number {
  for (let at = row; at < place.ends[row]; at++) if (positions[at] >= 0) return positions[at];
  return 0;
}

/** From which to which column the selected row and what it holds reach. */
function selectedColumns(place: Place, positions: Int32Array, count: number, columns: number, row: number): [number, number] | null {
  if (row < 0) return null;
  let low = Infinity;
  let high = -1;
  for (let at = row; at < place.ends[row]; at++) {
    const position = positions[at];
    if (position < 0) continue;
    if (position < low) low = position;
    if (position > high) high = position;
  }
  return high < 0 ? null : [columnOf(low, count, columns), Math.max(columnOf(low, count, columns) + 1, columnOf(high + 1, count, columns))];
}
