// The table of a row's tensors as text that a spreadsheet takes.

import type { NodeAnswer, Statistic, TensorSide } from "../data/protocol.ts";
import { full } from "./figures.ts";

export const STATISTICS: readonly Statistic[] = ["max", "min", "mean", "norm"];

export function tableText(node: NodeAnswer, isPair: boolean): string {
  const sides = isPair ? (["candidate", "reference"] as const) : (["candidate"] as const);
  const head = ["slot", ...sides.flatMap((side) => ["type", "dtype", "shape", "strides", ...STATISTICS, "value"].map((name) => (isPair ? `${side} ${name}` : name)))];
  if (isPair) head.push("status", "relative difference", "tolerance", ...STATISTICS.flatMap((name) => [`${name} absolute difference`, `${name} difference in its size`]));
  const lines = node.tensors.map((row) => {
    const cells = [row.slot, ...sides.flatMap((side) => sideCells(row[side]))];
    if (isPair) {
      cells.push(String(row.status), full(row.relative), full(row.allowed),
        ...STATISTICS.flatMap((name) => [full(row.differences[name]?.[0]), full(row.differences[name]?.[1])]));
    }
    return cells;
  });
  return [head, ...lines].map((cells) => cells.map((cell) => cell.replace(/[\t\r\n]+/g, " ")).join("\t")).join("\n") + "\n";
}

function sideCells(side: TensorSide | null): string[] {
  if (!side) return ["", "", "", "", "", "", "", "", ""];
  const list = (values: number[] | null): string => (values ? `[${values.join(", ")}]` : "");
  return [side.type, side.dtype ?? "", list(side.shape), list(side.strides), ...STATISTICS.map((name) => full(side[name])), side.value ?? ""];
}
