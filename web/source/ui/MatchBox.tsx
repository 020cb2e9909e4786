// Matching by hand: a row of one side is told its partner on the other, by a search or by a click in the table.

import type { JSX } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { partnersFor } from "../model/partners.ts";
import { nameOf } from "../model/place.ts";
import type { Place } from "../model/place.ts";
import type { Session } from "../state/session.ts";
import { t } from "../texts/index.ts";
import { canMatch } from "./keys.ts";

export function MatchBox({ session, place, name }: { session: Session; place: Place; name: string }): JSX.Element | null {
  const { matching, selected } = session;
  if (matching !== null) return <Matching key={matching} session={session} place={place} matching={matching} />;
  const partner = session.matched[name];
  return (
    <div class="match">
      {partner !== undefined && <><span>{t("match.by", { name: partner })}</span>
        <button type="button" onClick={() => void session.match(name, null, true)}>{t("match.undo")}</button></>}
      {canMatch(session) && <button type="button" title={t("match.explain")} onClick={() => session.startMatching(selected)}>{t("match.start")}<kbd>m</kbd></button>}
    </div>
  );
}

const MOST_SHOWN = 8;

function Matching({ session, place, matching }: { session: Session; place: Place; matching: number }): JSX.Element {
  const [withChildren, setWithChildren] = useState(true);
  const [query, setQuery] = useState("");
  const [over, setOver] = useState(0);
  const field = useRef<HTMLInputElement>(null);
  const confirm = useRef<HTMLButtonElement>(null);
  const chosen = useRef(false);
  const { selected } = session;
  const [mine, other] = [place.sides[matching], place.sides[selected]];
  const isPair = selected !== matching && mine !== 0 && other !== 0 && mine !== other;
  const candidate = nameOf(place, mine === 1 ? matching : selected);
  const reference = nameOf(place, mine === 1 ? selected : matching);
  const partners = useMemo(() => partnersFor(place, matching, query), [place, matching, query]);
  const shown = partners.slice(0, MOST_SHOWN);
  useEffect(() => field.current?.focus(), []);
  useEffect(() => {
    // Chosen with the keyboard: the next Enter confirms.
    if (chosen.current && isPair) confirm.current?.focus();
    chosen.current = false;
  }, [selected]);
  const choose = (row: number): void => {
    chosen.current = true;
    session.select(row, { tab: "call" });
  };
  const onKey = (event: KeyboardEvent): void => {
    const by = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (by) setOver(Math.max(0, Math.min(shown.length - 1, over + by)));
    else if (event.key === "Enter" && shown[over] !== undefined) choose(shown[over]);
    else return;
    event.preventDefault();
  };
  const hasOthers = place.sides.includes(mine === 1 ? 2 : 1);
  return (
    <div class="match now" role="group" aria-label={t("match.start")}>
      <p><b>{t("match.choose", { name: nameOf(place, matching) })}</b> {mine === 1 ? t("match.chooseReference") : t("match.chooseCandidate")}</p>
      <p class="quiet">{t("match.explain")} {t("match.file", { file: session.matchFile })}</p>
      {!hasOthers ? <p>{t("match.nobody")}</p> : <>
        <input ref={field} type="text" class="match-search" role="combobox" aria-expanded={shown.length > 0} aria-controls="match-partners" aria-autocomplete="list"
          aria-activedescendant={shown[over] !== undefined ? `partner-${shown[over]}` : undefined} value={query} placeholder={t("match.search")} aria-label={t("match.search")}
          spellcheck={false} autocomplete="off" onInput={(event) => { setQuery(event.currentTarget.value); setOver(0); }} onKeyDown={onKey} />
        <ul id="match-partners" class="partners" role="listbox" aria-label={t("match.search")}>{shown.map((row, index) => (
          <li key={row} id={`partner-${row}`} role="option" aria-selected={row === selected} class={index === over ? "over mono" : "mono"} onClick={() => choose(row)}>{nameOf(place, row)}</li>))}</ul>
        {partners.length > shown.length && <p class="quiet">{t("match.more", { count: partners.length - shown.length })}</p>}
        {partners.length === 0 && <p class="quiet">{t(query ? "match.noHit" : "match.nobodyAlike")}</p>}
      </>}
      {isPair && <>
        <p class="mono" role="status">{candidate}<br />↔ {reference}</p>
        <label><input type="checkbox" checked={withChildren} onChange={(event) => setWithChildren(event.currentTarget.checked)} />{t("match.children")}</label>
      </>}
      <p>
        {isPair && <button type="button" class="strong" ref={confirm} onClick={() => void session.match(candidate, reference, withChildren)}>{t("match.confirm")}</button>}
        <button type="button" onClick={() => session.startMatching(null)}>{t("cancel")}</button>
      </p>
    </div>
  );
}
