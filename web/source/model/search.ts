// What a search and the filters ask for.

import type { Place } from "./place.ts";
import { nameOf } from "./place.ts";
import type { LinesAnswer } from "../data/protocol.ts";

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

/** The source lines of the calls of a place, each once. */
export class Lines {
  private readonly lowered: readonly string[];

  constructor(readonly place: Place, private readonly answer: LinesAnswer) {
    this.lowered = answer.lines.map((line) => line.toLowerCase());
  }

  /** The rows whose line holds the text, as a mask; white space is one space. */
  rows(text: string): Uint8Array {
    const wanted = text.toLowerCase().trim().replace(/\s+/g, " ");
    // "model.py:5" is not line 57.
    const isPlace = /:\d+$/.test(wanted);
    const holds = this.lowered.map((line) => {
      for (let at = line.indexOf(wanted); at >= 0; at = line.indexOf(wanted, at + 1)) {
        if (!isPlace || !/\d/.test(line[at + wanted.length] ?? "")) return true;
      }
      return false;
    });
    return Uint8Array.from({ length: this.place.size }, (_, row) => (holds[this.answer.rows[row] ?? -1] ? 1 : 0));
  }
}

/** True if the names alone answer a search: then no source line is looked at. */
export function namesHold(place: Place, query: string): boolean {
  return answerOf(place, query).holds;
}

interface ByName {
  readonly query: string;
  readonly mask: Uint8Array;
  readonly holds: boolean;
}

const last = new WeakMap<Place, ByName>();

/** What the names answer, kept for the last query: filters change more often than words. */
function answerOf(place: Place, query: string): ByName {
  const known = last.get(place);
  if (known?.query === query) return known;
  const mask = namedRows(place, wordsOf(query));
  const answer = { query, mask, holds: mask.includes(1) };
  last.set(place, answer);
  return answer;
}

function wordsOf(query: string): string[] {
  return query.toLowerCase().split(/\s+/).filter(Boolean);
}

/** The rows that answer, as a mask; null when everything is asked for. `lines`: search these instead of the names. */
export function askedRows(place: Place, question: Question, lines: Lines | null = null): Uint8Array | null {
  if (asksNothing(question)) return null;
  const mask = !question.query.trim() ? new Uint8Array(place.size).fill(1)
    : lines ? lines.rows(question.query) : answerOf(place, question.query).mask.slice();
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
