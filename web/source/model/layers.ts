// Repeated layers folded: a row for each layer, a column for each module in it, the worst of both passes in the cell.

import { FLAG, SEVERITY } from "./place.ts";
import type { Place } from "./place.ts";
import { modulePathOf } from "./names.ts";
import { nameOf } from "./place.ts";

export interface Cell {
  /** Worst status of what ran forward, backward, and of gradients of parameters; 255: nothing ran. */
  readonly status: [number, number, number];
  /** The row a click means for each of them, -1 for none. */
  readonly rows: [number, number, number];
  /** The largest value of a single run's measure for each. */
  readonly values: [number, number, number];
  readonly flags: [number, number, number];
}

export interface Grid {
  /** "layers", "encoder.blocks", ...; empty for what is in no repeated layer. */
  readonly name: string;
  readonly layers: readonly string[];
  /** Modules within a layer; "" is the layer itself. */
  readonly parts: readonly string[];
  readonly cells: ReadonlyMap<string, Cell>;
  /** Which of forward, backward and gradients a part has in any layer. */
  readonly passes: ReadonlyMap<string, readonly boolean[]>;
}

export const cellKey = (layer: string, part: string): string => `${layer}\n${part}`;

/** More columns than this are too many to look at: the numbers within layers (experts) are folded, too. */
export const MOST_PARTS = 48;

/** The parts of a module's path: its group of layers, its layer, its place within. */
export function fold(path: string, foldsInner: boolean): { group: string; layer: string; part: string } {
  const parts = path.split(".");
  const at = parts.findIndex((part, index) => index > 0 && /^\d+$/.test(part));
  if (at < 0) return { group: "", layer: "", part: path };
  const rest = parts.slice(at + 1).map((part) => (foldsInner && /^\d+$/.test(part) ? "*" : part));
  return { group: parts.slice(0, at).join("."), layer: parts[at], part: rest.join(".") };
}

export function grids(place: Place, measure: "norm" | "largest" = "norm"): Grid[] {
  const whole = gridsOf(place, measure, false);
  return whole.some((grid) => grid.name !== "" && grid.parts.length > MOST_PARTS) ? gridsOf(place, measure, true) : whole;
}

function gridsOf(place: Place, measure: "norm" | "largest", foldsInner: boolean): Grid[] {
  const found = new Map<string, { layers: Set<string>; parts: Set<string>; cells: Map<string, Cell> }>();
  // The cell of each row's module: calls count for the module that makes them.
  const cellOf: (Cell | null)[] = new Array(place.size).fill(null);
  const known = new Map<string, Cell>();
  for (let row = 0; row < place.size; row++) {
    const path = place.kinds[row] === 1 || place.kinds[row] === 2 ? null : modulePathOf(nameOf(place, row));
    const parent = place.parents[row];
    let cell: Cell | null = parent >= 0 ? cellOf[parent] : null;
    if (path !== null) {
      const one = known.get(path) ?? newCell(found, path, foldsInner);
      known.set(path, one);
      cell = one;
    }
    cellOf[row] = cell;
    if (cell) put(place, row, cell, place.kinds[row] === 3 ? 2 : Math.min(1, place.phases[row]), measure);
  }
  const result: Grid[] = [];
  for (const [name, grid] of found) {
    const layers = [...grid.layers].sort((a, b) => Number(a) - Number(b));
    const passes = new Map<string, boolean[]>([...grid.parts].map((part) => [part, [false, false, false]]));
    for (const [key, cell] of grid.cells) {
      const ran = passes.get(key.slice(key.indexOf("\n") + 1))!;
      cell.rows.forEach((row, pass) => { if (row >= 0) ran[pass] = true; });
    }
    result.push({ name, layers, parts: [...grid.parts], cells: grid.cells, passes });
  }
  // The largest group first; what is in no layer last.
  return result.sort((a, b) => Number(a.name === "") - Number(b.name === "") || b.layers.length * b.parts.length - a.layers.length * a.parts.length);
}

function newCell(found: Map<string, { layers: Set<string>; parts: Set<string>; cells: Map<string, Cell> }>, path: string, foldsInner: boolean): Cell {
  const { group, layer, part } = fold(path, foldsInner);
  let grid = found.get(group);
  if (!grid) found.set(group, (grid = { layers: new Set(), parts: new Set(), cells: new Map() }));
  grid.layers.add(layer);
  grid.parts.add(part);
  const key = cellKey(layer, part);
  let cell = grid.cells.get(key);
  if (!cell) {
    cell = { status: [255, 255, 255], rows: [-1, -1, -1], values: [NaN, NaN, NaN], flags: [0, 0, 0] };
    grid.cells.set(key, cell);
  }
  return cell;
}

function put(place: Place, row: number, cell: Cell, pass: number, measure: "norm" | "largest"): void {
  const status = place.status[row];
  const value = place[measure][row];
  const broken = place.flags[row] & (FLAG.notFinite | FLAG.bornNotFinite);
  const worse = cell.status[pass] === 255 || SEVERITY[status] > SEVERITY[cell.status[pass]]
    || broken > (cell.flags[pass] & (FLAG.notFinite | FLAG.bornNotFinite));
  if (worse) cell.rows[pass] = row;
  if (cell.status[pass] === 255 || SEVERITY[status] > SEVERITY[cell.status[pass]]) cell.status[pass] = status;
  if (value > cell.values[pass] || (Number.isNaN(cell.values[pass]) && !Number.isNaN(value))) cell.values[pass] = value;
  cell.flags[pass] |= place.flags[row];
}
