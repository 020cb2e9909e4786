// Which rows the table shows: what is open, what is asked for, and which of those are on the screen.

import type { Place } from "./place.ts";

/** What a search and the filters leave: the rows asked for, the containers above them, and what lies inside of them. */
export interface Kept {
  readonly asked: Uint8Array;
  readonly above: Uint8Array;
  readonly inside: Uint8Array;
  readonly count: number;
}

export function keptOf(place: Place, asked: Uint8Array): Kept {
  const above = new Uint8Array(place.size);
  const inside = new Uint8Array(place.size);
  let count = 0;
  for (let row = 0; row < place.size; row++) {
    const parent = place.parents[row];
    if (parent >= 0 && (asked[parent] || inside[parent])) inside[row] = 1;
    if (!asked[row]) continue;
    count++;
    for (let up = parent; up >= 0 && !above[up]; up = place.parents[up]) above[up] = 1;
  }
  return { asked, above, inside, count };
}

/** Open rows of a place; while something is asked for, containers above a hit are open unless closed by hand. */
export class Opened {
  private readonly plain: Uint8Array;
  private byHand: Map<number, boolean> = new Map();

  constructor(size: number) {
    this.plain = new Uint8Array(size);
  }

  isOpen(row: number, kept: Kept | null): boolean {
    if (kept === null) return this.plain[row] === 1;
    return this.byHand.get(row) ?? kept.above[row] === 1;
  }

  set(row: number, open: boolean, kept: Kept | null): void {
    if (kept === null) this.plain[row] = open ? 1 : 0;
    else this.byHand.set(row, open);
  }

  setAll(open: boolean): void {
    this.plain.fill(open ? 1 : 0);
    this.byHand.clear();
  }

  /** Another question was asked: what was opened by hand belonged to the last one. */
  forget(): void {
    this.byHand.clear();
  }
}

/** The rows of the table from top to bottom. */
export function visibleRows(place: Place, opened: Opened, kept: Kept | null): Int32Array {
  const rows = new Int32Array(place.size);
  let count = 0;
  let row = 0;
  while (row < place.size) {
    if (kept !== null && !kept.asked[row] && !kept.above[row] && !kept.inside[row]) {
      row = place.ends[row];
      continue;
    }
    rows[count++] = row;
    row = opened.isOpen(row, kept) ? row + 1 : place.ends[row];
  }
  return rows.slice(0, count);
}

/** The first look: a few rows at the top are opened as long as there is only one way down. */
export function openTop(place: Place, opened: Opened): void {
  let count = 0;
  for (let row = 0; row < place.size; row = place.ends[row]) count++;
  if (count > 6) return;
  for (let row = 0; row < place.size; row = place.ends[row]) {
    let at = row;
    while (place.ends[at] > at + 1) {
      opened.set(at, true, null);
      if (place.ends[at + 1] !== place.ends[at]) break;
      at += 1;
    }
  }
}

/** Where `row` stands among `rows` (ascending), or where it would. */
export function positionOf(rows: Int32Array, row: number): number {
  let low = 0;
  let high = rows.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (rows[middle] < row) low = middle + 1;
    else high = middle;
  }
  return low;
}

export interface Window {
  /** First and last + 1 position to draw. */
  from: number;
  to: number;
  /** How far below the top of the scrolled area the first of them stands, pixels. */
  offset: number;
}

/** Browsers end an element at 17 to 33 million pixels; beyond this a pixel of the scroll bar is more than one of the table. */
export const TALLEST = 12_000_000;

/** The height to give the scrolled area. */
export function heightOf(count: number, rowHeight: number): number {
  return Math.min(count * rowHeight, TALLEST);
}

/** What to draw at a scroll position. */
export function windowOf(count: number, rowHeight: number, view: number, scroll: number, spare = 6): Window {
  const full = count * rowHeight;
  const height = heightOf(count, rowHeight);
  const ratio = height > view ? (full - view) / (height - view) : 1;
  const top = Math.max(0, Math.min(scroll, Math.max(0, height - view))) * ratio;
  const from = Math.max(0, Math.floor(top / rowHeight) - spare);
  const to = Math.min(count, Math.ceil((top + view) / rowHeight) + spare);
  return { from, to, offset: scroll + (from * rowHeight - top) };
}

/** The scroll position that shows `position`, unchanged when it is on the screen already. */
export function scrollTo(position: number, count: number, rowHeight: number, view: number, scroll: number): number {
  const full = count * rowHeight;
  const height = heightOf(count, rowHeight);
  const ratio = height > view ? (full - view) / (height - view) : 1;
  const top = scroll * ratio;
  const at = position * rowHeight;
  if (at >= top && at + rowHeight <= top + view) return scroll;
  const wanted = Math.max(0, Math.min(full - view, at - view / 3));
  return wanted / ratio;
}
