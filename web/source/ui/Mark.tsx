// A status in a cell of a grid: thousands of them, so a letter with a ground instead of a drawing.

import type { JSX } from "preact";
import { STATUSES } from "../model/place.ts";

const SIGNS = ["·", "=", "≈", "→", "✕", "+", "−", "!"] as const;

export function Mark({ status, row, words, place }: { status: number; row?: number; words: string; place?: number }): JSX.Element {
  return <i class={`mark-box m-${STATUSES[status] ?? "none"}`} role="button" tabIndex={-1} data-row={row} data-place={place} title={words} aria-label={words}>{SIGNS[status] ?? ""}</i>;
}

/** Arrow keys go from mark to mark, Enter takes one. The first arrow enters the grid. */
export function gridKeys(event: KeyboardEvent): void {
  const area = event.currentTarget as HTMLElement;
  if (event.key === "Enter" || event.key === " ") {
    const target = event.target as HTMLElement;
    if (target.matches("[data-row], [data-place]")) {
      target.click();
      event.preventDefault();
    }
    return;
  }
  const along = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
  const across = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
  if (!along && !across) return;
  const now = (event.target as HTMLElement).closest("td");
  let next: Element | null | undefined = null;
  if (!now) next = area.querySelector("td [data-row], td [data-place], td[data-row]");
  else if (along && !(event.target as HTMLElement).matches("td")) {
    const marks = [...now.closest("tr")!.querySelectorAll("[data-row], [data-place]")];
    next = marks[marks.indexOf(event.target as Element) + along];
  } else {
    const line = now.parentElement as HTMLTableRowElement;
    const other = across ? (across > 0 ? line.nextElementSibling : line.previousElementSibling) as HTMLTableRowElement | null : line;
    const cell = other?.cells[now.cellIndex + along];
    next = cell?.matches("[data-row]") ? cell : cell?.querySelector("[data-row], [data-place]");
  }
  if (next) (next as HTMLElement).focus();
  event.preventDefault();
}
