// The words of the page in two languages. What the server says (findings, notices of a file) comes in both.

import { en } from "./en.ts";
import { zh } from "./zh.ts";
import type { Said } from "../data/protocol.ts";
import type { Language } from "../state/preferences.ts";

export type Key = keyof typeof en;
export type Texts = Readonly<Record<Key, string>>;

export const TEXTS: Readonly<Record<Language, Texts>> = { en, zh };

let language: Language = "en";

export function setLanguage(wanted: Language): void {
  language = wanted;
}

/** A text of the server in the language of the page. */
export function said(text: Said): string {
  return typeof text === "string" ? text : text[language];
}

/** The words of a key, with {name} replaced. */
export function t(key: Key, values: Record<string, string | number> = {}): string {
  return TEXTS[language][key].replace(/\{(\w+)\}/g, (whole, name: string) => String(values[name] ?? whole));
}
