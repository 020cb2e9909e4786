// Small answers for tests.
import type { PlaceAnswer } from "../source/data/protocol.ts";

export interface Row { status?: number; side?: number; order?: number; phase?: number; kind?: number; left?: number; norm?: number; flags?: number; micro?: number }

export function answer(rows: [name: string, parent: number, more: Row][]): PlaceAnswer {
  const column = <T>(pick: (row: Row, index: number) => T): T[] => rows.map(([, , more], index) => pick(more, index));
  return {
    names: rows.map(([name]) => name), twins: {}, parents: rows.map(([, parent]) => parent), kinds: column((row) => row.kind ?? 1),
    sides: column((row) => row.side ?? 0), orders: column((row, index) => row.order ?? index), phases: column((row) => row.phase ?? 0),
    micro: column((row) => row.micro ?? 0), micro_steps: 1, status: column((row) => row.status ?? 0), input_difference: column(() => null),
    output_difference: column((row) => row.left ?? null), allowed: column(() => null), largest: column(() => null), norm: column((row) => row.norm ?? null),
    flags: column((row) => row.flags ?? 0), first: -1, culprits: [], named: [], notes: [],
  };
}

export const TREE: PlaceAnswer = answer([
  ["Module.model.GPT.forward.0", -1, { kind: 0, status: 1, left: 0 }],
  ["Module.model.layers.0.Block.forward.0", 0, { kind: 0, status: 1 }],
  ["Functional.linear.0.forward", 1, { status: 2, left: 1e-7 }],
  ["Module.model.layers.1.Block.forward.0", 0, { kind: 0, status: 3, left: 0.1 }],
  ["Tensor.__mul__.0.forward", 3, { status: 5, side: 1 }],
  ["Functional.linear.1.forward", 3, { status: 4, left: 0.5 }],
  ["Functional.cross_entropy.0.forward", 0, { status: 3, left: 0.01 }],
]);
