import assert from "node:assert/strict";
import test from "node:test";
import type { Embedded, NodeAnswer, Overview, PlaceAnswer } from "../source/data/protocol.ts";
import { SingleFile } from "../source/data/source.ts";
import { EVERYTHING } from "../source/model/search.ts";
import { nameOf } from "../source/model/place.ts";
import { Session } from "../source/state/session.ts";
import { fromHash, NOTHING, toHash } from "../source/state/url.ts";
import type { Shown } from "../source/state/url.ts";
import { troubleWords } from "../source/ui/Trouble.tsx";
import { TREE } from "./made_up.ts";

test("what the address says is what was shown", () => {
  const shown: Shown = {
    place: 3, at: "Module.a b.ä/&=#.forward.0", side: 2, view: "layers", tab: "call",
    question: { query: "x & y", status: 48, kinds: 1, phases: 2, flags: 32, micro: 1 },
  };
  assert.deepEqual(fromHash(toHash(shown)), shown);
  assert.deepEqual(fromHash(toHash(NOTHING)), NOTHING);
});

test("nonsense in the address is the plain page", () => {
  assert.deepEqual(fromHash("#place=-4&view=moon&tab=&status=x&micro=NaN&side=q"), NOTHING);
  assert.deepEqual(fromHash(""), NOTHING);
});

const finding = (name: string, place: number) => ({ title: name, blocks: [], kind: "output", harmless: false, name, twin: null, step: 0, rank: 0, place, reason: "", source: [] });
const overview: Overview = {
  format: 1, product: "", kind: "pair", title: "", sides: [], can: { picture: false, match: false }, notes: [], curve: [], curve_complete: true,
  places: [{ step: 0, rank: 0, sides: 0, status: "agree" }, { step: 0, rank: 1, sides: 0, status: "diverged" }],
  verdict: { status: "diverged", headline: "", exit_code: 1, coverage: { complete: true, read: {}, not_read: [] }, notes: [], compared: [], findings: [finding("Tensor.__mul__.0.forward", 1), finding("Functional.linear.1.forward", 1)] },
};
const content: Embedded = {
  overview, places: { "0": TREE, "1": { ...TREE, first: 4, culprits: [{ row: 4, finding: 0 }, { row: 5, finding: 1 }] } },
  nodes: { "1": { "4": { name: "Tensor.__mul__.0.forward" } as NodeAnswer } }, pictures: {}, lines: {}, ranks: {},
};

async function opened(hash = ""): Promise<{ session: Session; hash: () => string }> {
  let now = hash;
  const session = new Session(new SingleFile(content), { read: () => now, write: (next) => { now = next; } });
  await session.start();
  await new Promise((resolve) => setTimeout(resolve, 0));
  return { session, hash: () => now };
}

test("the page opens at the place and the row of the first finding, which is on the screen", async () => {
  const { session } = await opened();
  assert.equal(session.shown.place, 1);
  assert.equal(session.selected, 4);
  assert.ok(session.rows.includes(4));
  assert.equal(session.shown.tab, "findings");
});

test("answers of another format are refused in one sentence", async () => {
  const other = { ...content, overview: { ...overview, format: overview.format + 1 } };
  const session = new Session(new SingleFile(other), { read: () => "", write: () => undefined });
  await session.start();
  assert.equal(session.overview, null);
  assert.equal(troubleWords(session.problem!).title, "The page and the server are of different versions");
});

test("a reload shows the same row", async () => {
  const first = await opened();
  first.session.select(2);
  const second = await opened(first.hash());
  assert.equal(second.session.selected, 2);
  assert.ok(second.session.rows.includes(2));
});

test("n and p go round the findings", async () => {
  const { session } = await opened();
  session.stepFinding(1);
  assert.equal(session.selected, 5);
  session.stepFinding(1);
  assert.equal(session.selected, 4);
  session.stepFinding(-1);
  assert.equal(session.selected, 5);
});

test("n passes a finding that has no row, and goes to one of another rank", async () => {
  const nowhere = { ...finding("", 1), name: null };
  const findings = [finding("Tensor.__mul__.0.forward", 1), nowhere, finding("Functional.linear.0.forward", 0)];
  const places = { "0": TREE, "1": { ...TREE, first: 4 } };
  const session = new Session(new SingleFile({ ...content, places, overview: { ...overview, verdict: { ...overview.verdict!, findings } } }),
    { read: () => "", write: () => undefined });
  await session.start();
  const step = async (): Promise<number> => {
    session.stepFinding(1);
    await new Promise((resolve) => setTimeout(resolve, 5));
    return session.finding;
  };
  assert.equal(await step(), 1);
  assert.equal(session.selected, 4);
  assert.equal(await step(), 2);
  assert.equal(session.shown.place, 0);
  assert.equal(session.selected, 2);
});

test("n from elsewhere comes back to the finding first", async () => {
  const { session } = await opened();
  session.select(2);
  session.stepFinding(1);
  assert.equal(session.finding, 0);
  assert.equal(session.selected, 4);
});

test("a finding about a call of the reference goes to the reference's row", async () => {
  const both = { ...TREE, names: TREE.names.map((name, row) => (row === 6 ? TREE.names[4]! : name)), sides: TREE.sides.map((side, row) => (row === 6 ? 2 : side)) };
  const findings = [finding("Functional.linear.0.forward", 1), { ...finding("", 1), name: null, twin: TREE.names[4]! }];
  const session = new Session(new SingleFile({ ...content, places: { "1": both }, overview: { ...overview, verdict: { ...overview.verdict!, findings } } }),
    { read: () => "", write: () => undefined });
  await session.start();
  await session.goFinding(1);
  assert.equal(session.selected, 6);
});

test("runs that agree as far as both go open where both are, and f leads nowhere", async () => {
  const alone = { ...finding("", 1), name: null, kind: "step_count" };
  const heads = [overview.places[0]!, { ...overview.places[1]!, sides: 2 as const, status: "agree" }].map((place) => ({ ...place, status: "agree" }));
  const session = new Session(new SingleFile({ ...content, places: { "0": { ...TREE, first: -1 }, "1": TREE }, overview: { ...overview, places: heads,
    verdict: { ...overview.verdict!, status: "agree", findings: [alone] } } }), { read: () => "", write: () => undefined });
  await session.start();
  assert.equal(session.shown.place, 0);
  assert.equal(session.hasFirst, false);
});

test("a jump out of a search ends it", async () => {
  const { session } = await opened();
  session.ask({ ...EVERYTHING, query: "cross_entropy" });
  assert.deepEqual([...session.rows], [0, 6]);
  session.select(2);
  assert.ok(session.rows.includes(2));
  assert.equal(session.shown.question.query, "");
});

test("what a single file does not hold is told, not awaited", async () => {
  const { session } = await opened();
  session.select(0);
  await new Promise((resolve) => setTimeout(resolve, 0));
  assert.equal(session.node, null);
  assert.equal(session.nodeProblem?.reason, "absent");
});

test("the worst path leads from a container to the worst in it", async () => {
  const { session } = await opened();
  session.openWorst(0);
  assert.equal(nameOf(session.place!, session.selected), "Functional.linear.1.forward");
});

test("another rank and back keeps what was open", async () => {
  const { session } = await opened();
  session.setAllOpen(true);
  await session.openPlace(0);
  assert.notEqual(session.rows.length, TREE.names.length);
  await session.openPlace(1);
  assert.equal(session.rows.length, TREE.names.length);
});

/** A source whose places come when the test says so. */
class Slow extends SingleFile {
  private readonly waiting: (() => void)[] = [];

  override place = (index: number): Promise<PlaceAnswer> => new Promise((resolve) => {
    this.waiting.push(() => resolve(content.places[index]!));
  });

  async answer(): Promise<void> {
    await new Promise((resolve) => setTimeout(resolve, 0));
    for (const give of this.waiting.splice(0)) give();
    await new Promise((resolve) => setTimeout(resolve, 0));
  }
}

test("keys that come faster than places are all counted", async () => {
  const findings = [finding("Tensor.__mul__.0.forward", 1), finding("Functional.linear.0.forward", 0), finding("Functional.linear.1.forward", 1)];
  const source = new Slow({ ...content, overview: { ...overview, verdict: { ...overview.verdict!, findings } } });
  const session = new Session(source, { read: () => "", write: () => undefined });
  const started = session.start();
  await source.answer();
  await started;
  session.stepFinding(1);
  session.stepFinding(1);
  await source.answer();
  assert.equal(session.finding, 2);
  assert.equal(session.shown.place, 1);
  assert.equal(nameOf(session.place!, session.selected), "Functional.linear.1.forward");
  session.stepFinding(-1);
  void session.goFirst();
  await source.answer();
  assert.equal(session.selected, 4);
  session.stepFinding(1);
  await source.answer();
  assert.equal(nameOf(session.place!, session.selected), "Functional.linear.0.forward");
});

test("f, then n, goes to the second finding and counts as a step to its card", async () => {
  const { session } = await opened();
  session.stepFinding(1);
  session.select(0);
  await session.goFirst();
  assert.equal(session.finding, 0);
  const before = session.cards;
  session.stepFinding(1);
  assert.deepEqual([session.finding, session.cards], [1, before + 1]);
});

test("a view that this recording does not have cannot be shown", async () => {
  const { session } = await opened();
  session.show("steps");
  assert.equal(session.shown.view, "tree");
  session.show("ranks");
  assert.equal(session.shown.view, "ranks");
});

test("where a step cannot be compared, the page opens there, not at a step that one side alone has", async () => {
  const alone = { ...finding("", 0), name: null };
  const places = [{ step: 0, rank: 0, sides: 1, status: "candidate_only" }, { step: 1, rank: 0, sides: 0, status: "incomparable" }] as Overview["places"];
  const session = new Session(new SingleFile({ ...content, overview: { ...overview, places, verdict: { ...overview.verdict!, status: "incomparable", findings: [alone] } } }),
    { read: () => "", write: () => undefined });
  await session.start();
  assert.equal(session.shown.place, 1);
});
