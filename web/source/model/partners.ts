// Which rows a row of one side alone may answer to, the likeliest first.

import { parseName } from "./names.ts";
import { nameOf } from "./place.ts";
import type { Place } from "./place.ts";

/** Rows of the other side alone, of the same kind and pass; all words of the query are in their names. */
export function partnersFor(place: Place, row: number, query: string): number[] {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  const other = place.sides[row] === 1 ? 2 : 1;
  const own = parseName(nameOf(place, row));
  const found: { row: number; score: number }[] = [];
  for (let at = 0; at < place.size; at++) {
    if (place.sides[at] !== other || place.kinds[at] !== place.kinds[row] || place.phases[at] !== place.phases[row]) continue;
    const name = nameOf(place, at);
    const lowered = name.toLowerCase();
    if (!words.every((word) => lowered.includes(word))) continue;
    const theirs = parseName(name);
    const isAlike = theirs.path === own.path || (own.className !== "" && theirs.className === own.className);
    const isBeside = place.parents[at] === place.parents[row];
    found.push({ row: at, score: (isAlike ? 2 : 0) + (isBeside ? 1 : 0) });
  }
  // Among equals the nearest in the order of rows.
  return found.sort((a, b) => b.score - a.score || Math.abs(a.row - row) - Math.abs(b.row - row)).map((one) => one.row);
}
