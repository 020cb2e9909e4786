// Where the answers come from: the server that opened the page, or the page itself when it is a single file.

import type { Embedded, LinesAnswer, MatchesAnswer, NodeAnswer, Overview, Picture, PlaceAnswer, RanksAnswer } from "./protocol.ts";

/** Why there is no answer. `gone`: no server; `absent`: this single file does not hold it; `format`: a server of another version; else the status of HTTP. */
export type Reason = "gone" | "absent" | "broken" | "format" | number;

export class NoAnswer extends Error {
  constructor(readonly reason: Reason, words: string) {
    super(words);
  }
}

export interface Source {
  readonly single: boolean;
  overview(): Promise<Overview>;
  place(index: number): Promise<PlaceAnswer>;
  node(index: number, row: number): Promise<NodeAnswer>;
  picture(index: number, row: number, slot: string): Promise<Picture>;
  ranks(step: number | null): Promise<RanksAnswer>;
  lines(index: number): Promise<LinesAnswer>;
  matches(index: number): Promise<MatchesAnswer>;
  match(index: number, candidate: string, reference: string | null, withChildren: boolean): Promise<MatchesAnswer>;
}

export class Server implements Source {
  readonly single = false;

  private async ask<T>(question: string, body?: unknown): Promise<T> {
    // The browser has a cookie from the first request, whose address had the token; no script can read it.
    const request: RequestInit = { credentials: "same-origin", cache: "no-store" };
    if (body !== undefined) {
      request.headers = { "Content-Type": "application/json" };
      request.method = "POST";
      request.body = JSON.stringify(body);
    }
    let answer: Response;
    try {
      answer = await fetch(`api/${question}`, request);
    } catch {
      throw new NoAnswer("gone", "");
    }
    let content: unknown;
    try {
      content = await answer.json();
    } catch {
      throw new NoAnswer(answer.ok ? "broken" : answer.status, "");
    }
    if (!answer.ok) throw new NoAnswer(answer.status, String((content as { error?: unknown }).error ?? ""));
    return content as T;
  }

  overview = (): Promise<Overview> => this.ask("overview");
  place = (index: number): Promise<PlaceAnswer> => this.ask(`place?index=${index}`);
  node = (index: number, row: number): Promise<NodeAnswer> => this.ask(`node?index=${index}&row=${row}`);
  picture = (index: number, row: number, slot: string): Promise<Picture> =>
    this.ask(`picture?index=${index}&row=${row}&slot=${encodeURIComponent(slot)}`);
  ranks = (step: number | null): Promise<RanksAnswer> => this.ask(step === null ? "ranks" : `ranks?step=${step}`);
  lines = (index: number): Promise<LinesAnswer> => this.ask(`lines?index=${index}`);
  matches = (index: number): Promise<MatchesAnswer> => this.ask(`matches?index=${index}`);
  match = (index: number, candidate: string, reference: string | null, withChildren: boolean): Promise<MatchesAnswer> =>
    this.ask("matches", { index, candidate, reference, with_children: withChildren });
}

export class SingleFile implements Source {
  readonly single = true;

  constructor(private readonly content: Embedded) {}

  private async take<T>(found: T | undefined): Promise<T> {
    if (found === undefined) throw new NoAnswer("absent", "");
    return found;
  }

  overview = (): Promise<Overview> => this.take(this.content.overview);
  place = (index: number): Promise<PlaceAnswer> => this.take(this.content.places[index]);
  node = (index: number, row: number): Promise<NodeAnswer> => this.take(this.content.nodes[index]?.[row]);
  picture = (index: number, row: number, slot: string): Promise<Picture> =>
    this.take(this.content.pictures[`${index}/${row}/${slot}`]);
  ranks = (step: number | null): Promise<RanksAnswer> => this.take(this.content.ranks[String(step)]);
  lines = (index: number): Promise<LinesAnswer> => this.take(this.content.lines[index]);
  matches = (): Promise<MatchesAnswer> => Promise.resolve({ pairs: {}, file: "" });
  match = (): Promise<MatchesAnswer> => Promise.reject(new NoAnswer("absent", ""));
}

/** The data inside the page, plain or as gzip in base64; null when there is none. */
export async function embedded(document: Document): Promise<Embedded | null> {
  const element = document.getElementById("msprobe-data");
  if (!element) return null;
  const text = element.textContent ?? "";
  element.textContent = ""; // megabytes that nobody needs twice
  if (element.getAttribute("type") === "application/json") return JSON.parse(text) as Embedded;
  const packed = Uint8Array.from(atob(text.trim()), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return (await new Response(stream).json()) as Embedded;
}
