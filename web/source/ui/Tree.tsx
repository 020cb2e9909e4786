// The tree table: modules and calls of both sides, one row for each pair; only what is on the screen is in the document.

import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { long, short, times, timesOf, whole } from "../model/figures.ts";
import { labelOf, parseName } from "../model/names.ts";
import { countBelow, FLAG, nameOf, NONE, PHASES, SEVERITY, STATUSES, WORST_FIRST, worstOf } from "../model/place.ts";
import type { Place } from "../model/place.ts";
import { heightOf, positionOf, scrollTo, windowOf } from "../model/rows.ts";
import type { Session } from "../state/session.ts";
import { t } from "../texts/index.ts";
import type { Key } from "../texts/index.ts";
import { firstKey } from "./Headline.tsx";
import { Glyph, Status, statusWords } from "./Icons.tsx";
import { limitWords } from "./Tensors.tsx";

export const ROW = 24;

export function Tree({ session, place }: { session: Session; place: Place }): JSX.Element {
  const area = useRef<HTMLDivElement>(null);
  const [scroll, setScroll] = useState(0);
  const [view, setView] = useState(600);
  const { rows, selected } = session;

  useLayoutEffect(() => {
    const element = area.current!;
    const watch = new ResizeObserver(() => setView(element.clientHeight - ROW));
    watch.observe(element);
    setView(element.clientHeight - ROW);
    return () => watch.disconnect();
  }, []);
  useEffect(() => {
    const element = area.current!;
    if (selected < 0) return;
    const wanted = scrollTo(positionOf(rows, selected), rows.length, ROW, element.clientHeight - ROW, element.scrollTop);
    if (wanted !== element.scrollTop) element.scrollTop = wanted;
  }, [session.reveals, place]);

  const shown = windowOf(rows.length, ROW, view, scroll);
  const lines: JSX.Element[] = [];
  for (let at = shown.from; at < shown.to; at++) lines.push(<Line key={rows[at]} session={session} place={place} row={rows[at]} position={at} />);
  const layout = session.single ? "single" : place.twins.size ? "pair twins" : "pair";
  return (
    <div class={`table ${layout}`}>
      <div class="rows" ref={area} role="treegrid" tabIndex={0} aria-label={t("view.tree")} aria-rowcount={rows.length}
        aria-activedescendant={selected >= 0 ? `row-${selected}` : undefined}
        onScroll={(event) => setScroll(event.currentTarget.scrollTop)}>
        <div class="head" aria-hidden="true">
          <span>{t("column.name")}</span><span>{t("column.pass")}</span>
          {session.single ? <>
            <span class="number">{t("column.norm")}</span><span class="number">{t("column.largest")}</span><span>{t("column.flags")}</span>
          </> : <>
            <span class="number" title={t("column.output_difference.long")}>{t("column.output_difference")}</span>
            <span class="number" title={t("column.input_difference.long")}>{t("column.input_difference")}</span>
            <span class="number allowed" title={t("column.times.long")}>{t("column.times")}</span>
            <span title={t("column.below.long")}>{t("column.below")}</span>
            {place.twins.size > 0 && <span class="twin">{t("reference")}</span>}
          </>}
        </div>
        {rows.length === 0 && <p class="waiting">{t("search.none")}</p>}
        <div class="space" role="presentation" style={{ height: `${heightOf(rows.length, ROW)}px` }}>
          <div class="shown" role="presentation" style={{ transform: `translateY(${shown.offset}px)` }}>{lines}</div>
        </div>
      </div>
    </div>
  );
}

function Line({ session, place, row, position }: { session: Session; place: Place; row: number; position: number }): JSX.Element {
  const holds = place.ends[row] > row + 1;
  const isOpen = holds && session.opened.isOpen(row, session.kept);
  const label = labelOf(place, row);
  const status = place.status[row];
  const edge = session.single ? brokenStatus(place.flags[row] | (isOpen ? 0 : place.flagsBelow[row])) : isOpen ? status : worstOf(place, row);
  const classes = ["row", row === session.selected && "selected", row === place.first && "first-one",
    session.kept && !session.kept.asked[row] && "dim", row === session.matching && "matching", `edge-${STATUSES[edge]}`];
  const choose = (): void => {
    if (session.matching !== null && row !== session.matching && place.sides[row] !== place.sides[session.matching]) session.select(row, { tab: "call", reveal: false });
    else session.select(row, { reveal: false });
  };
  return (
    <div class={classes.filter(Boolean).join(" ")} id={`row-${row}`} role="row" aria-level={place.depths[row] + 1} aria-rowindex={position + 1}
      aria-selected={row === session.selected} aria-expanded={holds ? isOpen : undefined} data-row={row} onClick={choose}
      onDblClick={() => { if (holds) session.toggle(row); }}>
      <span class="name" role="gridcell" title={nameOf(place, row)} style={{ paddingLeft: `${6 + Math.min(place.depths[row], 24) * 14}px` }}>
        {holds
          ? <button type="button" class={isOpen ? "fold open" : "fold"} tabIndex={-1} aria-label={isOpen ? t("close.row") : t("open.row")}
              onClick={(event) => { event.stopPropagation(); session.toggle(row); }}><Glyph name="chevron" /></button>
          : <span class="fold" />}
        {session.single ? <Broken flags={place.flags[row]} /> : <Status status={status} />}
        <span class="main">{place.kinds[row] === 2 ? t("kind.collection.one") : label.main}</span><span class="quiet">{place.kinds[row] === 2 ? label.main : label.quiet}</span>
        {row === place.first && <span class="tag bad">{t(`${firstKey(session.overview!)}.tag`)}</span>}
        {place.flags[row] & FLAG.communication ? <span class="tag sign" title={t("flag.communication")}>⇄</span> : null}
        {place.flags[row] & FLAG.recomputed ? <span class="tag sign" title={t("flag.recomputed")}>↻</span> : null}
      </span>
      <span class="pass" role="gridcell">{t(`pass.${PHASES[place.phases[row]] ?? "forward"}` as Key)}{place.microSteps > 1 ? ` ${place.micro[row] + 1}` : ""}</span>
      {session.single ? <SingleCells place={place} row={row} /> : <PairCells place={place} row={row} holds={holds} />}
    </div>
  );
}

function PairCells({ place, row, holds }: { place: Place; row: number; holds: boolean }): JSX.Element {
  const status = place.status[row];
  const alone = place.sides[row] !== 0;
  // Without numbers on both sides a difference of 0 would claim too much.
  const silent = alone || status === NONE;
  const left = silent ? NaN : place.outputDifference[row];
  const ratio = silent ? NaN : timesOf(left, place.allowed[row]);
  return <>
    <span class={`number left t-${STATUSES[status]}`} role="gridcell" title={Number.isNaN(left) ? statusWords(status) : `${statusWords(status)}: ${long(left)}`}>
      {alone ? <em>{statusWords(status === 0 ? 4 + place.sides[row] : status)}</em> : <><Bar value={left} status={status} /><span>{left === 0 && status > 1 ? "–" : short(left)}</span></>}
    </span>
    <span class={place.inputDifference[row] === 0 ? "number quiet" : "number"} role="gridcell">{silent ? "" : short(place.inputDifference[row])}</span>
    <span class={`number allowed ${ratio > 1 ? `t-${STATUSES[status]}` : "quiet"}`} role="gridcell" title={silent ? "" : limitWords(ratio, left, place.allowed[row])}>{silent ? "" : times(ratio)}</span>
    <span class="below" role="gridcell">{holds && <Below place={place} row={row} />}</span>
    {place.twins.size > 0 && <span class="twin quiet" role="gridcell" title={place.twins.get(row)}>{twinWords(place.twins.get(row))}</span>}
  </>;
}

/** The end of the reference's name: what stands before it is the same as above. */
function twinWords(twin: string | undefined): string {
  if (twin === undefined) return "";
  const { prefix, path, className, number, isModule } = parseName(twin);
  return isModule ? `${path.slice(path.lastIndexOf(".") + 1)} ${className}` : `${path} ${prefix} ${number}`;
}

/** Log scale from 1e-9 to 1. */
function Bar({ value, status }: { value: number; status: number }): JSX.Element | null {
  if (!(value > 0)) return null;
  const width = Math.max(2, Math.min(100, ((Math.log10(Math.min(value, 1)) + 9) / 9) * 100));
  return <i class={`meter b-${STATUSES[status]}`} style={{ width: `${width * 0.44}px` }} />;
}

function Below({ place, row }: { place: Place; row: number }): JSX.Element | null {
  const worst = place.worstBelow[row];
  const counts = WORST_FIRST.filter((status) => status > 0).map((status) => [status, countBelow(place, row, status)] as const).filter(([, count]) => count > 0);
  const total = counts.reduce((sum, [, count]) => sum + count, 0);
  if (!total) return null;
  const words = counts.map(([status, count]) => `${statusWords(status)}: ${whole(count)}`).join("\n");
  const most = Number.isNaN(place.outputDifferenceBelow[row]) ? "" : `\n${t("below.largest", { value: short(place.outputDifferenceBelow[row]) })}`;
  return (
    <span class="tally" title={words + most} aria-label={words}>
      {SEVERITY[worst] > 1 ? <><Status status={worst} quiet /><span class={`t-${STATUSES[worst]}`}>{whole(countBelow(place, row, worst))}</span></> : <span class="quiet" />}
      <span class="stack">{counts.map(([status, count]) => <i key={status} class={`b-${STATUSES[status]}`} style={{ flexGrow: count / total }} />)}</span>
      <span class="quiet of">{whole(total)}</span>
    </span>
  );
}

function SingleCells({ place, row }: { place: Place; row: number }): JSX.Element {
  const under = place.flagsBelow[row] & FLAG.notFinite;
  return <>
    <span class="number" role="gridcell"><Size value={place.norm[row]} /><span>{short(place.norm[row])}</span></span>
    <span class="number" role="gridcell">{place.largest[row] === 0 && place.flags[row] & FLAG.notFinite ? "" : short(place.largest[row])}</span>
    <span class="flags" role="gridcell">
      {place.flags[row] & FLAG.bornNotFinite ? <b class="t-unexplained">{t("flag.born")}</b> : place.flags[row] & FLAG.notFinite ? <span class="t-unexplained">{t("flag.notFinite")}</span>
        : under ? <span class="t-unexplained">{t("flag.below")}</span> : place.flags[row] & FLAG.mask ? <span class="quiet" title={t("flag.mask.long")}>{t("flag.mask")}</span> : null}
      {place.flags[row] & FLAG.unset ? <span class="tag">{t("flag.unset")}</span> : null}
    </span>
  </>;
}

/** The size of a norm between 1e-6 and 1e6. */
function Size({ value }: { value: number }): JSX.Element | null {
  if (!(value > 0)) return null;
  const width = Math.max(2, Math.min(100, ((Math.log10(value) + 6) / 12) * 100));
  return <i class="meter b-rounding" style={{ width: `${width * 0.44}px` }} />;
}

function brokenStatus(flags: number): number {
  return flags & FLAG.bornNotFinite ? 4 : flags & FLAG.notFinite ? 3 : 0;
}

function Broken({ flags }: { flags: number }): JSX.Element {
  return <Status status={brokenStatus(flags)}
    words={flags & FLAG.bornNotFinite ? t("flag.born") : flags & FLAG.notFinite ? t("flag.notFinite") : t("flag.finite")} />;
}
