// The statuses with their counts, which are the filter, too; kinds, passes and micro-steps; folding of the whole tree.

import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { whole } from "../model/figures.ts";
import { FLAG, KINDS, PHASES, STATUSES, WORST_FIRST } from "../model/place.ts";
import { asksNothing, EVERYTHING } from "../model/search.ts";
import type { Session } from "../state/session.ts";
import { t } from "../texts/index.ts";
import type { Key } from "../texts/index.ts";
import { Glyph, Status, statusWords } from "./Icons.tsx";

export function Toolbar({ session }: { session: Session }): JSX.Element | null {
  const menu = useRef<HTMLDetailsElement>(null);
  useEffect(() => {
    const close = (event: Event): void => {
      const isKey = event instanceof KeyboardEvent;
      if (!menu.current?.open || (isKey ? event.key !== "Escape" : menu.current.contains(event.target as Node))) return;
      // Who closes it by key goes on from there.
      if (isKey && menu.current.contains(document.activeElement)) menu.current.querySelector("summary")?.focus();
      menu.current.open = false;
    };
    document.addEventListener("pointerdown", close);
    document.addEventListener("keydown", close);
    return () => {
      document.removeEventListener("pointerdown", close);
      document.removeEventListener("keydown", close);
    };
  }, []);
  const { place } = session;
  const { question } = session.shown;
  if (!place) return null;
  const flip = (field: "status" | "kinds" | "phases" | "flags", bit: number): void =>
    session.ask({ ...question, [field]: question[field] ^ bit });
  const total = (status: number): number => place.counts[status][place.size];
  const kinds = KINDS.map((name, kind) => ({ name, kind })).filter(({ kind }) => place.kinds.includes(kind));
  const phases = PHASES.map((name, phase) => ({ name, phase })).filter(({ phase }) => place.phases.includes(phase));
  const chosen = Number(question.kinds > 0) + Number(question.phases > 0) + Number(question.micro >= 0) + Number(question.flags > 0);
  return (
    <div class="tools">
      {!session.single && (
        <div class="chips" role="group" aria-label={t("filter.status")}>
          {WORST_FIRST.filter((status) => total(status) > 0).map((status) => (
            <button key={status} type="button" class={`chip c-${STATUSES[status]}`} aria-pressed={(question.status & (1 << status)) !== 0}
              title={statusWords(status)} aria-label={`${statusWords(status)}: ${total(status)}`} onClick={() => flip("status", 1 << status)}>
              <Status status={status} quiet />{whole(total(status))}
            </button>
          ))}
        </div>
      )}
      {session.single && (
        <button type="button" class="chip" aria-pressed={question.flags > 0} onClick={() => flip("flags", FLAG.notFinite | FLAG.bornNotFinite)}>
          <Status status={4} quiet />{t("flag.notFinite")}</button>
      )}
      <details class="menu" ref={menu}>
        <summary>{t("filter")}{chosen > 0 && <b class="badge">{chosen}</b>}<Glyph name="down" /></summary>
        <div class="popup">
          <Group title={t("filter.kind")}>{kinds.map(({ name, kind }) => (
            <Choice key={name} checked={(question.kinds & (1 << kind)) !== 0} words={t(`kind.${name}` as Key)} flip={() => flip("kinds", 1 << kind)} />))}</Group>
          <Group title={t("filter.pass")}>{phases.map(({ name, phase }) => (
            <Choice key={name} checked={(question.phases & (1 << phase)) !== 0} words={t(`pass.${name}.long` as Key)} flip={() => flip("phases", 1 << phase)} />))}</Group>
          <Group title={t("filter.flag")}>{([["notFinite", FLAG.notFinite], ["dtype", FLAG.dtype], ["shape", FLAG.shape], ["arguments", FLAG.arguments],
            ["communication", FLAG.communication], ["unset", FLAG.unset], ["recomputed", FLAG.recomputed]] as const).map(([name, bit]) => (
            <Choice key={name} checked={(question.flags & bit) !== 0} words={t(`flag.${name}` as Key)} flip={() => flip("flags", bit)} />))}</Group>
          {place.microSteps > 1 && (
            <Group title={t("filter.micro")}>
              <select value={String(question.micro)} aria-label={t("filter.micro")} onChange={(event) => session.ask({ ...question, micro: Number(event.currentTarget.value) })}>
                <option value="-1">{t("all")}</option>
                {Array.from({ length: place.microSteps }, (_, micro) => <option key={micro} value={String(micro)}>{micro + 1}</option>)}
              </select>
            </Group>
          )}
        </div>
      </details>
      {!asksNothing(question) && <button type="button" class="plain" onClick={() => session.ask(EVERYTHING)}><Glyph name="close" />{t("filter.clear")}</button>}
      <span class="grow" />
      <button type="button" class="plain" title={`${t("key.worst")} (e)`} aria-label={t("worst")} onClick={() => session.openWorst()}><Glyph name="target" /><span class="words">{t("worst")}</span></button>
      <button type="button" class="plain" title={t("open.all")} aria-label={t("open.all")} onClick={() => session.setAllOpen(true)}><Glyph name="unfold" /></button>
      <button type="button" class="plain" title={t("close.all")} aria-label={t("close.all")} onClick={() => session.setAllOpen(false)}><Glyph name="fold" /></button>
    </div>
  );
}

function Group({ title, children }: { title: string; children: preact.ComponentChildren }): JSX.Element {
  return <fieldset><legend>{title}</legend>{children}</fieldset>;
}

function Choice({ checked, words, flip }: { checked: boolean; words: string; flip: () => void }): JSX.Element {
  return <label><input type="checkbox" checked={checked} onChange={flip} />{words}</label>;
}
