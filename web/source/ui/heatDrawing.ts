// Drawing of the strip. Nothing is told by colour alone: unexplained calls have ticks of their own above the bars, calls
// of one side ticks below (the candidate's in the upper lane, the reference's in the lower one).

import { decades, heightOf } from "../model/heat.ts";
import type { Heat, Measure } from "../model/heat.ts";
import { CANDIDATE_ONLY, FLAG, NAMED, REFERENCE_ONLY, STATUSES, UNEXPLAINED } from "../model/place.ts";

export const GUTTER = 40;
export const HEIGHT = 104;
const TOP = 17; // marks of the findings
const TICKS = 5; // unexplained
const LANES = 11; // one side alone: two lanes
const FOOT = 15; // names of the passes

export interface Drawn {
  readonly measure: Measure;
  readonly span: readonly [number, number] | null;
  readonly marks: readonly { column: number; finding: number }[];
  readonly first: number;
  words(phase: number, micro: number): string;
  /** What to write when there is nothing to draw. */
  readonly empty: string;
}

export function drawHeat(canvas: HTMLCanvasElement, heat: Heat, drawn: Drawn): void {
  const scale = window.devicePixelRatio || 1;
  const width = heat.columns + GUTTER;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(HEIGHT * scale);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${HEIGHT}px`;
  const pen = canvas.getContext("2d")!;
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  const style = getComputedStyle(canvas);
  const colour = (name: string): string => style.getPropertyValue(`--${name}`).trim();
  const font = style.fontFamily;
  const isPair = drawn.measure === "outputDifference";
  const base = HEIGHT - FOOT - LANES;
  const top = TOP + TICKS;
  const tall = base - top;
  const axis = decades(heat.values, drawn.measure);
  pen.clearRect(0, 0, width, HEIGHT);

  // The passes: quiet bands with a name each.
  pen.font = `11px ${font}`;
  pen.textBaseline = "alphabetic";
  for (const segment of heat.segments) {
    const x = GUTTER + segment.from;
    const wide = segment.to - segment.from;
    pen.fillStyle = colour(segment.phase === 1 ? "band-2" : segment.phase === 2 ? "band-3" : "band-1");
    pen.fillRect(x, top, wide, base - top + LANES);
    pen.fillStyle = colour("line-strong");
    pen.fillRect(x, top, 1, HEIGHT - top);
    const words = drawn.words(segment.phase, segment.micro);
    pen.fillStyle = colour("quiet");
    if (pen.measureText(words).width < wide - 8) pen.fillText(words, x + 5, HEIGHT - 4);
  }

  // The scale.
  pen.textAlign = "right";
  const [low, high] = axis;
  const step = Math.max(1, Math.ceil((high - low) / 3));
  for (let power = high; power >= low; power -= step) {
    const y = Math.round(base - ((power - low) / (high - low)) * tall) + 0.5;
    pen.fillStyle = colour("quiet");
    pen.fillText(power === 0 ? "1" : `1e${power < 0 ? "\u2212" : ""}${Math.abs(power)}`, GUTTER - 5, y + 4);
    pen.strokeStyle = colour("line");
    pen.lineWidth = 1;
    pen.beginPath();
    pen.moveTo(GUTTER, y);
    pen.lineTo(width, y);
    pen.stroke();
  }
  pen.textAlign = "left";

  if (drawn.span) {
    pen.fillStyle = colour("selection");
    pen.fillRect(GUTTER + drawn.span[0], TOP, Math.max(2, drawn.span[1] - drawn.span[0]), base - TOP + LANES);
  }

  // A light body with a strong top: thousands of bars beside each other read as a line, and a red one stands out.
  const bar = (x: number, tallest: number, body: number): void => {
    pen.globalAlpha = body;
    pen.fillRect(x, base - tallest, 1, tallest);
    pen.globalAlpha = 1;
    pen.fillRect(x, base - tallest, 1, Math.min(tallest, 2));
  };
  if (!heat.values.some((value) => !Number.isNaN(value)) && !heat.alone.some((sides) => sides !== 0 && isPair) && !heat.flags.some((flags) => flags & FLAG.notFinite)) {
    pen.fillStyle = colour("quiet");
    pen.textAlign = "center";
    pen.fillText(drawn.empty, GUTTER + heat.columns / 2, top + tall / 2 + 4);
    pen.textAlign = "left";
    return;
  }

  const fills = STATUSES.map((name) => colour(`s-${name === "named" ? "unexplained" : name}`));
  for (let column = 0; column < heat.columns; column++) {
    const status = heat.status[column];
    if (status === 255) continue;
    const x = GUTTER + column;
    const broken = heat.flags[column] & (FLAG.notFinite | FLAG.bornNotFinite);
    const value = heat.values[column];
    if (isPair) {
      const tallest = heightOf(value, axis) * tall;
      const isAlone = status === CANDIDATE_ONLY || status === REFERENCE_ONLY;
      const isAtFault = status === UNEXPLAINED || status === NAMED;
      pen.fillStyle = fills[isAlone ? 3 : status]!;
      // A column in which one side stands alone has its ticks below; the bar shows the numbers of the others.
      if (tallest > 0) bar(x, tallest, isAtFault ? 1 : 0.42);
      else if (status !== 0 && !isAlone) pen.fillRect(x, base - 1, 1, 1);
      if (isAtFault) {
        pen.fillStyle = fills[UNEXPLAINED]!;
        if (!(value > 0)) pen.fillRect(x, top, 1, tall);
        pen.fillRect(x, TOP, 1, TICKS - 1);
      }
      if (heat.alone[column] & 1) {
        pen.fillStyle = fills[5]!;
        pen.fillRect(x, base + 1, 1, 4);
      }
      if (heat.alone[column] & 2) {
        pen.fillStyle = fills[6]!;
        pen.fillRect(x, base + 6, 1, 4);
      }
    } else {
      const tallest = broken ? tall : heightOf(value, axis) * tall;
      pen.fillStyle = broken ? fills[4]! : fills[2]!;
      if (tallest > 0) bar(x, tallest, heat.flags[column] & FLAG.bornNotFinite ? 1 : 0.42);
      if (heat.flags[column] & FLAG.bornNotFinite) pen.fillRect(x - 1, TOP, 3, TICKS);
    }
  }
  pen.fillStyle = colour("line-strong");
  pen.fillRect(GUTTER, base, heat.columns, 1);

  const flagAt = (column: number, words: string, strong: boolean): void => {
    // At the edges the mark moves inwards, so that all of it is seen.
    const x = Math.max(GUTTER + 5, Math.min(width - 6, GUTTER + column)) + 0.5;
    pen.strokeStyle = colour(strong ? "s-unexplained" : "ink");
    pen.lineWidth = 1;
    pen.beginPath();
    pen.moveTo(x, TOP - 3);
    pen.lineTo(x, base + LANES);
    pen.stroke();
    pen.fillStyle = colour(strong ? "s-unexplained" : "ink");
    pen.beginPath();
    pen.moveTo(x - 4.5, TOP - 8);
    pen.lineTo(x + 4.5, TOP - 8);
    pen.lineTo(x, TOP - 1);
    pen.fill();
    pen.font = `600 10px ${font}`;
    const wide = pen.measureText(words).width;
    pen.fillText(words, x + 7 + wide > width ? x - 7 - wide : x + 7, TOP - 5);
  };
  const used: number[] = [];
  const mark = (column: number, finding: number): void => {
    // Marks that would cover each other become one.
    if (used.some((other) => Math.abs(other - column) < 22)) return;
    used.push(column);
    flagAt(column, String(finding + 1), true);
  };
  for (const { column, finding } of drawn.marks) if (finding < 9) mark(column, finding);
  if (drawn.first >= 0) mark(drawn.first, 0);
}
