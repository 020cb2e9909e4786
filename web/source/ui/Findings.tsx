// The findings of the comparison, in the words that the command line uses.

import type { JSX } from "preact";
import type { Overview } from "../data/protocol.ts";
import type { Session } from "../state/session.ts";
import { t } from "../texts/index.ts";
import { Glyph } from "./Icons.tsx";

export function Findings({ session, overview }: { session: Session; overview: Overview }): JSX.Element {
  const { verdict } = overview;
  if (!verdict) return <p class="waiting">{t("findings.notAsked")}</p>;
  return (
    <div class="findings">
      {verdict.findings.length === 0 && <p class="waiting">{t("findings.none")}</p>}
      <ol>{verdict.findings.map((finding, index) => (
        <li key={index} class={index === session.finding ? "now" : ""} aria-current={index === session.finding}>
          <button type="button" class="title" onClick={() => void session.goFinding(index)}><span class={finding.harmless ? "rank harmless" : "rank"}>{index + 1}</span><span>{finding.title}</span></button>
          {finding.lines.map((line, at) => <p key={at}>{line}</p>)}
          {finding.name && <button type="button" class="jump mono" onClick={() => void session.goFinding(index)}><Glyph name="target" />{finding.name}</button>}
          {finding.source.length > 0 && <pre class="frames">{finding.source.join("\n")}</pre>}
        </li>
      ))}</ol>
      {(verdict.compared?.length ?? 0) > 0 && <><h3>{t("compared")}</h3><ul class="plain-list">{verdict.compared!.map((line) => <li key={line}>{line}</li>)}</ul></>}
      {verdict.notes.length > 0 && <><h3>{t("notes")}</h3><ul class="plain-list">{verdict.notes.map((note) => <li key={note}>{note}</li>)}</ul></>}
    </div>
  );
}
