// Axes and lines of the curves over steps.

import type { Figure } from "../data/protocol.ts";

export interface Axis {
  readonly ticks: readonly number[];
  /** Where a value stands between the ends, 0 to 1. */
  share(value: number): number;
}

/** How much of a logarithmic axis lies between 0, which has a place of its own at the foot, and the least of the powers. */
const ZERO = 0.2;

/** An axis over these values: linear with round ticks, or logarithmic, with a place for 0 where something is 0. */
export function axisOf(values: readonly Figure[], isLog: boolean): Axis {
  const known = values.filter((value): value is number => typeof value === "number" && Number.isFinite(value) && Math.abs(value) < 1e299 && (!isLog || value > 0));
  if (isLog) {
    const low = known.length ? Math.floor(Math.log10(Math.min(...known))) : -8;
    const high = Math.max(low + 1, known.length ? Math.ceil(Math.log10(Math.max(...known))) : 0);
    const step = Math.max(1, Math.ceil((high - low) / 3));
    const ticks: number[] = [];
    const foot = values.some((value) => value === 0) ? ZERO : 0;
    // Nothing but 0: a scale of sizes would tell of what is not there.
    if (!known.length && foot) return { ticks: [0], share: (value) => (value > 0 ? 1 : 0) };
    for (let power = high; power >= low; power -= step) ticks.push(Number(`1e${power}`));
    if (foot) ticks.push(0);
    return { ticks, share: (value) => (value > 0 ? foot + (1 - foot) * clamp((Math.log10(value) - low) / (high - low)) : 0) };
  }
  let low = known.length ? Math.min(...known) : 0;
  let high = known.length ? Math.max(...known) : 1;
  if (low === high) {
    const margin = Math.abs(low) / 10 || 1;
    low -= margin;
    high += margin;
  }
  const rough = (high - low) / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough)!;
  const from = Math.floor(low / step);
  const to = Math.ceil(high / step);
  const ticks: number[] = [];
  for (let tick = from; tick <= to; tick++) ticks.push(Number((tick * step).toPrecision(12)));
  return { ticks, share: (value) => clamp((value - from * step) / ((to - from) * step)) };
}

/** The line through the values; a gap where one is missing, NaN or infinite, a dot where one stands alone. */
export function pathOf(values: readonly Figure[], x: (index: number) => number, y: (value: number) => number): string {
  let path = "";
  let isDown = false;
  values.forEach((value, index) => {
    if (typeof value !== "number") {
      isDown = false;
      return;
    }
    path += `${isDown ? "L" : "M"}${x(index).toFixed(1)} ${y(value).toFixed(1)}`;
    if (!isDown && typeof values[index + 1] !== "number") path += "h.1";
    isDown = true;
  });
  return path;
}

/** The places of the values, one a point; those that are missing, NaN or infinite have none. */
export function pointsOf(values: readonly Figure[], x: (index: number) => number, y: (value: number) => number): [number, number][] {
  return values.flatMap((value, index): [number, number][] => (typeof value !== "number" ? [] : [[x(index), y(value)]]));
}

/** From which step to which the values are NaN or infinite without a break, with the first of them. */
export function brokenOf(values: readonly Figure[]): { from: number; to: number; value: string }[] {
  const runs: { from: number; to: number; value: string }[] = [];
  values.forEach((value, index) => {
    const last = runs[runs.length - 1];
    if (typeof value !== "string") return;
    if (last && last.to === index - 1) last.to = index;
    else runs.push({ from: index, to: index, value });
  });
  return runs;
}

/** Where a step stands between the first and the last, 0 to 1: steps need not be recorded at even distances. */
export function stepShare(steps: readonly number[], index: number): number {
  const span = steps[steps.length - 1]! - steps[0]!;
  return span > 0 ? (steps[index]! - steps[0]!) / span : 0.5;
}

/** The step nearest to a share of the width. */
export function stepAt(steps: readonly number[], share: number): number {
  let best = 0;
  for (let index = 1; index < steps.length; index++) {
    if (Math.abs(stepShare(steps, index) - share) < Math.abs(stepShare(steps, best) - share)) best = index;
  }
  return best;
}

function clamp(share: number): number {
  return Math.max(0, Math.min(1, share));
}
