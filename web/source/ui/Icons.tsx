// A shape for each status: colour only repeats what the shape says.

import type { JSX } from "preact";
import { STATUSES } from "../model/place.ts";
import { t } from "../texts/index.ts";
import type { Key } from "../texts/index.ts";

const SHAPES: Record<(typeof STATUSES)[number], JSX.Element> = {
  none: <circle cx="7" cy="7" r="1.6" fill="currentColor" stroke="none" />,
  identical: <path d="M4 5.5h6M4 8.5h6" />,
  rounding: <path d="M3.5 6c1.2-1.6 2.3-1.6 3.5-.4s2.3 1.2 3.5-.4M3.5 9.4c1.2-1.6 2.3-1.6 3.5-.4s2.3 1.2 3.5-.4" />,
  explained: <path d="M3.6 7h6.2M7.4 4.4 10 7 7.400 9.6" />,
  unexplained: <path d="m4.300 4.300 5.400 5.400M9.700 4.300 4.300 9.700" />,
  candidate: <path d="M7 3.600v6.800M3.600 7h6.800" />,
  reference: <path d="M3.600 7h6.800" />,
  named: <path d="M7 3.400v4.200M7 10.500v.1" />,
};

export function statusWords(status: number): string {
  return t(`status.${STATUSES[status] ?? "none"}` as Key);
}

export function Status({ status, quiet = false, words = statusWords(status) }: { status: number; quiet?: boolean; words?: string }): JSX.Element {
  const name = STATUSES[status] ?? "none";
  return (
    <svg class={`icon s-${name}${quiet ? " small" : ""}`} viewBox="0 0 14 14" role="img" aria-label={words}>
      <title>{words}</title>
      <rect class="plate" x="0.5" y="0.5" width="13" height="13" rx={name === "candidate" || name === "reference" ? 6.5 : 3} />
      <g class="mark" fill="none" stroke="currentColor" stroke-width="1.6" stroke-linecap="round" stroke-linejoin="round">{SHAPES[name]}</g>
    </svg>
  );
}

const PATHS = {
  chevron: "m5.500 3.500 4 3.500-4 3.500",
  search: "M6.200 10.400a4.200 4.200 0 1 0 0-8.400 4.200 4.200 0 0 0 0 8.400ZM9.400 9.400 12.300 12.300",
  left: "M8.800 3.200 5 7l3.800 3.800",
  right: "M5.200 3.200 9 7l-3.800 3.800",
  close: "m3.500 3.500 7 7M10.500 3.500l-7 7",
  copy: "M5 5h6.500v7H5zM2.500 9.500V2h6.500",
  target: "M7 1.500v2.600M7 9.900v2.600M1.500 7h2.600M9.900 7h2.600M7 10.200a3.200 3.200 0 1 0 0-6.400 3.200 3.200 0 0 0 0 6.400Z",
  link: "M5.800 8.200 8.200 5.800M6.500 4l1.300-1.300a2.500 2.500 0 0 1 3.500 3.500L10 7.500M7.500 10l-1.300 1.300a2.500 2.500 0 0 1-3.500-3.500L4 6.500",
  picture: "M2 3h10v8.5H2zM2 10l3-3.2 2.4 2.4 1.6-1.5 3 3",
  theme: "M7 1.800a5.200 5.200 0 1 0 0 10.400zM7 1.800a5.200 5.200 0 0 1 0 10.400",
  warning: "M7 2 12.600 12H1.400ZM7 5.800v2.700M7 10.200v.1",
  unfold: "m3.500 2.500 3.500 3.200 3.500-3.200M3.500 8.200l3.500 3.200 3.500-3.200",
  fold: "m3.500 5.800 3.500-3.200 3.500 3.200M3.500 11.400l3.500-3.200 3.500 3.200",
  down: "m3.500 5.200 3.500 3.600 3.500-3.600",
} as const;

export function Glyph({ name }: { name: keyof typeof PATHS }): JSX.Element {
  return (
    <svg class="glyph" viewBox="0 0 14 14" aria-hidden="true" fill="none" stroke="currentColor" stroke-width="1.4"
      stroke-linecap="round" stroke-linejoin="round"><path d={PATHS[name]} fill={name === "theme" ? "none" : undefined} /></svg>
  );
}
