// The tensors of a call: a block for each, the statistics of both sides under each other, and what they differ by.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { Figure, NodeAnswer, Overview, TensorAnswer, TensorSide } from "../data/protocol.ts";
import { full, long, short, times, timesOf } from "../model/figures.ts";
import { FLAG, SEVERITY, STATUSES } from "../model/place.ts";
import { STATISTICS } from "../model/tsv.ts";
import type { Session } from "../state/session.ts";
import { said, t } from "../texts/index.ts";
import type { Key } from "../texts/index.ts";
import { Status, statusWords } from "./Icons.tsx";
import { DifferencePicture } from "./Picture.tsx";

const GROUPS = ["input", "parameter", "output"] as const;

export function Tensors({ session, overview, node }: { session: Session; overview: Overview; node: NodeAnswer }): JSX.Element {
  const [worstFirst, setWorstFirst] = useState(false);
  // Infinities that a mask puts in, or that the call masks away, are no mistake, and do not shout like one.
  const isMasked = !((session.place?.flags[session.selected] ?? 0) & (FLAG.notFinite | FLAG.bornNotFinite));
  const block = (row: TensorAnswer): JSX.Element => <Tensor key={`${node.name}/${row.slot}`} session={session} overview={overview} row={row} isAlone={node.side !== 0} isMasked={isMasked} />;
  const sorted = [...node.tensors].sort((a, b) => SEVERITY[b.status] - SEVERITY[a.status] || (b.relative ?? 0) - (a.relative ?? 0));
  return (
    <div class="tensors">
      {overview.kind === "pair" && node.tensors.length > 2 && (
        <p class="order"><label><input type="checkbox" checked={worstFirst} onChange={(event) => setWorstFirst(event.currentTarget.checked)} />{t("tensors.worst")}</label></p>
      )}
      {worstFirst ? sorted.map(block) : GROUPS.map((group) => {
        const rows = node.tensors.filter((row) => row.group === group);
        return rows.length > 0 && <div key={group}><h4>{t(`group.${group}` as Key)}</h4>{rows.map(block)}</div>;
      })}
    </div>
  );
}

interface TensorProps {
  session: Session;
  overview: Overview;
  row: TensorAnswer;
  isAlone: boolean;
  isMasked: boolean;
}

function Tensor({ session, overview, row, isAlone, isMasked }: TensorProps): JSX.Element {
  const isPair = overview.kind === "pair";
  const { candidate, reference } = row;
  const any = candidate ?? reference;
  const plain = any !== null && any.value !== null && any.norm === null && any.max === null;
  return (
    <div class={`tensor edge-${STATUSES[row.status] ?? "none"}`}>
      <div class="title">
        {isPair && <Status status={row.status} quiet />}<span class="mono slot">{row.slot.replace(/^(input|output|parameters)\./, "")}</span>
        {plain ? <Values candidate={candidate} reference={reference} isPair={isPair && !isAlone} /> : <Form candidate={candidate} reference={reference} isPair={isPair} isAlone={isAlone} isMasked={isMasked} />}
        <span class="grow" />
        {isPair && row.relative !== null && row.status > 1 && <Size row={row} />}
      </div>
      {!plain && any && <Numbers row={row} isPair={isPair} isMasked={isMasked} />}
      {row.words && row.status > 1 && <p class="words">{said(row.words)}</p>}
      {overview.can.picture && isPair && candidate?.file && reference?.file && <DifferencePicture session={session} slot={row.slot} />}
    </div>
  );
}

/** dtype, shape and strides: once where both sides agree, both where they do not. */
function Form({ candidate, reference, isPair, isAlone, isMasked }: Pick<TensorAnswer, "candidate" | "reference"> & { isPair: boolean; isAlone: boolean; isMasked: boolean }): JSX.Element {
  const one = (side: TensorSide | null, part: "dtype" | "shape" | "strides"): string => {
    const value = side?.[part];
    if (value === null || value === undefined) return "";
    return typeof value === "string" ? value.replace(/^(torch|mindspore)\./, "") : `[${value.join(", ")}]`;
  };
  const part = (name: "dtype" | "shape" | "strides"): JSX.Element | null => {
    const [first, second] = [one(candidate, name), one(reference, name)];
    if (!first && !second) return null;
    const label = name === "strides" ? <span class="label">{t("tensor.strides")}</span> : null;
    if (!isPair || !candidate || !reference || first === second) return name === "strides" && isPair && first === second ? null : <span class="form">{label}{first || second}</span>;
    return <span class={name === "strides" ? "form" : "form other"}>{label}{first || "?"} ↔ {second || "?"}</span>;
  };
  const any = candidate ?? reference;
  return <>
    {!any?.dtype && any && any.value === null && <span class="form">{any.type}</span>}
    {part("dtype")}{part("shape")}{part("strides")}
    {(["nan", "inf"] as const).map((name) => {
      const counts = [candidate?.[name], reference?.[name]];
      if (!counts.some(Boolean)) return null;
      const words = counts.filter((_, side) => (side ? reference : candidate)).map((count) => count ?? 0);
      const isSame = words.every((count) => count === words[0]);
      return <span key={name} class={isSame && isMasked && name === "inf" ? "form" : "form other"}>{t(`tensor.${name}`, { count: isSame ? words[0]! : words.join(" ↔ ") })}</span>;
    })}
    {any?.unset && <span class="tag">{t("flag.unset")}</span>}
    {isPair && !isAlone && (!candidate || !reference) && <span class="tag">{candidate ? statusWords(5) : statusWords(6)}</span>}
    {candidate && reference && candidate.requires_grad !== null && reference.requires_grad !== null && candidate.requires_grad !== reference.requires_grad
      && <span class="form other">requires_grad {String(candidate.requires_grad)} ↔ {String(reference.requires_grad)}</span>}
  </>;
}

function Values({ candidate, reference, isPair }: { candidate: TensorSide | null; reference: TensorSide | null; isPair: boolean }): JSX.Element {
  if (!isPair || candidate?.value === reference?.value) return <span class="value mono">{(candidate ?? reference)?.value}</span>;
  return <span class="value mono other">{candidate?.value ?? "–"} ↔ {reference?.value ?? "–"}</span>;
}

function Numbers({ row, isPair, isMasked }: { row: TensorAnswer; isPair: boolean; isMasked: boolean }): JSX.Element {
  const sides = isPair ? (["candidate", "reference"] as const) : (["candidate"] as const);
  const differ = row.differences && row.candidate && row.reference && row.status !== 1;
  return (
    <table class="numbers">
      <thead><tr><td />{STATISTICS.map((name) => <th key={name} scope="col">{t(`statistic.${name}` as Key)}</th>)}</tr></thead>
      <tbody>
        {sides.map((side) => row[side] && (
          <tr key={side}><th scope="row">{isPair ? t(side) : ""}</th>
            {STATISTICS.map((name) => <Number_ key={name} value={row[side]![name]} text={long(row[side]![name])} isMasked={isMasked} />)}</tr>
        ))}
        {isPair && differ && (
          <tr class="difference"><th scope="row">{t("difference")}</th>
            {STATISTICS.map((statistic) => {
              const [value, share] = row.differences[statistic] ?? [null, null];
              const inSize = typeof share === "number" ? t("difference.share", { value: short(share) }) : "";
              return <Number_ key={statistic} value={value} text={typeof value === "string" ? long(value) : short(value)} more={inSize} />;
            })}</tr>
        )}
      </tbody>
    </table>
  );
}

/** The two measures that the page has for a difference: relative to the tensor's size, and in tolerances. */
function Size({ row }: { row: TensorAnswer }): JSX.Element {
  const ratio = timesOf(row.relative, row.allowed);
  return (
    <span class="units" title={row.group === "output" ? `${t("column.output_difference.long")}\n${limitWords(ratio, row.relative, row.allowed)}` : t("column.input_difference.long")}>
      {t("relative", { value: `${row.at_least ? "≥ " : ""}${short(row.relative)}` })}{Number.isNaN(ratio) || row.group !== "output" ? "" : ` · ${t("times", { value: times(ratio).replace(" ×", "") })}`}</span>
  );
}

/** How a number of tolerances comes about, in words. */
export function limitWords(ratio: number, difference: number | null, allowed: number | null): string {
  if (Number.isNaN(ratio) || allowed === null) return t("column.times.long");
  if (allowed === 0) return t("limit.exact");
  return `${t("limit", { difference: short(difference), allowed: short(allowed) })}${allowed >= 1 ? `\n${t("limit.any")}` : ""}`;
}

function Number_({ value, text, more = "", isMasked = false }: { value: Figure; text: string; more?: string; isMasked?: boolean }): JSX.Element {
  const isBroken = typeof value === "string" && (value === "nan" || !isMasked);
  return <td class={isBroken ? "broken" : value === 0 ? "zero" : ""} title={[full(value), more].filter(Boolean).join("\n")}>{text || "–"}</td>;
}
