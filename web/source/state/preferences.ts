// What a user prefers on this machine: language, theme, width of the details. Kept by the browser where it lets us.

export const THEMES = ["system", "light", "dark"] as const;
export type Theme = (typeof THEMES)[number];
export const LANGUAGES = ["en", "zh"] as const;
export type Language = (typeof LANGUAGES)[number];

export interface Preferences {
  theme: Theme;
  language: Language;
  details: number;
}

const KEY = "msprobe.page";

export function loadPreferences(): Preferences {
  const ours: Preferences = {
    theme: "system", language: navigator.language.toLowerCase().startsWith("zh") ? "zh" : "en", details: 0,
  };
  try {
    const kept = JSON.parse(localStorage.getItem(KEY) ?? "{}") as Partial<Preferences>;
    if (kept.theme && THEMES.includes(kept.theme)) ours.theme = kept.theme;
    if (kept.language && LANGUAGES.includes(kept.language)) ours.language = kept.language;
    if (typeof kept.details === "number") ours.details = kept.details;
  } catch {
    // Storage may be forbidden (a file from a mail); the page then starts as its system is set.
  }
  return ours;
}

export function keepPreferences(preferences: Preferences): void {
  try {
    localStorage.setItem(KEY, JSON.stringify(preferences));
  } catch {
    // As above: what cannot be kept is chosen again.
  }
}
