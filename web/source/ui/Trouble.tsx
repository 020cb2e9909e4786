// When there is nothing to show: what happened and what to do, in words.

import type { JSX } from "preact";
import type { Problem } from "../state/session.ts";
import { t } from "../texts/index.ts";
import type { Key } from "../texts/index.ts";

const TITLES: Record<string, Key> = {
  gone: "trouble.gone", absent: "trouble.absent", broken: "trouble.broken", order: "trouble.order", format: "trouble.format",
  "400": "trouble.question", "403": "trouble.token", "404": "trouble.missing", "409": "trouble.changed", "500": "trouble.server",
};

const SPEAKING = new Set(["400", "403", "404", "409", "500", "order"]);

export function troubleWords(problem: Problem): { title: string; advice: string } {
  const key = TITLES[String(problem.reason)] ?? "trouble.server";
  return { title: t(key), advice: t(`${key}.do` as Key) };
}

export function Trouble({ problem, retry, small = false }: { problem: Problem; retry?: () => void; small?: boolean }): JSX.Element {
  const { title, advice } = troubleWords(problem);
  // What the server says tells what to do, too; that nobody answers the page knows by itself.
  const words = SPEAKING.has(String(problem.reason)) ? problem.words : "";
  return (
    <div class={small ? "trouble small" : "trouble"} role="alert">
      <h2>{title}</h2>
      {words && <p class="words">{words}</p>}
      {!words && <p>{advice}</p>}
      {retry && <button type="button" onClick={retry}>{t("retry")}</button>}
    </div>
  );
}
