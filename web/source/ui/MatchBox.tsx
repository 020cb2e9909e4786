// Matching by hand: a row of one side is told its partner on the other.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { nameOf } from "../model/place.ts";
import type { Place } from "../model/place.ts";
import type { Session } from "../state/session.ts";
import { t } from "../texts/index.ts";
import { canMatch } from "./keys.ts";

export function MatchBox({ session, place, name }: { session: Session; place: Place; name: string }): JSX.Element | null {
  const [withChildren, setWithChildren] = useState(true);
  const { matching, selected } = session;
  const undo = session.matched[name];
  if (matching === null) {
    return (
      <p class="match">
        {undo !== undefined && <><span>{t("match.by", { name: undo })}</span>
          <button type="button" onClick={() => void session.match(name, null, true)}>{t("match.undo")}</button></>}
        {canMatch(session) && <button type="button" onClick={() => session.startMatching(selected)}>{t("match.start")}<kbd>m</kbd></button>}
      </p>
    );
  }
  const [mine, other] = [place.sides[matching], place.sides[selected]];
  const isPair = selected !== matching && mine !== 0 && other !== 0 && mine !== other;
  const candidate = mine === 1 ? nameOf(place, matching) : nameOf(place, selected);
  const reference = mine === 1 ? nameOf(place, selected) : nameOf(place, matching);
  return (
    <div class="match now" role="status">
      <p><b>{t("match.choose", { name: nameOf(place, matching) })}</b> {mine === 1 ? t("match.chooseReference") : t("match.chooseCandidate")}</p>
      {!place.sides.includes(mine === 1 ? 2 : 1) && <p>{t("match.nobody")}</p>}
      {isPair && <>
        <p class="mono">{candidate}<br />↔ {reference}</p>
        <label><input type="checkbox" checked={withChildren} onChange={(event) => setWithChildren(event.currentTarget.checked)} />{t("match.children")}</label>
      </>}
      <p>
        {isPair && <button type="button" class="strong" onClick={() => void session.match(candidate, reference, withChildren)}>{t("match.confirm")}</button>}
        <button type="button" onClick={() => session.startMatching(null)}>{t("cancel")}</button>
      </p>
    </div>
  );
}
