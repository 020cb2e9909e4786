// How numbers are written: as wide as needed, never more digits than they carry.

import type { Figure } from "../data/protocol.ts";

/** A difference without size: NaN or Inf on one side, or another number of elements. */
export const BEYOND = 1e300;

/** Two or three digits: for tables where magnitudes matter. */
export function short(value: number | null | undefined): string {
  if (value === null || value === undefined || Number.isNaN(value)) return "";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= BEYOND) return value > 0 ? "∞" : "−∞";
  if (size >= 0.1 && size < 1e4) return value.toPrecision(3).replace("-", "\u2212");
  return value.toExponential(1).replaceAll("-", "\u2212").replace("e+", "e");
}

/** Seven digits, what a 32-bit number carries. */
export function long(value: Figure | undefined): string {
  if (value === null || value === undefined) return "";
  if (typeof value === "string") return value === "nan" ? "NaN" : value;
  if (value === 0) return Object.is(value, -0) ? "-0" : "0";
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e9) return String(value);
  if (size >= 1e-4 && size < 1e7) return String(Number(value.toPrecision(7)));
  return String(value.toExponential(4)).replace("e+", "e");
}

/** How many times the tolerance a difference is; NaN where either is not known, or neither has a size (NaN goes in, NaN comes out). */
export function timesOf(difference: number | null, allowed: number | null): number {
  if (difference === null || allowed === null || Number.isNaN(difference) || Number.isNaN(allowed)) return NaN;
  if (difference >= BEYOND && allowed >= BEYOND) return NaN;
  if (difference === 0) return 0;
  return allowed === 0 || difference >= BEYOND ? BEYOND : difference / allowed;
}

/** That in words: "65,536 ×", "0.03 ×". */
export function times(value: number): string {
  if (Number.isNaN(value)) return "";
  if (value >= BEYOND) return "∞ ×";
  const text = value >= 1e6 || (value > 0 && value < 0.005) ? short(value) : value >= 10 ? Math.round(value).toLocaleString("en-US") : String(Number(value.toPrecision(2)));
  return `${text} ×`;
}

/** All digits, for copying. */
export function full(value: Figure | undefined): string {
  return value === null || value === undefined ? "" : String(value);
}

export function whole(value: number): string {
  return String(value).replace(/\B(?=(\d{3})+(?!\d))/g, "\u202f");
}
