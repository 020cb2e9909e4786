// The findings of the comparison, in the words that the command line uses.

import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import type { Block, FindingAnswer, Overview } from "../data/protocol.ts";
import type { Session } from "../state/session.ts";
import { said, t } from "../texts/index.ts";
import { breakable } from "./Details.tsx";
import { Glyph } from "./Icons.tsx";

export function Findings({ session, overview }: { session: Session; overview: Overview }): JSX.Element {
  const { verdict } = overview;
  const list = useRef<HTMLOListElement>(null);
  useEffect(() => {
    const card = list.current?.children[session.finding];
    const pane = list.current?.closest(".content");
    // Of a card that is higher than the pane the beginning is what to see.
    if (card && pane) card.scrollIntoView({ block: card.clientHeight > pane.clientHeight ? "start" : "nearest" });
  }, [session.cards]);
  if (!verdict) return <p class="waiting">{t("findings.notAsked")}</p>;
  return (
    <div class="findings">
      {verdict.findings.length === 0 && <p class="waiting">{t("findings.none")}</p>}
      <ol ref={list}>{verdict.findings.map((finding, index) => (
        <li key={index} class={index === session.finding ? "now" : ""} aria-current={index === session.finding}>
          <button type="button" class="title" onClick={() => void session.goFinding(index)}>
            <span class={finding.harmless ? "rank harmless" : "rank"}>{index + 1}</span><span>{said(finding.title)}</span></button>
          {finding.name && <button type="button" class="jump mono" onClick={() => void session.goFinding(index)}><Glyph name="target" /><span>{breakable(finding.name)}</span></button>}
          <Words finding={finding} />
        </li>
      ))}</ol>
      {verdict.compared.length > 0 && <><h3>{t(overview.kind === "single" ? "compared.single" : "compared")}</h3><ul class="plain-list">{verdict.compared.map((line, at) => <li key={at}>{said(line)}</li>)}</ul></>}
      {verdict.notes.length > 0 && <><h3>{t("notes")}</h3><ul class="plain-list">{verdict.notes.map((note, at) => <li key={at}>{said(note)}</li>)}</ul></>}
    </div>
  );
}

function Words({ finding }: { finding: FindingAnswer }): JSX.Element {
  const tellsSource = finding.blocks.some((block) => block.type === "field" && block.code);
  return (
    <div class="words">
      {finding.blocks.map((block, index) => <OneBlock key={index} block={block} />)}
      {!tellsSource && finding.source.length > 0 && <pre class="frames">{finding.source.join("\n")}</pre>}
    </div>
  );
}

function OneBlock({ block }: { block: Block }): JSX.Element {
  if (block.type === "text") return <p>{said(block.text)}</p>;
  if (block.type === "table") {
    return (
      <table class="told"><thead><tr><td /><th scope="col">{t("candidate")}</th><th scope="col">{t("reference")}</th></tr></thead>
        <tbody>{block.rows.map(([label, candidate, reference], at) => (
          <tr key={at}><th scope="row">{said(label)}</th><td>{said(candidate)}</td><td>{said(reference)}</td></tr>))}</tbody></table>
    );
  }
  return <dl><dt>{said(block.name)}</dt><dd><span>{said(block.text)}</span>{block.code && <code>{block.code}</code>}</dd></dl>;
}
