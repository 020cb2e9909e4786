// All that the page knows and shows, and what can be done to it. The components only draw this.

import type { NodeAnswer, Overview, PlaceHead } from "../data/protocol.ts";
import { NoAnswer } from "../data/source.ts";
import type { Reason, Source } from "../data/source.ts";
import { parseName } from "../model/names.ts";
import { nameOf, OutOfOrder, placeOf, rowOf, SEVERITY, worstRow } from "../model/place.ts";
import type { Place } from "../model/place.ts";
import { keptOf, Opened, visibleRows } from "../model/rows.ts";
import type { Kept } from "../model/rows.ts";
import { askedRows, EVERYTHING } from "../model/search.ts";
import type { Question } from "../model/search.ts";
import { fromHash, NOTHING, toHash } from "./url.ts";
import type { Shown, Tab, View } from "./url.ts";

export interface Problem {
  readonly reason: Reason | "order";
  readonly words: string;
}

/** Where the address of the page is kept; a stand-in in tests. */
export interface Address {
  read(): string;
  write(hash: string, push: boolean): void;
}

export class Session {
  overview: Overview | null = null;
  place: Place | null = null;
  shown: Shown = NOTHING;
  selected = -1;
  rows: Int32Array = new Int32Array(0);
  kept: Kept | null = null;
  opened = new Opened(0);
  node: NodeAnswer | null = null;
  nodeProblem: Problem | null = null;
  /** Why nothing can be shown at all, or why this place cannot. */
  problem: Problem | null = null;
  placeProblem: Problem | null = null;
  /** The finding that n and p stepped to last. */
  finding = 0;
  /** A row that waits for its partner to be chosen. */
  matching: number | null = null;
  matched: Record<string, string> = {};
  notice: string | null = null;
  helpOpen = false;
  /** Counts selections that the table has to scroll to. */
  reveals = 0;
  private asked = 0;
  /** Where the last step through the findings ended: some findings have no row of their own. */
  private wentTo: { finding: number; row: number } | null = null;
  private recent = new Map<number, { place: Place; opened: Opened }>();
  private listeners = new Set<() => void>();

  constructor(readonly source: Source, private readonly address: Address) {}

  subscribe(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  changed(): void {
    for (const listener of this.listeners) listener();
  }

  async start(): Promise<void> {
    this.problem = null;
    try {
      this.overview = await this.source.overview();
    } catch (error) {
      this.problem = problemOf(error);
      this.changed();
      return;
    }
    this.shown = fromHash(this.address.read());
    const wanted = this.shown.place;
    const count = this.overview.places.length;
    const index = wanted !== null && wanted < count ? wanted : (this.firstPlace() ?? 0);
    this.changed();
    if (count) await this.openPlace(index, { fresh: this.shown.at === null });
    void this.completeCurve();
  }

  /** Steps that the server is still reading when the page opens come later. */
  private async completeCurve(): Promise<void> {
    while (this.overview?.curve_complete === false) {
      await new Promise((resolve) => setTimeout(resolve, 1000));
      try {
        const { curve, curve_complete } = await this.source.overview();
        this.overview = { ...this.overview, curve, curve_complete: curve_complete ?? true };
      } catch {
        return;
      }
      this.changed();
    }
  }

  /** The address was changed by hand, or by the back button. */
  async follow(): Promise<void> {
    const next = fromHash(this.address.read());
    const place = next.place ?? this.shown.place ?? 0;
    const same = place === this.shown.place;
    this.shown = { ...next, place };
    if (!same) return this.openPlace(place, { fresh: false });
    this.ask(next.question, false);
    this.restoreSelection();
    return undefined;
  }

  get head(): PlaceHead | null {
    return this.overview?.places[this.shown.place ?? -1] ?? null;
  }

  get single(): boolean {
    return this.overview?.kind === "single";
  }

  /** The place of the first finding, else the first that diverged. */
  private firstPlace(): number | null {
    const overview = this.overview!;
    const named = overview.verdict?.findings.find((finding) => finding.place !== null)?.place;
    if (named !== undefined && named !== null) return named;
    const worst = overview.places.findIndex((place) => place.status === "diverged");
    return worst >= 0 ? worst : null;
  }

  async openPlace(index: number, { fresh = true, name = null as string | null, again = false } = {}): Promise<void> {
    const ticket = ++this.asked;
    const other = index !== this.shown.place;
    this.shown = { ...this.shown, place: index, ...(fresh && other ? { at: null, side: 0 } : {}) };
    const known = again ? undefined : this.recent.get(index);
    let place = known?.place;
    if (!place) {
      this.place = null;
      this.placeProblem = null;
      this.node = null;
      this.selected = -1;
      this.changed();
      try {
        place = placeOf(await this.source.place(index));
      } catch (error) {
        if (ticket !== this.asked) return;
        this.placeProblem = problemOf(error);
        this.changed();
        return;
      }
      if (ticket !== this.asked) return;
    }
    this.place = place;
    this.placeProblem = null;
    this.node = null;
    this.selected = -1;
    this.opened = known?.opened ?? new Opened(place.size);
    if (!known) openTop(place, this.opened);
    this.recent.delete(index);
    this.recent.set(index, { place, opened: this.opened });
    // Going back and forth between two ranks asks nothing; more would hold too much memory.
    while (this.recent.size > 2) this.recent.delete(this.recent.keys().next().value!);
    this.ask(this.shown.question, false);
    if (name !== null) {
      const row = rowOf(place, name);
      if (row >= 0) this.select(row, { tab: null });
    } else if (this.shown.at === null && place.first >= 0) this.select(place.first, { push: false, tab: null });
    else this.restoreSelection();
    void this.readMatches(index);
  }

  private restoreSelection(): void {
    if (!this.place || this.shown.at === null) return this.changed();
    const row = rowOf(this.place, this.shown.at, this.shown.side);
    // A search that leaves the row out stays: a link shows what was seen.
    const reveal = !this.kept || this.isKept(row);
    if (row >= 0 && row !== this.selected) this.select(row, { push: false, tab: null, reveal });
    else this.changed();
    return undefined;
  }

  private isKept(row: number): boolean {
    return !this.kept || Boolean(this.kept.asked[row] || this.kept.above[row] || this.kept.inside[row]);
  }

  select(row: number, { push = true, tab = "call" as Tab | null, reveal = true } = {}): void {
    const place = this.place;
    if (!place || row < 0 || row >= place.size) return;
    this.selected = row;
    const side = place.sides[row] === 2 ? 2 : 0;
    this.shown = { ...this.shown, at: nameOf(place, row), side, tab: tab ?? this.shown.tab };
    if (reveal) this.reveal(row);
    this.write(push);
    this.changed();
    void this.readNode(row);
  }

  private reveal(row: number): void {
    const place = this.place!;
    if (!this.isKept(row)) this.ask(EVERYTHING, false);
    let changed = false;
    for (let up = place.parents[row]; up >= 0; up = place.parents[up]) {
      if (!this.opened.isOpen(up, this.kept)) {
        this.opened.set(up, true, this.kept);
        changed = true;
      }
    }
    if (changed) this.rows = visibleRows(place, this.opened, this.kept);
    this.reveals++;
  }

  private async readNode(row: number): Promise<void> {
    const index = this.shown.place!;
    const isStill = (): boolean => this.selected === row && this.shown.place === index;
    try {
      const node = await this.source.node(index, row);
      if (!isStill()) return;
      this.node = node;
      this.nodeProblem = null;
    } catch (error) {
      if (!isStill()) return;
      this.node = null;
      this.nodeProblem = problemOf(error);
    }
    this.changed();
  }

  private async readMatches(index: number): Promise<void> {
    if (!this.overview?.can.match) return;
    try {
      this.matched = (await this.source.matches(index)).pairs;
      this.changed();
    } catch {
      // The page is whole without them; a server that is gone is told at the next question.
    }
  }

  toggle(row: number, open = !this.opened.isOpen(row, this.kept)): void {
    if (!this.place) return;
    this.opened.set(row, open, this.kept);
    this.rows = visibleRows(this.place, this.opened, this.kept);
    this.changed();
  }

  setAllOpen(open: boolean): void {
    if (!this.place) return;
    this.opened.setAll(open);
    if (this.selected >= 0) this.reveal(this.selected);
    this.rows = visibleRows(this.place, this.opened, this.kept);
    this.changed();
  }

  /** Open the way from a row, or from the top, to the worst below it. */
  openWorst(row = this.selected): void {
    const place = this.place;
    if (!place || !place.size) return;
    if (row >= 0 && place.ends[row] > row + 1) return this.select(worstRow(place, row));
    return this.select(worstRow(place, -1));
  }

  ask(question: Question, push = true): void {
    const place = this.place;
    this.shown = { ...this.shown, question };
    if (!place) return;
    const mask = askedRows(place, question);
    this.kept = mask && keptOf(place, mask);
    this.opened.forget();
    this.rows = visibleRows(place, this.opened, this.kept);
    this.write(push);
    this.changed();
  }

  show(view: View): void {
    this.shown = { ...this.shown, view };
    this.write(true);
    this.changed();
  }

  showTab(tab: Tab): void {
    this.shown = { ...this.shown, tab };
    this.write(false);
    this.changed();
  }

  /** The first divergence: in the place of the first finding, or in this one where no finding has a place. */
  async goFirst(): Promise<void> {
    const index = this.overview ? this.firstPlace() : null;
    if (index !== null && index !== this.shown.place) await this.openPlace(index);
    if (this.place && this.place.first >= 0) this.select(this.place.first);
    return undefined;
  }

  /** The worst row of a layer in another place. */
  async goLayer(index: number, layer: string): Promise<void> {
    if (index < 0) return;
    this.shown = { ...this.shown, view: "tree" };
    if (index !== this.shown.place || !this.place) await this.openPlace(index, { fresh: true });
    const place = this.place;
    if (!place || index !== this.shown.place) return;
    let best = -1;
    for (let row = 0; row < place.size; row++) {
      if (place.kinds[row] !== 0 || parseName(nameOf(place, row)).path !== layer) continue;
      const worst = worstRow(place, row);
      if (best < 0 || SEVERITY[place.status[worst]] > SEVERITY[place.status[best]]) best = worst;
    }
    if (best >= 0) this.select(best);
    else this.changed();
  }

  async goFinding(index: number): Promise<void> {
    const findings = this.overview?.verdict?.findings ?? [];
    if (!findings.length) return;
    this.finding = (index + findings.length) % findings.length;
    const finding = findings[this.finding];
    this.shown = { ...this.shown, tab: "findings" };
    if (finding.place !== null && finding.place !== this.shown.place) await this.openPlace(finding.place);
    const row = this.rowOfFinding(this.finding);
    if (row >= 0) this.select(row, { tab: "findings" });
    else this.changed();
    this.wentTo = { finding: this.finding, row: this.selected };
  }

  /** The row that a finding is about in this place, -1 where it is about none. */
  private rowOfFinding(index: number): number {
    const { place } = this;
    const finding = this.overview?.verdict?.findings[index];
    if (!place || !finding || (finding.place !== null && finding.place !== this.shown.place)) return -1;
    const culprit = place.culprits.find((entry) => entry.finding === index);
    if (culprit) return culprit.row;
    if (finding.name !== null) return rowOf(place, finding.name);
    return finding.twin !== null ? rowOf(place, finding.twin, 2) : -1;
  }

  /** To the next finding, or back to this one from elsewhere. */
  stepFinding(by: number): void {
    const isAt = this.selected === this.rowOfFinding(this.finding)
      || (this.wentTo?.finding === this.finding && this.wentTo.row === this.selected);
    void this.goFinding(this.finding + (isAt || by < 0 ? by : 0));
  }

  startMatching(row: number | null): void {
    this.matching = row;
    this.notice = null;
    if (row !== null) this.shown = { ...this.shown, tab: "call" };
    this.changed();
  }

  /** Keep that two rows belong together (`reference` null: no more), then show the place anew. */
  async match(candidate: string, reference: string | null, withChildren: boolean): Promise<void> {
    const index = this.shown.place!;
    try {
      const answer = await this.source.match(index, candidate, reference, withChildren);
      this.matched = answer.pairs;
      this.matching = null;
      this.shown = { ...this.shown, at: candidate, side: 0 };
      this.notice = answer.file;
      await this.openPlace(index, { again: true, fresh: false });
    } catch (error) {
      this.nodeProblem = problemOf(error);
      this.changed();
    }
  }

  private write(push: boolean): void {
    this.address.write(toHash(this.shown), push);
  }
}

function problemOf(error: unknown): Problem {
  if (error instanceof NoAnswer) return { reason: error.reason, words: error.message };
  if (error instanceof OutOfOrder) return { reason: "order", words: error.message };
  return { reason: "broken", words: String(error) };
}

/** The first look: a few rows at the top are opened as long as there is only one way down. */
function openTop(place: Place, opened: Opened): void {
  let count = 0;
  for (let row = 0; row < place.size; row = place.ends[row]) count++;
  if (count > 6) return;
  for (let row = 0; row < place.size; row = place.ends[row]) {
    let at = row;
    while (place.ends[at] > at + 1) {
      opened.set(at, true, null);
      if (place.ends[at + 1] !== place.ends[at]) break;
      at += 1;
    }
  }
}
