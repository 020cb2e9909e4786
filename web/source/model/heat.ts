// The error along the execution, a pixel column at a time.

import { FLAG, NONE, SEVERITY } from "./place.ts";
import type { Place } from "./place.ts";

export type Measure = "outputDifference" | "norm" | "largest";

export interface Heat {
  readonly columns: number;
  /** The largest value of each column; NaN where none has numbers. */
  readonly values: Float32Array;
  /** The worst status of each column; 255 where no row falls into it. */
  readonly status: Uint8Array;
  /** The row that a click on the column means: the worst, among equals the largest. */
  readonly rows: Int32Array;
  /** 1: rows of the candidate alone, 2: of the reference alone, 3: both. */
  readonly alone: Uint8Array;
  readonly flags: Uint16Array;
  readonly segments: readonly Segment[];
}

/** A run of columns of one phase and micro-step. */
export interface Segment {
  readonly from: number;
  readonly to: number;
  readonly phase: number;
  readonly micro: number;
}

/** Rows that have numbers or stand alone, in order of execution: what the strip is made of. */
export function strip(place: Place): Int32Array {
  const result = new Int32Array(place.size);
  let count = 0;
  for (const row of place.sequence) {
    const isLeaf = place.ends[row] === row + 1;
    const single = !Number.isNaN(place.norm[row]) || !Number.isNaN(place.largest[row]);
    if (isLeaf || place.status[row] !== 0 || single) result[count++] = row;
  }
  return result.slice(0, count);
}

export function heatOf(place: Place, rows: Int32Array, columns: number, measure: Measure): Heat {
  const values = new Float32Array(columns).fill(NaN);
  const status = new Uint8Array(columns).fill(255);
  const best = new Int32Array(columns).fill(-1);
  const alone = new Uint8Array(columns);
  const flags = new Uint16Array(columns);
  const source = place[measure];
  const segments: Segment[] = [];
  const single = measure !== "outputDifference";
  let open: { from: number; phase: number; micro: number } | null = null;
  for (let at = 0; at < rows.length; at++) {
    const row = rows[at];
    const from = columnOf(at, rows.length, columns);
    // With fewer rows than columns a row is several pixels wide.
    const to = Math.max(from + 1, columnOf(at + 1, rows.length, columns));
    const value = single || place.status[row] !== NONE ? source[row] : NaN;
    const rank = single ? (place.flags[row] & (FLAG.notFinite | FLAG.bornNotFinite)) : SEVERITY[place.status[row]];
    for (let column = from; column < to && column < columns; column++) {
      const now = best[column];
      const nowRank = now < 0 ? -1 : single ? (place.flags[now] & (FLAG.notFinite | FLAG.bornNotFinite)) : SEVERITY[place.status[now]];
      if (now < 0 || rank > nowRank || (rank === nowRank && value > source[now])) best[column] = row;
      if (status[column] === 255 || SEVERITY[place.status[row]] > SEVERITY[status[column]]) status[column] = place.status[row];
      if (value > values[column] || (Number.isNaN(values[column]) && !Number.isNaN(value))) values[column] = value;
      alone[column] |= place.sides[row];
      flags[column] |= place.flags[row];
    }
    if (open === null || open.phase !== place.phases[row] || open.micro !== place.micro[row]) {
      if (open !== null && from > open.from) segments.push({ ...open, to: from });
      if (open === null || from > open.from) open = { from, phase: place.phases[row], micro: place.micro[row] };
    }
  }
  if (open !== null) segments.push({ ...open, to: columns });
  return { columns, values, status, rows: best, alone, flags, segments };
}

export function columnOf(position: number, count: number, columns: number): number {
  return Math.floor((position * columns) / Math.max(1, count));
}

/** The ends of the axis, powers of ten: what the values span, kept within what can be told apart. */
export function decades(values: Float32Array, measure: Measure): [number, number] {
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    if (!(value > 0) || !Number.isFinite(value)) continue;
    const power = Math.log10(value);
    if (power < low) low = power;
    if (power > high) high = power;
  }
  if (low > high) return [-8, 0];
  if (measure === "outputDifference") return [Math.max(-9, Math.min(-6, Math.floor(low))), Math.max(0, Math.min(3, Math.ceil(high)))];
  return [Math.max(Math.floor(low), Math.ceil(high) - 12), Math.max(Math.floor(low) + 1, Math.ceil(high))];
}

/** The height of a value between 0 and 1 on the axis; what is not finite is at the top. */
export function heightOf(value: number, [low, high]: readonly [number, number]): number {
  if (Number.isNaN(value) || value <= 0) return 0;
  if (!Number.isFinite(value)) return 1;
  return Math.max(0.02, Math.min(1, (Math.log10(value) - low) / (high - low)));
}
