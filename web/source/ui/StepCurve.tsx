// Loss, norms of gradients and weights over all recorded steps: both runs, and their difference against what is allowed.

import type { JSX } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import type { CurveAnswer, Figure, Overview } from "../data/protocol.ts";
import { long, short } from "../model/figures.ts";
import { axisOf, brokenOf, pathOf, pointsOf, stepAt, stepShare } from "../model/curve.ts";
import type { Axis } from "../model/curve.ts";
import type { Session } from "../state/session.ts";
import { t } from "../texts/index.ts";

const LEFT = 52;
const TOP = 20; // the name of a scale stands above it
const VALUES = 116;
const DIFFERENCES = 84;
const FOOT = 18;
/** Up to so many steps each has a point: a line through one or two says little. */
const MOST_POINTS = 40;

type Line = "candidate" | "reference" | "difference" | "allowed";

export function StepCurve({ session, overview }: { session: Session; overview: Overview }): JSX.Element {
  const box = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(600);
  useLayoutEffect(() => {
    const watch = new ResizeObserver(([entry]) => setWidth(Math.floor(entry!.contentRect.width)));
    watch.observe(box.current!);
    return () => watch.disconnect();
  }, []);
  const isPair = overview.kind === "pair";
  const across = width > 760 && overview.curve.length > 1 ? 2 : 1;
  const legend: Line[] = overview.curve.some(hasAllowed) ? ["candidate", "reference", "difference", "allowed"] : ["candidate", "reference", "difference"];
  const isOneStep = overview.curve.every((curve) => curve.steps.length === 1);
  return (
    <div class="grids">
      <div class="grid-head"><p class="quiet">{isOneStep ? t("steps.one") : t(session.single ? "steps.legend.single" : "steps.legend")}</p>
        {isPair && <p class="curve-legend">{legend.map((line) => (
          <span key={line} title={line === "allowed" ? t("steps.allowed.long") : undefined}>
            <svg width="22" height="8" aria-hidden="true"><path class={`c-${line}`} d="M1 4H21" /></svg>{wordsOf(line)}</span>))}</p>}
        {overview.curve_complete === false && <p class="quiet" role="status">{t("loading")}</p>}</div>
      <div ref={box} class="curves" style={{ gridTemplateColumns: `repeat(${across}, minmax(0, 1fr))` }}>
        {overview.curve.map((curve) => <Chart key={curve.name} session={session} curve={curve} width={Math.floor((width - (across - 1) * 16) / across)} isPair={isPair} />)}
      </div>
    </div>
  );
}

function wordsOf(line: Line): string {
  return line === "candidate" || line === "reference" ? t(line) : t(`steps.${line}`);
}

function hasAllowed(curve: CurveAnswer): boolean {
  return curve.allowed.some((value) => value !== null);
}

function Chart({ session, curve, width, isPair }: { session: Session; curve: CurveAnswer; width: number; isPair: boolean }): JSX.Element {
  const [over, setOver] = useState(-1);
  const inner = width - LEFT - 8;
  const x = (index: number): number => LEFT + inner * stepShare(curve.steps, index);
  const hasDifference = isPair && curve.difference.some((value) => value !== null);
  const below = TOP + VALUES + TOP + 6;
  const height = (hasDifference ? below + DIFFERENCES : TOP + VALUES) + FOOT;
  const here = curve.steps.indexOf(session.head?.step ?? -1);
  const last = curve.steps.length - 1;
  const at = (event: MouseEvent): number => stepAt(curve.steps, (event.offsetX - LEFT) / Math.max(1, inner));
  const go = (index: number): void => {
    const step = curve.steps[index];
    const places = session.overview!.places;
    const rank = session.head?.rank;
    const same = places.findIndex((place) => place.step === step && place.rank === rank);
    const place = same >= 0 ? same : places.findIndex((each) => each.step === step);
    if (place >= 0) void session.openPlace(place);
  };
  const move = (event: KeyboardEvent): void => {
    const by = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (by) setOver(Math.max(0, Math.min(last, (over < 0 ? Math.max(0, here) : over) + by)));
    else if ((event.key === "Enter" || event.key === " ") && over >= 0) go(over);
    else return;
    event.preventDefault();
  };
  const marker = (index: number, name: string): JSX.Element | null => index < 0 ? null
    : <path class={name} d={`M${x(index)} ${TOP}V${TOP + VALUES}${hasDifference ? `M${x(index)} ${below}V${below + DIFFERENCES}` : ""}`} />;
  const told = over >= 0 ? over : last === 0 ? 0 : here;
  return (
    <figure class="curve">
      <figcaption><b>{curve.name}</b>{told >= 0 && <span class="quiet"> {stepWords(curve, told, isPair)}</span>}</figcaption>
      <svg width={width} height={height} role="slider" tabIndex={0} data-own-keys aria-label={curve.name} aria-valuemin={0} aria-valuemax={last}
        aria-valuenow={Math.max(0, told)} aria-valuetext={stepWords(curve, Math.max(0, told), isPair)}
        onMouseMove={(event) => setOver(at(event))} onMouseLeave={() => setOver(-1)} onBlur={() => setOver(-1)} onKeyDown={move} onClick={(event) => go(at(event))}>
        <Panel curve={curve} top={TOP} tall={VALUES} width={width} x={x} lines={isPair ? ["reference", "candidate"] : ["candidate"]}
          axis={axisOf([...curve.candidate, ...curve.reference], false)} name={isPair ? t("steps.values") : ""} tick={tickWords} />
        {hasDifference && <Panel curve={curve} top={below} tall={DIFFERENCES} width={width} x={x} lines={["allowed", "difference"]}
          axis={axisOf([...curve.difference, ...curve.allowed], true)} name={t("steps.relative")} tick={powerWords} />}
        {last > 0 && marker(here, "c-here")}{last > 0 && marker(over, "c-over")}
        <text x={x(0)} y={height - 5} text-anchor={last ? "start" : "middle"}>{t("steps.step")} {curve.steps[0]}</text>
        {last > 0 && <text x={width - 8} y={height - 5} text-anchor="end">{curve.steps[last]}</text>}
      </svg>
    </figure>
  );
}

function stepWords(curve: CurveAnswer, index: number, isPair: boolean): string {
  const words = [`${t("steps.step")} ${curve.steps[index]}: ${long(curve.candidate[index]) || "–"}`];
  if (!isPair) return words[0]!;
  words[0] += ` ↔ ${long(curve.reference[index]) || "–"}`;
  if (curve.difference[index] !== null) words.push(`${t("steps.difference")} ${short(curve.difference[index])}`);
  if (curve.allowed[index] !== null) words.push(`${t("steps.allowed")} ${short(curve.allowed[index])}`);
  return words.join(", ");
}

interface PanelProps {
  curve: CurveAnswer;
  axis: Axis;
  top: number;
  tall: number;
  width: number;
  lines: readonly Line[];
  name: string;
  x(index: number): number;
  tick(value: number): string;
}

/** One scale with its lines. */
function Panel({ curve, axis, top, tall, width, lines, name, x, tick }: PanelProps): JSX.Element {
  const y = (value: number): number => top + tall - axis.share(value) * tall;
  return (
    <g>
      <text x={LEFT} y={top - 8} class="c-name">{name}</text>
      {axis.ticks.map((value) => (
        <g key={value}><path class="c-line" d={`M${LEFT} ${Math.round(y(value)) + 0.5}H${width - 8}`} />
          <text x={LEFT - 6} y={y(value) + 3.5} text-anchor="end">{tick(value)}</text></g>))}
      {lines.map((line) => <path key={line} class={`c-${line}`} d={pathOf(curve[line], x, y)} />)}
      {(["candidate", "reference"] as const).filter((line) => lines.includes(line)).flatMap((line) => brokenOf(curve[line]).map(({ from, to, value }) => (
        <g key={`${line}${from}`} class="c-broken"><path class={`c-${line}`} d={`M${x(from) - 4} ${top}H${x(to) + 4}`} />
          <path d={`M${x(from) - 4} ${top - 4}l8 8m0-8l-8 8`} />
          <text x={x(from) + (x(from) > width / 2 ? -8 : 8)} y={top + (line === "reference" ? 26 : 13)} text-anchor={x(from) > width / 2 ? "end" : "start"}>{long(value as Figure)}</text></g>)))}
      {curve.steps.length <= MOST_POINTS && lines.filter((line) => line !== "allowed" || curve.steps.length === 1).map((line) => (
        <g key={line} class={`c-points c-${line}`}>{pointsOf(curve[line], x, y).map(([left, up], index) => (line === "reference"
          ? <path key={index} d={`M${left - 3.5} ${up}h7M${left} ${up - 3.5}v7`} /> : line === "allowed"
            ? <path key={index} d={`M${left - 14} ${up}h28`} /> : <circle key={index} cx={left} cy={up} r="2.4" />))}</g>))}
    </g>
  );
}

function powerWords(value: number): string {
  return value === 0 ? "0" : short(value).replace(".0e", "e").replace("1.00", "1").replace("0.100", "0.1");
}

function tickWords(value: number): string {
  const text = String(Number(value.toPrecision(7)));
  return text.length > 8 ? short(value).replace(".0e", "e") : text;
}
