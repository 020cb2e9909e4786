// All that the page knows and shows, and what can be done to it. The components only draw this.

import { FORMAT } from "../data/protocol.ts";
import type { NodeAnswer, Overview, PlaceHead } from "../data/protocol.ts";
import { NoAnswer } from "../data/source.ts";
import type { Source } from "../data/source.ts";
import { parseName } from "../model/names.ts";
import { nameOf, placeOf, rowOf, SEVERITY, worstRow } from "../model/place.ts";
import type { Place } from "../model/place.ts";
import { keptOf, Opened, openTop, visibleRows } from "../model/rows.ts";
import type { Kept } from "../model/rows.ts";
import { askedRows, EVERYTHING, Lines, namesHold } from "../model/search.ts";
import type { Question } from "../model/search.ts";
import { fromHash, NOTHING, toHash, viewsOf } from "./url.ts";
import { problemOf } from "./problem.ts";
import type { Problem } from "./problem.ts";
import type { Shown, Tab, View } from "./url.ts";

export type { Problem } from "./problem.ts";

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
  /** Counts steps to a finding: its card has to be on the screen. */
  cards = 0;
  /** Source lines of the calls of this place, read when a search needs them; what it found was found in them. */
  lines: Lines | null = null;
  /** A row that waits for its partner to be chosen. */
  matching: number | null = null;
  matched: Record<string, string> = {};
  /** Where pairs made by hand are kept. */
  matchFile = "";
  notice: string | null = null;
  /** The candidate's name of the pair that the notice is about, which can be undone. */
  noticePair: string | null = null;
  helpOpen = false;
  /** Counts selections that the table has to scroll to. */
  reveals = 0;
  private asked = 0;
  /** The last place that was asked for, on its way or there. */
  private opening: Promise<void> = Promise.resolve();
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
      this.overview = await this.readOverview();
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

  private async readOverview(): Promise<Overview> {
    const overview = await this.source.overview();
    if (overview.format !== FORMAT) throw new NoAnswer("format", "");
    return overview;
  }

  /** Steps that the server is still reading when the page opens come later. */
  private async completeCurve(): Promise<void> {
    while (this.overview?.curve_complete === false) {
      await new Promise((resolve) => setTimeout(resolve, 1000));
      try {
        const { curve, curve_complete } = await this.readOverview();
        this.overview = { ...this.overview, curve, curve_complete };
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

  /** True while there is a row that the first finding leads to, here or in another place. */
  get hasFirst(): boolean {
    const named = this.overview?.verdict?.findings.some((finding) => finding.place !== null && (finding.name !== null || finding.twin !== null));
    return Boolean(named) || (this.place !== null && this.place.first >= 0);
  }

  /** The place of the first finding about a call, else the first that diverged, that cannot be compared, that a finding is about
   * and both sides have: of steps of one side alone there is nothing to see but that. */
  private firstPlace(): number | null {
    const overview = this.overview!;
    const placed = overview.verdict?.findings.filter((finding) => finding.place !== null) ?? [];
    const named = placed.find((finding) => finding.name !== null || finding.twin !== null)?.place;
    if (named !== undefined && named !== null) return named;
    const worst = ["diverged", "incomparable"].map((status) => overview.places.findIndex((place) => place.status === status)).find((index) => index >= 0);
    const both = overview.places.findIndex((place) => place.sides === 0);
    return worst ?? placed.find((finding) => overview.places[finding.place!]?.sides === 0)?.place ?? (both >= 0 ? both : placed[0]?.place ?? null);
  }

  openPlace(index: number, how: { fresh?: boolean; name?: string | null; side?: number; again?: boolean } = {}): Promise<void> {
    this.opening = this.readPlace(index, how);
    return this.opening;
  }

  /** Wait until the place that was asked for last is there, or why it is not. */
  private async settled(): Promise<void> {
    for (let last: Promise<void> | null = null; last !== this.opening;) {
      last = this.opening;
      await last;
    }
  }

  private async readPlace(index: number, { fresh = true, name = null as string | null, side = 0, again = false }): Promise<void> {
    const ticket = ++this.asked;
    const other = index !== this.shown.place;
    this.shown = { ...this.shown, place: index, ...(fresh && other ? { at: null, side: 0 } : {}) };
    const known = again ? undefined : this.recent.get(index);
    let place = known?.place;
    this.lines = null;
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
      const row = rowOf(place, name, side);
      if (row >= 0) this.select(row, { tab: null });
      else this.changed();
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
      const { pairs, file } = await this.source.matches(index);
      if (index !== this.shown.place) return;
      this.matched = pairs;
      this.matchFile = file;
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
    const needsLines = Boolean(question.query.trim()) && !namesHold(place, question.query);
    if (needsLines && this.lines?.place !== place) void this.readLines(place);
    const mask = askedRows(place, question, needsLines && this.lines?.place === place ? this.lines : null);
    this.kept = mask && keptOf(place, mask);
    this.opened.forget();
    this.rows = visibleRows(place, this.opened, this.kept);
    this.write(push);
    this.changed();
  }

  /** True while the rows that are shown were found by their source lines, not by their names. */
  get isFoundByLine(): boolean {
    const { place } = this;
    return Boolean(place && this.kept?.count && this.lines?.place === place && this.shown.question.query.trim() && !namesHold(place, this.shown.question.query));
  }

  private async readLines(place: Place): Promise<void> {
    // Asked for once; while it is on its way the names alone are searched.
    const index = this.shown.place!;
    this.lines = new Lines(place, { lines: [], rows: [] });
    try {
      const answer = await this.source.lines(index);
      if (this.place !== place) return;
      this.lines = new Lines(place, answer);
      if (this.shown.question.query.trim()) this.ask(this.shown.question, false);
    } catch {
      // Without source lines the search goes by names; a server that is gone is told at the next question.
    }
  }

  show(view: View): void {
    if (this.overview && !viewsOf(this.overview).includes(view)) return;
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
    else if (!this.place) await this.settled();
    // Another key may have led elsewhere meanwhile.
    if (!this.place || this.place.first < 0 || (index !== null && index !== this.shown.place)) return;
    this.finding = this.place.culprits.find(({ row }) => row === this.place!.first)?.finding ?? this.finding;
    this.select(this.place.first);
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
    const wanted = (index + findings.length) % findings.length;
    const finding = findings[wanted];
    this.finding = wanted;
    this.cards++;
    this.shown = { ...this.shown, tab: "findings" };
    if (finding.place !== null && finding.place !== this.shown.place) await this.openPlace(finding.place);
    else if (!this.place) await this.settled();
    if (wanted !== this.finding || (finding.place !== null && finding.place !== this.shown.place)) return;
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
    // While a place is on its way, its finding counts as reached: each press is a step.
    const isAt = !this.place || this.selected === this.rowOfFinding(this.finding)
      || (this.wentTo?.finding === this.finding && this.wentTo.row === this.selected);
    void this.goFinding(this.finding + (isAt || by < 0 ? by : 0));
  }

  startMatching(row: number | null): void {
    this.matching = row;
    this.notice = this.noticePair = null;
    if (row !== null) this.shown = { ...this.shown, tab: "call" };
    this.changed();
  }

  /** Keep that two rows belong together (`reference` null: no more), then show the place anew. */
  async match(candidate: string, reference: string | null, withChildren: boolean): Promise<void> {
    const index = this.shown.place!;
    try {
      const answer = await this.source.match(index, candidate, reference, withChildren);
      this.matched = answer.pairs;
      this.matchFile = answer.file;
      this.matching = null;
      this.shown = { ...this.shown, at: candidate, side: 0, tab: "call" };
      this.notice = answer.file;
      this.noticePair = reference === null ? null : candidate;
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
