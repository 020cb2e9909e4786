// One rank of one step as typed columns: an answer of a million rows must not become a million objects.

import type { Difference, PlaceAnswer, Said } from "../data/protocol.ts";

export const KINDS = ["module", "call", "collection", "gradient", "optimizer"] as const;
export const PHASES = ["forward", "backward", "optimizer"] as const;
export const STATUSES = ["none", "identical", "rounding", "explained", "unexplained", "candidate", "reference", "named"] as const;

export const NONE = 0;
export const EXPLAINED = 3;
export const UNEXPLAINED = 4;
export const CANDIDATE_ONLY = 5;
export const REFERENCE_ONLY = 6;
/** Within rounding or explained by its inputs, and a finding names it all the same. */
export const NAMED = 7;

/** How bad a status is: what is shown when many are drawn as one. */
export const SEVERITY: readonly number[] = [0, 1, 2, 3, 7, 5, 4, 6];
/** The statuses from the worst to the best. */
export const WORST_FIRST: readonly number[] = [4, 7, 5, 6, 3, 2, 1, 0];

export const FLAG = {
  notFinite: 1,
  bornNotFinite: 2,
  dtype: 4,
  shape: 8,
  arguments: 16,
  communication: 32,
  unset: 64,
  recomputed: 128,
  mask: 256,
} as const;

export class OutOfOrder extends Error {}

export interface Place {
  readonly size: number;
  /** All names, one a line; the name of row i is text.slice(starts[i], starts[i + 1] - 1). */
  readonly text: string;
  readonly starts: Int32Array;
  readonly twins: ReadonlyMap<number, string>;
  readonly parents: Int32Array;
  /** The first row after the subtree of each row. */
  readonly ends: Int32Array;
  readonly depths: Uint16Array;
  readonly kinds: Uint8Array;
  readonly sides: Uint8Array;
  readonly phases: Uint8Array;
  readonly micro: Uint16Array;
  readonly microSteps: number;
  readonly status: Uint8Array;
  readonly inputDifference: Float32Array;
  readonly outputDifference: Float32Array;
  readonly allowed: Float32Array;
  readonly largest: Float32Array;
  readonly norm: Float32Array;
  readonly flags: Uint16Array;
  /** Rows in the order in which they were complete: a container after what it holds. */
  readonly sequence: Int32Array;
  /** The worst status strictly below each row, and the largest difference there. */
  readonly worstBelow: Uint8Array;
  readonly outputDifferenceBelow: Float32Array;
  /** Flags of all rows below, or-ed. */
  readonly flagsBelow: Uint16Array;
  /** counts[s][i]: how many of the rows before i have status s; the difference of two is the count of a block. */
  readonly counts: readonly Uint32Array[];
  readonly first: number;
  readonly culprits: readonly { row: number; finding: number }[];
  readonly notes: readonly Said[];
}

export function placeOf(answer: PlaceAnswer): Place {
  const size = answer.names.length;
  const lengths: [string, number][] = [["parents", answer.parents.length], ["status", answer.status.length],
    ["kinds", answer.kinds.length], ["sides", answer.sides.length], ["orders", answer.orders.length]];
  for (const [name, length] of lengths) {
    if (length !== size) throw new OutOfOrder(`${name} has ${length} entries for ${size} names`);
  }
  const { text, starts } = joined(answer.names);
  const parents = Int32Array.from(answer.parents);
  const depths = new Uint16Array(size);
  for (let row = 0; row < size; row++) {
    const parent = parents[row];
    if (parent >= row || parent < -1) throw new OutOfOrder(`row ${row} comes before its parent ${parent}`);
    depths[row] = parent < 0 ? 0 : depths[parent] + 1;
  }
  const ends = blocks(parents);
  const status = bytes(answer.status, size);
  // A row that a finding names has a status of its own, whatever explains its difference.
  if (answer.sides.length && answer.output_difference.some((value) => value !== null)) for (const row of answer.named) if (status[row] < UNEXPLAINED) status[row] = NAMED;
  const outputDifference = floats(answer.output_difference, size);
  const flags = Uint16Array.from(answer.flags, (flag) => flag & 0xffff);
  const flagsWhole = flags.length === size ? flags : new Uint16Array(size);
  const twins = new Map<number, string>();
  for (const row in answer.twins) twins.set(Number(row), answer.twins[row]);
  return {
    size, text, starts, twins, parents, ends, depths,
    kinds: bytes(answer.kinds, size), sides: bytes(answer.sides, size), phases: bytes(answer.phases, size),
    micro: Uint16Array.from({ length: size }, (_, row) => answer.micro[row] ?? 0), microSteps: answer.micro_steps,
    status, outputDifference, inputDifference: floats(answer.input_difference, size), allowed: floats(answer.allowed, size),
    largest: floats(answer.largest, size), norm: floats(answer.norm, size), flags: flagsWhole,
    sequence: sequence(answer.orders, parents, ends),
    ...below(parents, status, outputDifference, flagsWhole), counts: running(status),
    first: answer.first, culprits: answer.culprits, notes: answer.notes,
  };
}

export function nameOf(place: Place, row: number): string {
  return place.text.slice(place.starts[row], place.starts[row + 1] - 1);
}

/**
 * The row with this name, or -1. Side 2 asks for the reference's call of that name: its own row, or the one of its pair,
 * which may be called otherwise while the candidate has another call of this name.
 */
export function rowOf(place: Place, name: string, side = 0): number {
  const found = rowsNamed(place, name);
  if (side !== 2 && found.length) return found[0]!;
  const own = found.find((row) => place.sides[row] === 2);
  if (own !== undefined) return own;
  for (const [row, twin] of place.twins) if (twin === name) return row;
  return found.find((row) => !place.twins.has(row) && place.sides[row] !== 1) ?? -1;
}

function rowsNamed(place: Place, name: string): number[] {
  const rows: number[] = [];
  if (place.text.startsWith(`${name}\n`)) rows.push(0);
  const line = `\n${name}\n`;
  for (let at = place.text.indexOf(line); at >= 0; at = place.text.indexOf(line, at + 1)) rows.push(rowAt(place, at + 1));
  return rows;
}

/** The row whose name covers this offset of the text. */
export function rowAt(place: Place, offset: number): number {
  let low = 0;
  let high = place.size - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (place.starts[middle] <= offset) low = middle;
    else high = middle - 1;
  }
  return low;
}

/** How many rows strictly below `row` have this status. */
export function countBelow(place: Place, row: number, status: number): number {
  return place.counts[status][place.ends[row]] - place.counts[status][row + 1];
}

/** The row with the worst status in the block of `row`, itself included (-1: of all); among equals the first in execution. */
export function worstRow(place: Place, row: number): number {
  const from = Math.max(0, row);
  const to = row < 0 ? place.size : place.ends[row];
  let best = from;
  for (let at = from + 1; at < to; at++) if (badness(place, at) > badness(place, best)) best = at;
  // A container is as bad as what it holds: the innermost is where to look.
  for (let at = best + 1; at < place.ends[best]; at++) if (badness(place, at) === badness(place, best)) best = at;
  return best;
}

/** Status first; of a single run, which has none, where NaN or Inf begins, then where they are. */
function badness(place: Place, row: number): number {
  const flags = place.flags[row];
  return SEVERITY[place.status[row]] * 4 + (flags & FLAG.bornNotFinite ? 2 : flags & FLAG.notFinite ? 1 : 0);
}

/** The worse of a row's own status and what is below. */
export function worstOf(place: Place, row: number): number {
  const own = place.status[row];
  const under = place.worstBelow[row];
  return SEVERITY[under] > SEVERITY[own] ? under : own;
}

function joined(names: readonly string[]): { text: string; starts: Int32Array } {
  const starts = new Int32Array(names.length + 1);
  let text = names.join("\n") + "\n";
  let total = 0;
  for (let row = 0; row < names.length; row++) {
    starts[row] = total;
    total += names[row].length + 1;
  }
  starts[names.length] = total;
  // A name of a file made elsewhere may hold a line break; it would shift all rows of a search.
  if (names.some((name) => name.includes("\n"))) text = names.map((name) => name.replaceAll("\n", " ")).join("\n") + "\n";
  return { text, starts };
}

function bytes(column: readonly number[], size: number): Uint8Array {
  const result = new Uint8Array(size);
  for (let row = 0; row < size; row++) result[row] = column[row];
  return result;
}

function floats(column: readonly Difference[], size: number): Float32Array {
  const result = new Float32Array(size).fill(NaN);
  for (let row = 0; row < size; row++) {
    const value = column[row];
    if (value !== null && value !== undefined) result[row] = value;
  }
  return result;
}

function blocks(parents: Int32Array): Int32Array {
  const ends = new Int32Array(parents.length);
  for (let row = 0; row < parents.length; row++) ends[row] = row + 1;
  for (let row = parents.length - 1; row >= 0; row--) {
    const parent = parents[row];
    if (parent >= 0 && ends[row] > ends[parent]) ends[parent] = ends[row];
  }
  return ends;
}

/** Rows by the order of their last part, a container after its parts: counting sort, linear in the rows. */
function sequence(orders: readonly number[], parents: Int32Array, ends: Int32Array): Int32Array {
  const size = parents.length;
  const last = new Int32Array(size);
  let highest = 0;
  for (let row = size - 1; row >= 0; row--) {
    if (ends[row] === row + 1) last[row] = Math.max(0, orders[row]);
    const parent = parents[row];
    if (parent >= 0 && last[row] > last[parent]) last[parent] = last[row];
    if (last[row] > highest) highest = last[row];
  }
  // Orders above the number of rows are allowed (gaps), but not without bound: a table of them is made.
  const scale = highest > 8 * size + 1000 ? (8 * size) / highest : 1;
  const heads = new Int32Array(Math.floor(highest * scale) + 2);
  for (let row = 0; row < size; row++) heads[Math.floor(last[row] * scale) + 1]++;
  for (let order = 1; order < heads.length; order++) heads[order] += heads[order - 1];
  const result = new Int32Array(size);
  const waiting: number[] = [];
  const put = (row: number): void => {
    result[heads[Math.floor(last[row] * scale)]++] = row;
  };
  for (let row = 0; row < size; row++) {
    while (waiting.length && ends[waiting[waiting.length - 1]] <= row) put(waiting.pop()!);
    if (ends[row] > row + 1) waiting.push(row);
    else put(row);
  }
  while (waiting.length) put(waiting.pop()!);
  return result;
}

function below(parents: Int32Array, status: Uint8Array, outputDifference: Float32Array, flags: Uint16Array):
  { worstBelow: Uint8Array; outputDifferenceBelow: Float32Array; flagsBelow: Uint16Array } {
  const size = parents.length;
  const worstBelow = new Uint8Array(size);
  const outputDifferenceBelow = new Float32Array(size).fill(NaN);
  const flagsBelow = new Uint16Array(size);
  for (let row = size - 1; row >= 0; row--) {
    const parent = parents[row];
    if (parent < 0) continue;
    for (const candidate of [status[row], worstBelow[row]]) {
      if (SEVERITY[candidate] > SEVERITY[worstBelow[parent]]) worstBelow[parent] = candidate;
    }
    for (const value of [outputDifference[row], outputDifferenceBelow[row]]) {
      if (value > outputDifferenceBelow[parent] || (Number.isNaN(outputDifferenceBelow[parent]) && !Number.isNaN(value))) outputDifferenceBelow[parent] = value;
    }
    flagsBelow[parent] |= flags[row] | flagsBelow[row];
  }
  return { worstBelow, outputDifferenceBelow, flagsBelow };
}

function running(status: Uint8Array): Uint32Array[] {
  const counts = STATUSES.map(() => new Uint32Array(status.length + 1));
  for (let row = 0; row < status.length; row++) {
    for (const count of counts) count[row + 1] = count[row];
    if (status[row] < counts.length) counts[status[row]][row + 1]++;
  }
  return counts;
}
