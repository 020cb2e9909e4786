// Why something cannot be shown.

import { NoAnswer } from "../data/source.ts";
import type { Reason } from "../data/source.ts";
import { OutOfOrder } from "../model/place.ts";

export interface Problem {
  readonly reason: Reason | "order";
  readonly words: string;
}

export function problemOf(error: unknown): Problem {
  if (error instanceof NoAnswer) return { reason: error.reason, words: error.message };
  if (error instanceof OutOfOrder) return { reason: "order", words: error.message };
  return { reason: "broken", words: String(error) };
}
