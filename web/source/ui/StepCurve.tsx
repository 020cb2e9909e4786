// Loss, norms of gradients and weights over all recorded steps: both runs, and their difference against what is allowed.

import type { JSX } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Curve, Overview } from "../data/protocol.ts";
import { short } from "../model/figures.ts";
import { axisOf, pathOf, stepAt, stepShare } from "../model/curve.ts";
import type { Session } from "../state/session.ts";
import { t } from "../texts/index.ts";

const LEFT = 52;
const VALUES = 120;
const DIFFERENCES = 70;
const GAP = 24;

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
  return (
    <div class="grids">
      <div class="grid-head"><p class="quiet">{t("steps.legend")}</p>
        {isPair && <p class="curve-legend"><span><svg width="22" height="8"><path class="c-candidate" d="M1 4H21" /></svg>{t("candidate")}</span>
          <span><svg width="22" height="8"><path class="c-reference" d="M1 4H21" /></svg>{t("reference")}</span>
          <span><svg width="22" height="8"><path class="c-difference" d="M1 4H21" /></svg>{t("steps.difference")}</span>
          <span><svg width="22" height="8"><path class="c-allowed" d="M1 4H21" /></svg>{t("steps.allowed")}</span></p>}
        {overview.curve_complete === false && <p class="quiet" role="status">{t("loading")}</p>}</div>
      <div ref={box} class="curves" style={{ gridTemplateColumns: `repeat(${across}, minmax(0, 1fr))` }}>
        {overview.curve.map((curve) => <Chart key={curve.name} session={session} curve={curve} width={Math.floor((width - (across - 1) * 16) / across)} isPair={isPair} />)}
      </div>
    </div>
  );
}

function Chart({ session, curve, width, isPair }: { session: Session; curve: Curve; width: number; isPair: boolean }): JSX.Element {
  const [over, setOver] = useState(-1);
  const values = axisOf([...curve.candidate, ...curve.reference], false);
  const differences = axisOf([...curve.difference, ...curve.allowed], true);
  const inner = width - LEFT - 8;
  const x = (index: number): number => LEFT + inner * stepShare(curve.steps, index);
  const bottom = 8 + VALUES;
  const low = bottom + GAP + DIFFERENCES;
  const hasDifference = isPair && curve.difference.some((value) => value !== null);
  const height = (hasDifference ? low : bottom) + 18;
  const y = (axis: typeof values, top: number, tall: number) => (value: number): number => top + tall - axis.share(value) * tall;
  const lines = isPair ? (["reference", "candidate"] as const) : (["candidate"] as const);
  const here = curve.steps.indexOf(session.head?.step ?? -1);
  const at = (event: MouseEvent): number => stepAt(curve.steps, (event.offsetX - LEFT) / Math.max(1, inner));
  const go = (index: number): void => {
    const step = curve.steps[index];
    const places = session.overview!.places;
    const rank = session.head?.rank;
    const same = places.findIndex((place) => place.step === step && place.rank === rank);
    const place = same >= 0 ? same : places.findIndex((each) => each.step === step);
    if (place >= 0) void session.openPlace(place);
  };
  const marker = (index: number, name: string): JSX.Element | null => index < 0 ? null : <path class={name} d={`M${x(index)} 8V${height - 18}`} />;
  return (
    <figure class="curve">
      <figcaption><b>{curve.name}</b>{over >= 0 && <span class="quiet"> {t("steps.step")} {curve.steps[over]}: {short(curve.candidate[over])}
        {isPair && <> ↔ {short(curve.reference[over])}, {t("steps.difference")} {short(curve.difference[over])}</>}</span>}</figcaption>
      <svg width={width} height={height} role="img" aria-label={curve.name} onMouseMove={(event) => setOver(at(event))} onMouseLeave={() => setOver(-1)} onClick={(event) => go(at(event))}>
        {values.ticks.map((tick) => <Tick key={tick} y={y(values, 8, VALUES)(tick)} width={width} words={tickWords(tick)} />)}
        {lines.map((side) => <path key={side} class={`c-${side}`} d={pathOf(curve[side], x, y(values, 8, VALUES))} />)}
        {hasDifference && <>
          {differences.ticks.map((tick) => <Tick key={tick} y={y(differences, bottom + GAP, DIFFERENCES)(tick)} width={width} words={short(tick).replace(".0e", "e")} />)}
          <path class="c-allowed" d={pathOf(curve.allowed, x, y(differences, bottom + GAP, DIFFERENCES))} />
          <path class="c-difference" d={pathOf(curve.difference, x, y(differences, bottom + GAP, DIFFERENCES))} />
        </>}
        {marker(here, "c-here")}{marker(over, "c-over")}
        <text x={LEFT} y={height - 5}>{t("steps.step")} {curve.steps[0]}</text>
        {curve.steps.length > 1 && <text x={width - 8} y={height - 5} text-anchor="end">{curve.steps[curve.steps.length - 1]}</text>}
      </svg>
    </figure>
  );
}

function tickWords(value: number): string {
  const text = String(Number(value.toPrecision(7)));
  return text.length > 8 ? short(value).replace(".0e", "e") : text;
}

function Tick({ y, width, words }: { y: number; width: number; words: string }): JSX.Element {
  return <g><path class="c-line" d={`M${LEFT} ${Math.round(y) + 0.5}H${width - 8}`} /><text x={LEFT - 6} y={y + 3.5} text-anchor="end">{words}</text></g>;
}
