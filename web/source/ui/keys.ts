// What the keys do, in one table that the help shows, too.

import { THEMES } from "../state/preferences.ts";
import type { Preferences } from "../state/preferences.ts";
import type { Session } from "../state/session.ts";
import { VIEWS } from "../state/url.ts";
import type { Key } from "../texts/index.ts";

export const KEYS: readonly (readonly [keys: string, text: Key])[] = [
  ["f", "key.first"], ["n  p", "key.findings"], ["e", "key.worst"], ["/", "key.search"], ["↑ ↓", "key.rows"], ["← →", "key.fold"],
  ["[  ]", "key.places"], ["1 2 3 4", "key.views"], ["m", "key.match"], ["t", "key.theme"], ["l", "key.language"], ["Esc", "key.escape"], ["?", "key.help"],
];

export function handleKey(event: KeyboardEvent, session: Session, preferences: Preferences,
  prefer: (change: Partial<Preferences>) => void): void {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
  const target = event.target as HTMLElement;
  const isTyping = target.matches("input, select, textarea");
  if (event.key === "Escape") {
    if (session.helpOpen) session.helpOpen = false;
    else if (session.matching !== null) session.startMatching(null);
    else if (isTyping) target.blur();
    else return;
    session.changed();
    return;
  }
  if (isTyping) return;
  const done = act(event.key, session, preferences, prefer) || (target.closest("[data-own-keys]") === null && move(event.key, session));
  if (done) event.preventDefault();
}

function act(key: string, session: Session, preferences: Preferences, prefer: (change: Partial<Preferences>) => void): boolean {
  switch (key) {
    case "f": void session.goFirst(); break;
    case "n": session.stepFinding(1); break;
    case "p": session.stepFinding(-1); break;
    case "e": session.openWorst(); break;
    case "/": document.querySelector<HTMLInputElement>("#search")?.focus(); break;
    case "[": stepPlace(session, -1); break;
    case "]": stepPlace(session, 1); break;
    case "m": if (canMatch(session)) session.startMatching(session.selected); break;
    case "t": prefer({ theme: THEMES[(THEMES.indexOf(preferences.theme) + 1) % THEMES.length]! }); break;
    case "l": prefer({ language: preferences.language === "en" ? "zh" : "en" }); break;
    case "?": session.helpOpen = !session.helpOpen; session.changed(); break;
    case "1": case "2": case "3": case "4": session.show(VIEWS[Number(key) - 1]!); break;
    default: return false;
  }
  return true;
}

/** Arrow keys go from tab to tab, and show what each is about. */
export function tabKeys(event: KeyboardEvent): void {
  const by = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
  if (!by) return;
  const tabs = [...(event.currentTarget as HTMLElement).querySelectorAll<HTMLElement>("[role=tab]")];
  const next = tabs[(tabs.indexOf(event.target as HTMLElement) + by + tabs.length) % tabs.length];
  next?.focus();
  next?.click();
  event.preventDefault();
}

/** Moving in the tree: also while the focus is elsewhere, as nothing else uses these keys. */
export function move(key: string, session: Session): boolean {
  const { place, rows, selected } = session;
  if (!place || session.shown.view !== "tree" || !rows.length) return false;
  const at = rows.indexOf(selected);
  const go = (position: number): void => session.select(rows[Math.max(0, Math.min(rows.length - 1, position))]);
  const isOpen = selected >= 0 && session.opened.isOpen(selected, session.kept);
  const holds = selected >= 0 && place.ends[selected] > selected + 1;
  switch (key) {
    case "ArrowDown": case "j": go(at + 1); break;
    case "ArrowUp": case "k": go(at < 0 ? 0 : at - 1); break;
    case "PageDown": go(at + 20); break;
    case "PageUp": go(at - 20); break;
    case "Home": go(0); break;
    case "End": go(rows.length - 1); break;
    case "ArrowRight":
      if (!holds) return false;
      if (isOpen) go(at + 1);
      else session.toggle(selected, true);
      break;
    case "ArrowLeft":
      if (holds && isOpen) session.toggle(selected, false);
      else if (selected >= 0 && place.parents[selected] >= 0) session.select(place.parents[selected]);
      else return false;
      break;
    default: return false;
  }
  return true;
}

function stepPlace(session: Session, by: number): void {
  const count = session.overview?.places.length ?? 0;
  const next = (session.shown.place ?? 0) + by;
  if (next >= 0 && next < count) void session.openPlace(next);
}

export function canMatch(session: Session): boolean {
  return Boolean(session.overview?.can.match && session.place && session.selected >= 0 && session.place.sides[session.selected] !== 0);
}
