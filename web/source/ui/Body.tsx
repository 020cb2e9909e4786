// The middle of the page: a view of the whole on the left, what is selected on the right, a border between that can be moved.

import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import type { Overview } from "../data/protocol.ts";
import { viewsOf } from "../state/url.ts";
import type { View } from "../state/url.ts";
import { t } from "../texts/index.ts";
import type { Key } from "../texts/index.ts";
import type { Shared } from "./App.tsx";
import { gridsOnce, LayerGrid } from "./LayerGrid.tsx";
import { tabKeys } from "./keys.ts";
import { Pane } from "./Pane.tsx";
import { RankGrid } from "./RankGrid.tsx";
import { StepCurve } from "./StepCurve.tsx";
import { Toolbar } from "./Toolbar.tsx";
import { Tree } from "./Tree.tsx";
import { Trouble } from "./Trouble.tsx";

export function Body({ session, preferences, prefer, overview }: Shared & { overview: Overview }): JSX.Element {
  const body = useRef<HTMLElement>(null);
  const views = viewsOf(overview);
  // An address may ask for a view that this recording does not have.
  const view = views.includes(session.shown.view) ? session.shown.view : "tree";
  const { place } = session;
  useEffect(() => {
    if (!place) return undefined;
    // The grid of a large place takes longer than a click should: it is made while nobody waits for it.
    const prepare = window.requestIdleCallback ?? ((make: () => void) => window.setTimeout(make, 500));
    const waiting = prepare(() => gridsOnce(place, "norm"), { timeout: 5000 });
    return () => (window.cancelIdleCallback ?? window.clearTimeout)(waiting);
  }, [place]);
  const drag = (event: PointerEvent): void => {
    const area = body.current!.getBoundingClientRect();
    const move = (moved: PointerEvent): void => prefer({ details: clamp(area.right - moved.clientX, area.width) });
    const stop = (): void => {
      window.removeEventListener("pointermove", move);
      window.removeEventListener("pointerup", stop);
    };
    window.addEventListener("pointermove", move);
    window.addEventListener("pointerup", stop);
    event.preventDefault();
  };
  const nudge = (event: KeyboardEvent): void => {
    const by = event.key === "ArrowLeft" ? 24 : event.key === "ArrowRight" ? -24 : 0;
    if (!by) return;
    const area = body.current!.getBoundingClientRect();
    const now = body.current!.querySelector(".pane")!.getBoundingClientRect().width;
    prefer({ details: clamp(now + by, area.width) });
    event.preventDefault();
  };
  // A width that was chosen in a wide window leaves the table its room in a narrow one.
  const columns = `minmax(0, 1fr) 5px min(${preferences.details}px, 100% - 325px)`;
  const share = body.current ? Math.round((100 * (body.current.querySelector(".pane")?.clientWidth ?? 0)) / Math.max(1, body.current.clientWidth)) : 36;
  return (
    <main ref={body} class="body" style={preferences.details ? { gridTemplateColumns: columns } : {}}>
      <section class="whole" aria-label={t("views")}>
        <div class="bar">
          <div class="tabs" role="tablist" aria-label={t("views")} onKeyDown={tabKeys}>
            {views.map((name) => (
              <button key={name} type="button" role="tab" aria-selected={view === name} onClick={() => session.show(name)}>{t(`view.${name}` as Key)}</button>
            ))}
          </div>
          {view === "tree" && <Toolbar session={session} />}
        </div>
        <View_ session={session} overview={overview} view={view} />
      </section>
      <div class="divider" role="separator" aria-orientation="vertical" aria-label={t("divider")} title={t("divider.long")} aria-valuemin={0} aria-valuemax={100} aria-valuenow={share} tabIndex={0} data-own-keys
        onPointerDown={drag} onKeyDown={nudge} onDblClick={() => prefer({ details: 0 })} />
      <Pane session={session} overview={overview} />
    </main>
  );
}

function clamp(width: number, area: number): number {
  return Math.round(Math.max(280, Math.min(area - 320, width)));
}

function View_({ session, overview, view }: { session: Shared["session"]; overview: Overview; view: View }): JSX.Element {
  if (view === "steps") return <StepCurve session={session} overview={overview} />;
  if (view === "ranks") return <RankGrid session={session} overview={overview} />;
  if (session.placeProblem) {
    return <Trouble problem={session.placeProblem} retry={() => void session.openPlace(session.shown.place ?? 0, { again: true, fresh: false })} />;
  }
  if (!overview.places.length) return <p class="waiting">{t("empty.places")}</p>;
  if (!session.place) return <p class="waiting" role="status">{t("loading")}</p>;
  if (!session.place.size) return <p class="waiting">{t("empty.place")}</p>;
  return view === "layers" ? <LayerGrid session={session} place={session.place} /> : <Tree session={session} place={session.place} />;
}
