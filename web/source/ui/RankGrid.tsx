// Ranks against layers: which rank went wrong first, and whether all of them did.

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { Overview, Rank, RanksAnswer } from "../data/protocol.ts";
import { problemOf } from "../state/problem.ts";
import type { Problem } from "../state/problem.ts";
import type { Session } from "../state/session.ts";
import { t } from "../texts/index.ts";
import { statusWords } from "./Icons.tsx";
import { gridKeys, Mark } from "./Mark.tsx";
import { Trouble } from "./Trouble.tsx";

/** As it is called; the only rank of a run has no name. */
const nameOf = (rank: Rank): string => (rank === null ? "–" : t("place.rank", { rank }));

export function RankGrid({ session, overview }: { session: Session; overview: Overview }): JSX.Element {
  const steps = [...new Set(overview.places.map((place) => place.step))];
  const [step, setStep] = useState<number | null>(session.head?.step ?? steps[0] ?? null);
  const [answer, setAnswer] = useState<RanksAnswer | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const [again, setAgain] = useState(0);
  useEffect(() => {
    let isCurrent = true;
    setAnswer(null);
    setProblem(null);
    session.source.ranks(step).then((found) => isCurrent && setAnswer(found), (error: unknown) => isCurrent
      && setProblem(problemOf(error)));
    return () => { isCurrent = false; };
  }, [step, again]);
  const go = (event: Event): void => {
    const data = (event.target as HTMLElement).closest<HTMLElement>("[data-place]")?.dataset;
    if (!data || !answer) return;
    void session.goLayer(Number(data["place"]), answer.layers[Number(data["row"])] ?? "");
  };
  return (
    <div class="grids" data-own-keys onClick={go} onKeyDown={gridKeys}>
      <div class="grid-head">
        {steps.length > 1 && (
          <label>{t("ranks.step")} <select value={String(step)} onChange={(event) => setStep(event.currentTarget.value === "null" ? null : Number(event.currentTarget.value))}>
            {steps.map((each) => <option key={String(each)} value={String(each)}>{String(each)}</option>)}</select></label>
        )}
        <p class="quiet">{t("ranks.legend")}</p>
      </div>
      {problem ? <Trouble problem={problem} small retry={() => setAgain(again + 1)} /> : !answer ? <p class="waiting" role="status">{t("loading")}</p>
        : answer.layers.length === 0 ? <p class="waiting">{t("ranks.none")}</p> : (
        <section class="grid">
          <table>
            <thead><tr><td />{answer.ranks.map((rank) => <th key={String(rank)} scope="col"><span>{nameOf(rank)}</span></th>)}</tr></thead>
            <tbody>{answer.layers.map((layer, row) => (
              <tr key={layer}><th scope="row">{layer}</th>{answer.ranks.map((rank, column) => {
                const status = answer.worst[column]?.[row] ?? 0;
                return <td key={String(rank)}>{status > 0 && <Mark status={status} row={row} place={answer.places[column] ?? -1} words={`${layer}, ${nameOf(rank)}: ${statusWords(status)}`} />}</td>;
              })}</tr>))}</tbody>
          </table>
        </section>
      )}
    </div>
  );
}
