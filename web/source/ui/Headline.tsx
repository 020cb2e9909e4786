// The verdict in one line, and the way to the first divergence and through the findings.

import type { JSX } from "preact";
import type { Overview, VerdictAnswer } from "../data/protocol.ts";
import { nameOf } from "../model/place.ts";
import type { Session } from "../state/session.ts";
import { said, t } from "../texts/index.ts";
import { Glyph, Status } from "./Icons.tsx";
import { tail, verdictWords } from "./Header.tsx";

const TONES: Record<string, string> = { diverged: "bad", incomparable: "bad", broken: "bad", harmless: "warn", suspicious: "warn", agree: "good", clean: "good" };
/** What the row is called that f leads to: runs that agree have findings, too, but part nowhere. */
export function firstKey({ kind, verdict }: Overview): "first" | "first.single" | "first.unjudged" {
  if (kind === "pair" && !verdict) return "first.unjudged";
  return kind === "pair" && toneOf(verdict!) === "bad" ? "first" : "first.single";
}

function toneOf(verdict: VerdictAnswer): string {
  return TONES[verdict.status] ?? (verdict.exit_code ? "bad" : "good");
}

const ICONS: Record<string, number> = { bad: 4, warn: 3, good: 1 };

export function Headline({ session, overview }: { session: Session; overview: Overview }): JSX.Element {
  const { verdict } = overview;
  const findings = verdict?.findings ?? [];
  const { place } = session;
  const tone = verdict ? toneOf(verdict) : "none";
  const first = place && place.first >= 0 ? nameOf(place, place.first) : null;
  const notes = [...overview.notes, ...(place?.notes ?? [])].map(said);
  if (session.head?.status === "incomparable" && verdict?.status !== "incomparable") notes.unshift(t("place.incomparable"));
  if (overview.sides.some((side) => side.interrupted)) notes.unshift(t("interrupted.long"));
  return (
    <section class={`verdict ${tone}`} aria-label={t("verdict")}>
      <div class="line">
        {verdict && <Status status={ICONS[tone] ?? 0} />}
        <h1 title={verdict ? said(verdict.headline) : undefined}>{verdict ? said(verdict.headline) : [...new Set(overview.sides.map((side) => tail(side.path)))].join(" ↔ ")}</h1>
        {verdict && !verdict.headline && <span>{verdictWords(verdict.status)}</span>}
        <span class="grow" />
        {overview.kind === "single" && first !== null && (
          <button type="button" class="first" title={first} onClick={() => void session.goFirst()}><Glyph name="target" />{t(firstKey(overview))}<kbd>f</kbd></button>
        )}
        {overview.kind === "pair" && session.hasFirst && (
          <button type="button" class="first" title={first ?? ""} onClick={() => void session.goFirst()}>
            <Glyph name="target" />{t(firstKey(overview))}<kbd>f</kbd>
          </button>
        )}
        {findings.length > 0 && (
          <span class="stepper" role="group" aria-label={t("findings")}>
            <button type="button" class="plain" aria-label={t("finding.previous")} title="p" onClick={() => session.stepFinding(-1)}><Glyph name="left" /></button>
            <button type="button" class="plain count" onClick={() => void session.goFinding(session.finding)}>
              {t("finding.of", { index: session.finding + 1, count: findings.length })}
            </button>
            <button type="button" class="plain" aria-label={t("finding.next")} title="n" onClick={() => session.stepFinding(1)}><Glyph name="right" /></button>
          </span>
        )}
      </div>
      {notes.length > 0 && (
        <ul class="notes">{notes.slice(0, 3).map((note) => <li key={note}>{note}</li>)}
          {notes.length > 3 && <li class="quiet" title={notes.slice(3).join("\n")}>{t("notes.more", { count: notes.length - 3 })}</li>}</ul>
      )}
      {session.notice !== null && (
        <p class="notice" role="status">{session.notice ? t("match.saved", { file: session.notice }) : t("match.done")}
          {session.noticePair !== null && <button type="button" onClick={() => void session.match(session.noticePair!, null, true)}>{t("match.undo")}</button>}
          <button type="button" class="plain" aria-label={t("close")} onClick={() => { session.notice = null; session.changed(); }}><Glyph name="close" /></button></p>
      )}
    </section>
  );
}
