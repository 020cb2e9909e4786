// What a recorded name says: Module.layers.0.attn.Attention.forward.0, Functional.linear.5.backward.

import type { Place } from "./place.ts";
import { nameOf } from "./place.ts";

const DIRECTIONS = new Set(["forward", "backward", "parameters_grad"]);
const OF_MODULES = new Set(["Module", "Cell"]);

export interface Parsed {
  /** Module, Cell, Functional, Tensor, ... */
  readonly prefix: string;
  /** The path of a module in the model, or the name of a call. */
  readonly path: string;
  /** The class of a module; empty for calls. */
  readonly className: string;
  /** What follows: the count of a call, the pass of a module. */
  readonly number: string;
  readonly isModule: boolean;
}

export function parseName(name: string): Parsed {
  const parts = name.split(".");
  const at = parts.findIndex((part, index) => index > 0 && DIRECTIONS.has(part));
  const end = at < 0 ? parts.length : at;
  const tail = at < 0 ? "" : parts.slice(at + 1).join(".");
  const prefix = parts[0];
  if (OF_MODULES.has(prefix) && end >= 3) {
    return { prefix, path: parts.slice(1, end - 1).join("."), className: parts[end - 1], number: tail, isModule: true };
  }
  if (parts.length > 2 && end >= 3 && /^\d+$/.test(parts[end - 1])) {
    return { prefix, path: parts.slice(1, end - 1).join("."), className: "", number: parts[end - 1], isModule: false };
  }
  return { prefix: end > 1 ? prefix : "", path: parts.slice(end > 1 ? 1 : 0, end).join("."), className: "", number: tail, isModule: false };
}

/** The path of a module as `parseName` has it, null for what is no module; quick, as it is asked of every row. */
export function modulePathOf(name: string): string | null {
  const from = name.indexOf(".") + 1;
  if (!from || !OF_MODULES.has(name.slice(0, from - 1))) return null;
  let end = name.length;
  for (const direction of DIRECTIONS) {
    const at = name.indexOf(`.${direction}`, from - 1);
    const after = at + direction.length + 1;
    if (at > 0 && at < end && (after === name.length || name[after] === ".")) end = at;
  }
  const last = name.lastIndexOf(".", end - 1);
  return last > from ? name.slice(from, last) : null;
}

export interface Label {
  readonly main: string;
  readonly quiet: string;
}

/** What to write in the tree: what the rows above have said already is left out. */
export function labelOf(place: Place, row: number): Label {
  const parsed = parseName(nameOf(place, row));
  if (place.kinds[row] === 2) return { main: nameOf(place, row).split(".").pop() ?? "", quiet: "" };
  if (!parsed.isModule) return { main: parsed.path, quiet: [parsed.prefix, parsed.number].filter(Boolean).join(" ") };
  let path = parsed.path;
  const parent = place.parents[row];
  if (parent >= 0) {
    const above = parseName(nameOf(place, parent));
    if (above.isModule && path.startsWith(`${above.path}.`)) path = path.slice(above.path.length + 1);
  }
  const again = parsed.number && parsed.number !== "0" ? ` ${parsed.number}` : "";
  return { main: path, quiet: parsed.className + again };
}
