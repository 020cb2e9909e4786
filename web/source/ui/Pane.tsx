// What is selected, and the findings: the right side of the page.

import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import type { Overview } from "../data/protocol.ts";
import type { Session } from "../state/session.ts";
import { t } from "../texts/index.ts";
import { Details } from "./Details.tsx";
import { Findings } from "./Findings.tsx";
import { tabKeys } from "./keys.ts";

export function Pane({ session, overview }: { session: Session; overview: Overview }): JSX.Element {
  const tab = overview.verdict ? session.shown.tab : "call";
  const content = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (tab === "call" && content.current) content.current.scrollTop = 0;
  }, [tab, session.selected, session.place]);
  const count = overview.verdict?.findings.length ?? 0;
  return (
    <aside class="pane" aria-label={t("pane")}>
      <div class="bar">
        <div class="tabs" role="tablist" aria-label={t("pane")} onKeyDown={tabKeys}>
          <button type="button" role="tab" aria-selected={tab === "call"} onClick={() => session.showTab("call")}>{t("tab.call")}</button>
          {overview.verdict && <button type="button" role="tab" aria-selected={tab === "findings"} onClick={() => session.showTab("findings")}>
            {t("findings")}{count > 0 && <b class="badge">{count}</b>}</button>}
        </div>
      </div>
      <div class="content" role="tabpanel" aria-label={t(tab === "findings" ? "findings" : "tab.call")} tabIndex={0} data-own-keys ref={content}>
        {tab === "findings" ? <Findings session={session} overview={overview} /> : <Details session={session} overview={overview} />}
      </div>
    </aside>
  );
}
