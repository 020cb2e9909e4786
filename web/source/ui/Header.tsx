import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Overview, PlaceHead } from "../data/protocol.ts";
import { THEMES } from "../state/preferences.ts";
import { t } from "../texts/index.ts";
import type { Key } from "../texts/index.ts";
import type { Shared } from "./App.tsx";
import { Glyph } from "./Icons.tsx";

export function Header({ session, preferences, prefer, overview }: Shared & { overview: Overview }): JSX.Element {
  return (
    <header class="top">
      <strong class="brand">msprobe</strong>
      <div class="runs">
        {(isOneFile(overview) ? overview.sides.slice(0, 1) : overview.sides).map((side, index) => (
          <span class="run" key={index} title={[side.path, side.framework, side.level, side.task].filter(Boolean).join(" · ")}>
            <span class="label">{overview.kind === "single" ? t("run") : isOneFile(overview) ? t("file") : index === 0 ? t("candidate") : t("reference")}</span>
            <bdi class="path">{tail(side.path)}</bdi>
            {side.interrupted && <span class="tag warn" title={t("interrupted.long")}><Glyph name="warning" />{t("interrupted")}</span>}
          </span>
        ))}
      </div>
      <Places session={session} overview={overview} />
      <Search session={session} />
      <button type="button" class="plain" title={`${t("key.theme")} (t)`} aria-label={`${t("theme")}: ${t(`theme.${preferences.theme}` as Key)}`}
        onClick={() => prefer({ theme: THEMES[(THEMES.indexOf(preferences.theme) + 1) % THEMES.length]! })}>
        <Glyph name="theme" /><span class="wide-only">{t(`theme.${preferences.theme}` as Key)}</span>
      </button>
      <button type="button" class="plain" title={`${t("key.language")} (l)`} lang={preferences.language === "en" ? "zh-CN" : "en"}
        onClick={() => prefer({ language: preferences.language === "en" ? "zh" : "en" })}>
        {preferences.language === "en" ? "中文" : "English"}
      </button>
      <button type="button" class="plain" aria-label={t("key.help")} title={`${t("key.help")} (?)`}
        onClick={() => { session.helpOpen = true; session.changed(); }}>?</button>
    </header>
  );
}

/** A graph file holds both sides. */
function isOneFile(overview: Overview): boolean {
  return overview.sides.length === 2 && overview.sides[0]!.path === overview.sides[1]!.path && /\.\w+$/.test(overview.sides[0]!.path);
}

/** The end of a path says which run it is; the whole stands in the tooltip. */
export function tail(path: string): string {
  const parts = path.split(/[\\/]/).filter(Boolean);
  return parts.length > 2 ? `…/${parts.slice(-2).join("/")}` : path;
}

export function placeWords(place: PlaceHead): string {
  const words: string[] = [];
  if (place.step !== null) words.push(t("place.step", { step: place.step }));
  if (place.rank !== null) words.push(t("place.rank", { rank: place.rank }));
  if (place.sides === 1) words.push(t("status.candidate"));
  if (place.sides === 2) words.push(t("status.reference"));
  return words.join(", ") || t("place.only");
}

export function verdictWords(status: string): string {
  const known: readonly string[] = ["agree", "diverged", "harmless", "not_compared", "incomparable"];
  return known.includes(status) ? t(`verdict.${status}` as Key) : status;
}

function Places({ session, overview }: Pick<Shared, "session"> & { overview: Overview }): JSX.Element | null {
  if (overview.places.length < 1) return null;
  const now = session.shown.place ?? 0;
  const last = overview.places.length - 1;
  if (last === 0) return <span class="places quiet">{placeWords(overview.places[0]!)}</span>;
  const mark = (status: string): string => ({ diverged: "✕ ", agree: "= ", incomparable: "? " } as Record<string, string>)[status] ?? "";
  return (
    <div class="places">
      <button type="button" class="plain" disabled={now === 0} aria-label={t("place.previous")} title="[" onClick={() => void session.openPlace(now - 1)}><Glyph name="left" /></button>
      <select aria-label={t("place")} value={String(now)} onChange={(event) => void session.openPlace(Number(event.currentTarget.value))}>
        {overview.places.map((place, index) => (
          <option key={index} value={String(index)}>{mark(place.status)}{placeWords(place)}</option>
        ))}
      </select>
      <button type="button" class="plain" disabled={now === last} aria-label={t("place.next")} title="]" onClick={() => void session.openPlace(now + 1)}><Glyph name="right" /></button>
    </div>
  );
}

/** From so many rows on a search waits for more letters. */
const LARGE = 300_000;

function Search({ session }: Pick<Shared, "session">): JSX.Element {
  const { question } = session.shown;
  const [words, setWords] = useState(question.query);
  const wait = useRef(0);
  const typed = useRef(question.query);
  useEffect(() => {
    // What was asked from here is in the field already; setting it again, late, would take letters typed since.
    const now = session.shown.question.query;
    if (now !== typed.current) setWords(now);
    typed.current = now;
  }, [question.query]);
  const ask = (query: string, delay: number): void => {
    setWords(query);
    clearTimeout(wait.current);
    const run = (): void => {
      typed.current = query;
      session.ask({ ...session.shown.question, query }, false);
    };
    if (delay) wait.current = window.setTimeout(run, delay);
    else run();
  };
  return (
    <div class="search" role="search">
      <Glyph name="search" />
      <input id="search" type="search" value={words} placeholder={t("search.placeholder")} aria-label={t("search")} title={t("search")} spellcheck={false} autocomplete="off"
        onInput={(event) => ask(event.currentTarget.value, (session.place?.size ?? 0) > LARGE ? 150 : 0)}
        onKeyDown={(event) => {
          if (event.key !== "Enter" || !session.kept) return;
          const hit = session.rows.find((row) => session.kept!.asked[row] === 1 && row > (event.shiftKey ? -1 : session.selected))
            ?? session.rows.find((row) => session.kept!.asked[row] === 1);
          if (hit !== undefined) session.select(hit);
        }} />
      {session.kept && <span class="hits" role="status">{t(session.isFoundByLine ? "search.hits.lines" : "search.hits", { count: session.kept.count })}</span>}
      {!session.kept && <kbd>/</kbd>}
    </div>
  );
}
