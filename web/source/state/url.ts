// What the page shows, as the part of the address after #, so that a reload and a link show the same.

import type { Overview } from "../data/protocol.ts";
import { EVERYTHING } from "../model/search.ts";
import type { Question } from "../model/search.ts";

export const VIEWS = ["tree", "layers", "ranks", "steps"] as const;
export type View = (typeof VIEWS)[number];
export const TABS = ["call", "findings"] as const;
export type Tab = (typeof TABS)[number];

export interface Shown {
  /** Index of the step and rank; null before one is chosen. */
  readonly place: number | null;
  /** Name of the selected row; `side` 2 for a row of the reference alone. */
  readonly at: string | null;
  readonly side: number;
  readonly view: View;
  readonly tab: Tab;
  readonly question: Question;
}

/** The views that have something to show: ranks beside each other where there are several, steps where there are curves. */
export function viewsOf(overview: Overview): View[] {
  const isThere: Record<View, boolean> = {
    tree: true, layers: true,
    ranks: new Set(overview.places.map((place) => place.rank)).size > 1,
    steps: overview.curve.length > 0,
  };
  return VIEWS.filter((view) => isThere[view]);
}

export const NOTHING: Shown = { place: null, at: null, side: 0, view: "tree", tab: "findings", question: EVERYTHING };

export function toHash(shown: Shown): string {
  const parts = new URLSearchParams();
  const { question } = shown;
  if (shown.place !== null) parts.set("place", String(shown.place));
  if (shown.at !== null) parts.set("at", shown.at);
  if (shown.side) parts.set("side", String(shown.side));
  if (shown.view !== "tree") parts.set("view", shown.view);
  if (shown.tab !== NOTHING.tab) parts.set("tab", shown.tab);
  if (question.query) parts.set("q", question.query);
  for (const mask of ["status", "kinds", "phases", "flags"] as const) if (question[mask]) parts.set(mask, String(question[mask]));
  if (question.micro >= 0) parts.set("micro", String(question.micro));
  return `#${parts}`;
}

export function fromHash(hash: string): Shown {
  const parts = new URLSearchParams(hash.replace(/^#/, ""));
  const number = (name: string, otherwise: number): number => {
    const value = Number.parseInt(parts.get(name) ?? "", 10);
    return Number.isInteger(value) && value >= 0 ? value : otherwise;
  };
  const place = number("place", -1);
  const view = parts.get("view") as View;
  const tab = parts.get("tab") as Tab;
  return {
    place: place < 0 ? null : place,
    at: parts.get("at"),
    side: number("side", 0),
    view: VIEWS.includes(view) ? view : "tree",
    tab: TABS.includes(tab) ? tab : NOTHING.tab,
    question: {
      query: parts.get("q") ?? "", status: number("status", 0), kinds: number("kinds", 0),
      phases: number("phases", 0), flags: number("flags", 0), micro: number("micro", -1),
    },
  };
}
