// What a search and the filters ask for.

import type { Place } from "./place.ts";
import { nameOf } from "./place.ts";

export interface Question {
  /** Words that a name, or those of the modules around it, have to hold, in any order; upper and lower case are one. */
  readonly query: string;
  /** Bit masks of what is wanted; 0 asks for everything. */
  readonly status: number;
  readonly kinds: number;
  readonly phases: number;
  readonly flags: number;
  /** A micro-step, or -1 for all. */
  readonly micro: number;
}

export const EVERYTHING: Question = { query: "", status: 0, kinds: 0, phases: 0, flags: 0, micro: -1 };

export function asksNothing(question: Question): boolean {
  return !question.query.trim() && !question.status && !question.kinds && !question.phases && !question.flags && question.micro < 0;
}

const lowered = new WeakMap<Place, string>();

/** The rows that answer, as a mask; null when everything is asked for. */
export function askedRows(place: Place, question: Question): Uint8Array | null {
  if (asksNothing(question)) return null;
  const words = question.query.toLowerCase().split(/\s+/).filter(Boolean);
  const mask = words.length ? namedRows(place, words) : new Uint8Array(place.size).fill(1);
  const { status, kinds, phases, flags, micro } = question;
  for (let row = 0; row < place.size; row++) {
    if (!mask[row]) continue;
    if ((status && !(status & (1 << place.status[row]))) || (kinds && !(kinds & (1 << place.kinds[row])))
      || (phases && !(phases & (1 << place.phases[row]))) || (flags && !(flags & place.flags[row]))
      || (micro >= 0 && place.micro[row] !== micro)) mask[row] = 0;
  }
  return mask;
}

/** Rows of which each word is in their own name or in that of a module around them, and one at least in their own. */
function namedRows(place: Place, words: readonly string[]): Uint8Array {
  const every = new Uint8Array(place.size).fill(1);
  const own = new Uint8Array(place.size);
  for (const word of new Set(words)) {
    const around = rowsNamed(place, word);
    for (let row = 0; row < place.size; row++) {
      own[row] |= around[row];
      // A parent stands before its children.
      const parent = place.parents[row];
      if (parent >= 0) around[row] |= around[parent];
      every[row] &= around[row];
    }
  }
  for (let row = 0; row < place.size; row++) every[row] &= own[row];
  return every;
}

/** The rows whose own name, on either side, holds a word. */
function rowsNamed(place: Place, word: string): Uint8Array {
  const mask = new Uint8Array(place.size);
  const text = lowerText(place);
  if (text === null) {
    for (let row = 0; row < place.size; row++) mask[row] = nameOf(place, row).toLowerCase().includes(word) ? 1 : 0;
  } else {
    let row = 0;
    for (let at = text.indexOf(word); at >= 0; at = text.indexOf(word, place.starts[row])) {
      while (place.starts[row + 1] <= at) row++;
      mask[row] = 1;
      row++;
      if (row >= place.size) break;
    }
  }
  for (const [row, twin] of place.twins) if (twin.toLowerCase().includes(word)) mask[row] = 1;
  return mask;
}

/** The names in lower case, made at the first search; null where that would move them (a few letters grow). */
function lowerText(place: Place): string | null {
  let text = lowered.get(place);
  if (text === undefined) {
    text = place.text.toLowerCase();
    lowered.set(place, text);
  }
  return text.length === place.text.length ? text : null;
}
