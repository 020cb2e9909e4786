// What a search and the filters ask for.

import type { Place } from "./place.ts";
import { nameOf } from "./place.ts";

export interface Question {
  /** Words that a name has to hold, in any order; upper and lower case are one. */
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

function namedRows(place: Place, words: readonly string[]): Uint8Array {
  const mask = new Uint8Array(place.size);
  const text = lowerText(place);
  // The longest word is the rarest: only the names with it are looked at one by one.
  const [rarest, ...others] = [...words].sort((a, b) => b.length - a.length);
  if (text === null) {
    for (let row = 0; row < place.size; row++) mask[row] = holds(nameOf(place, row).toLowerCase(), words) ? 1 : 0;
  } else {
    let row = 0;
    for (let at = text.indexOf(rarest); at >= 0; at = text.indexOf(rarest, place.starts[row])) {
      while (place.starts[row + 1] <= at) row++;
      const end = place.starts[row + 1];
      if (!others.length || holds(text.slice(place.starts[row], end - 1), others)) mask[row] = 1;
      row++;
      if (row >= place.size) break;
    }
  }
  for (const [row, twin] of place.twins) if (!mask[row] && holds(twin.toLowerCase(), words)) mask[row] = 1;
  return mask;
}

function holds(name: string, words: readonly string[]): boolean {
  return words.every((word) => name.includes(word));
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
