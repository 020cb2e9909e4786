// One row in full: why it is told as it is, its tensors, where it was called, what it is connected with.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { Link, NodeAnswer, Overview, Partner } from "../data/protocol.ts";
import { FLAG, KINDS, nameOf } from "../model/place.ts";
import { tableText } from "../model/tsv.ts";
import type { Session } from "../state/session.ts";
import { said, t } from "../texts/index.ts";
import type { Key } from "../texts/index.ts";
import { Glyph, Status, statusWords } from "./Icons.tsx";
import { canMatch } from "./keys.ts";
import { MatchBox } from "./MatchBox.tsx";
import { Tensors } from "./Tensors.tsx";
import { Trouble } from "./Trouble.tsx";

export function Details({ session, overview }: { session: Session; overview: Overview }): JSX.Element {
  const { place, selected, node } = session;
  if (!place || selected < 0) return <p class="waiting">{t("nothing.long")}</p>;
  const name = nameOf(place, selected);
  const status = place.status[selected];
  return (
    <div class="details">
      <div class="heading">
        {!session.single && <Status status={status} />}
        <h2 class="mono">{breakable(name)}</h2>
        <Copy text={name} words={t("copy.name")} />
      </div>
      {!session.single && (
        <p class="what"><b class={`t-${["none", "identical", "rounding", "explained", "unexplained", "candidate", "reference", "named"][status]}`}>{statusWords(status)}</b>
          <span class="quiet"> · {t(`kind.${KINDS[place.kinds[selected]] ?? "call"}.one` as Key)}</span></p>
      )}
      <Flags flags={place.flags[selected]} />
      {session.matching !== null || canMatch(session) || session.matched[name] ? <MatchBox session={session} place={place} name={name} /> : null}
      {session.nodeProblem ? <Trouble problem={session.nodeProblem} small /> : node === null ? <p class="waiting" role="status">{t("loading")}</p>
        : <Whole session={session} overview={overview} node={node} />}
    </div>
  );
}

function Whole({ session, overview, node }: { session: Session; overview: Overview; node: NodeAnswer }): JSX.Element {
  const isPair = overview.kind === "pair";
  return <>
    {node.twin && node.twin !== node.name && <p class="pairline"><span class="label">{t("reference")}</span><span class="mono">{breakable(node.twin)}</span></p>}
    {node.module && <p class="pairline"><span class="label">{t("details.module")}</span><span class="mono">{node.module}</span></p>}
    {node.why_unmatched && <p class="why">{said(node.why_unmatched)}</p>}
    {node.notes.map((note, at) => <p class="why" key={at}>{said(note)}</p>)}
    {overview.verdict !== null && node.findings.length > 0 && (
      <p class="in-findings">{t("details.findings")} {node.findings.map((index) => (
        <button key={index} type="button" class="jump" onClick={() => void session.goFinding(index)}>{index + 1}. {said(overview.verdict?.findings[index]?.title ?? "")}</button>))}</p>
    )}
    <section>
      <h3>{t("details.tensors")}<Copy text={() => tableText(node, isPair)} words={t("copy.table")} /></h3>
      {node.tensors.length ? <Tensors session={session} overview={overview} node={node} /> : <p class="quiet">{t("details.noTensors")}</p>}
    </section>
    <Source node={node} isPair={isPair} />
    <Links session={session} title={t("details.producers")} links={node.producers} />
    <Links session={session} title={t("details.consumers")} links={node.consumers} />
    <Partners session={session} partners={node.partners} />
  </>;
}

function Flags({ flags }: { flags: number }): JSX.Element | null {
  const told = (Object.keys(FLAG) as (keyof typeof FLAG)[]).filter((name) => flags & FLAG[name] && !(name === "notFinite" && flags & FLAG.bornNotFinite));
  if (!told.length) return null;
  return <p class="tags">{told.map((name) => (
    <span key={name} class={["bornNotFinite", "notFinite", "dtype", "shape"].includes(name) ? "tag bad" : "tag"}>{t(name === "bornNotFinite" ? "flag.born" : `flag.${name}` as Key)}</span>))}</p>;
}

function Source({ node, isPair }: { node: NodeAnswer; isPair: boolean }): JSX.Element | null {
  const { candidate, reference } = node.source;
  if (!candidate.length && !reference.length) return null;
  // The same program in another folder is the same program.
  const program = (frames: string[]): string => frames.join("\n").replace(/[^\s:]*[\\/]/g, "");
  const same = program(candidate) === program(reference);
  return (
    <section>
      <h3>{t("details.source")}</h3>
      {same || !isPair ? <Frames frames={candidate.length ? candidate : reference} /> : <>
        {candidate.length > 0 && <><p class="label">{t("candidate")}</p><Frames frames={candidate} /></>}
        {reference.length > 0 && <><p class="label">{t("reference")}</p><Frames frames={reference} /></>}
      </>}
    </section>
  );
}

const FOREIGN = /\S*([\\/](?:site|dist)-packages[\\/])/;

function Frames({ frames }: { frames: string[] }): JSX.Element {
  const [all, setAll] = useState(false);
  // The lines of the user's own program first: what lies between them belongs to the framework.
  const own = frames.filter((frame) => !FOREIGN.test(frame)).slice(0, 4);
  const shown = all ? frames : own.length ? own : frames.slice(0, 3);
  return <>
    <ol class="frames mono">{shown.map((frame, index) => <li key={index} class={FOREIGN.test(frame) ? "foreign" : ""} title={frame}>{frame.replace(FOREIGN, "…$1")}</li>)}</ol>
    {frames.length > shown.length && <button type="button" class="plain" onClick={() => setAll(true)}>{t(frames.length - shown.length === 1 ? "frames.one" : "frames.more", { count: frames.length - shown.length })}</button>}
  </>;
}

function Links({ session, title, links }: { session: Session; title: string; links: Link[] }): JSX.Element | null {
  if (!links.length) return null;
  return (
    <section>
      <h3>{title}</h3>
      <ul class="links">{links.map((link, index) => (
        <li key={index}><span class="slot">{link.slot}</span>
          <button type="button" class="jump mono" disabled={link.row < 0} onClick={() => session.select(link.row)}>
            {session.place && link.row >= 0 && !session.single && <Status status={session.place.status[link.row]} quiet />}{breakable(link.name)}</button></li>
      ))}</ul>
    </section>
  );
}

function Partners({ session, partners }: { session: Session; partners: Partner[] }): JSX.Element | null {
  if (!partners.length) return null;
  return (
    <section>
      <h3>{t("details.partners")}</h3>
      <ul class="links">{partners.map((partner, index) => (
        <li key={index}><span class="slot">{t("place.rank", { rank: partner.rank })} {t(`partner.${partner.direction}` as Key)}</span>
          <button type="button" class="jump mono" disabled={partner.place === null}
            onClick={() => { if (partner.place !== null) void session.openPlace(partner.place, { name: partner.name, side: partner.side }); }}>{breakable(partner.name)}</button></li>
      ))}</ul>
    </section>
  );
}

/** A name that may be broken after its dots. */
export function breakable(name: string): JSX.Element {
  return <>{name.split(".").flatMap((part, index) => (index ? [".", <wbr key={index} />, part] : [part]))}</>;
}

export function Copy({ text, words }: { text: string | (() => string); words: string }): JSX.Element {
  const [done, setDone] = useState(false);
  const copy = (): void => {
    void copyText(typeof text === "string" ? text : text()).then((isDone) => {
      setDone(isDone);
      setTimeout(() => setDone(false), 1200);
    });
  };
  return <button type="button" class="plain copy" title={words} aria-label={words} onClick={copy}><Glyph name="copy" />{done && <span role="status">{t("copied")}</span>}</button>;
}

async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Where the clipboard is closed to pages (a file from a mail) the old way works still.
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    const isDone = document.execCommand("copy");
    area.remove();
    return isDone;
  }
}
