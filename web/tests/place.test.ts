import assert from "node:assert/strict";
import test from "node:test";
import type { PlaceAnswer } from "../source/data/protocol.ts";
import { countBelow, nameOf, OutOfOrder, placeOf, rowOf, worstOf, worstRow } from "../source/model/place.ts";
import { answer, TREE } from "./made_up.ts";

test("the worst status below and its counts reach every container", () => {
  const place = placeOf(TREE);
  const model = rowOf(place, "Module.model.GPT.forward.0");
  assert.equal(place.status[model], 1);
  assert.equal(place.worstBelow[model], 4);
  assert.equal(worstOf(place, model), 4);
  assert.equal(countBelow(place, model, 4), 1);
  assert.equal(countBelow(place, model, 3), 2);
  assert.equal(countBelow(place, model, 5), 1);
  assert.equal(place.outputDifferenceBelow[model], 0.5);
});

test("a leaf has nothing below", () => {
  const place = placeOf(TREE);
  const leaf = rowOf(place, "Functional.linear.0.forward");
  assert.equal(place.worstBelow[leaf], 0);
  assert.ok(Number.isNaN(place.outputDifferenceBelow[leaf]));
  assert.equal(place.ends[leaf], leaf + 1);
});

test("the worst row of a block is the first of the worst in it", () => {
  const place = placeOf(TREE);
  assert.equal(nameOf(place, worstRow(place, 0)), "Functional.linear.1.forward");
  assert.equal(worstRow(place, -1), worstRow(place, 0));
});

test("the worst of containers and calls that are alike is the innermost", () => {
  const place = placeOf(answer([["a", -1, { status: 4 }], ["b", 0, { status: 4 }], ["c", 1, { status: 4 }], ["d", 1, { status: 3 }], ["e", 0, { status: 4 }]]));
  assert.equal(worstRow(place, -1), 2);
  assert.equal(worstRow(place, 1), 2);
});

test("a row that one side lacks is worse than one explained by its inputs and better than an unexplained one", () => {
  const place = placeOf(answer([["a", -1, { status: 1 }], ["b", 0, { status: 3 }], ["c", 0, { status: 6 }], ["d", 0, { status: 5 }]]));
  assert.equal(place.worstBelow[0], 5);
});

test("in a single run NaN that begins is worse than NaN that goes on", () => {
  const place = placeOf(answer([["a", -1, {}], ["b", 0, { flags: 1 }], ["c", 0, { flags: 3 }]]));
  assert.equal(worstRow(place, -1), 2);
  assert.equal(place.flagsBelow[0], 3);
});

test("names are found, those of the other side too, and never half a name", () => {
  const place = placeOf({ ...TREE, twins: { "2": "Functional.matmul.7.forward" } });
  assert.equal(rowOf(place, "Functional.matmul.7.forward"), 2);
  assert.equal(rowOf(place, "linear.0"), -1);
  assert.equal(rowOf(place, "Module.model"), -1);
  for (let row = 0; row < place.size; row++) assert.equal(rowOf(place, nameOf(place, row)), row);
});

test("where both sides have a name of their own the side chooses", () => {
  const place = placeOf(answer([["x.forward", -1, { side: 1 }], ["x.forward", -1, { side: 2 }]]));
  assert.equal(rowOf(place, "x.forward"), 0);
  assert.equal(rowOf(place, "x.forward", 2), 1);
});

test("the reference's name leads to its pair, not to the candidate's other call of that name", () => {
  const place = placeOf({ ...answer([["all_reduce.9", -1, {}], ["all_reduce.10", -1, {}], ["all_reduce.12", -1, { side: 1 }]]), twins: { "0": "all_reduce.11", "1": "all_reduce.9" } });
  assert.equal(rowOf(place, "all_reduce.9"), 0);
  assert.equal(rowOf(place, "all_reduce.9", 2), 1);
  assert.equal(rowOf(place, "all_reduce.12", 2), -1);
});

test("a container comes after what it holds in the sequence, whatever the order of the rows", () => {
  const place = placeOf(answer([["m", -1, { order: 0 }], ["b", 0, { order: 2 }], ["a", 0, { order: 0 }], ["after", -1, { order: 3 }]]));
  assert.deepEqual([...place.sequence].map((row) => nameOf(place, row)), ["a", "b", "m", "after"]);
});

test("orders far above the number of rows are sorted, too", () => {
  const place = placeOf(answer([["late", -1, { order: 2_000_000_000 }], ["early", -1, { order: 5 }]]));
  assert.deepEqual([...place.sequence], [1, 0]);
});

test("an answer whose columns do not fit together is refused in words", () => {
  assert.throws(() => placeOf({ ...TREE, status: [1] }), (error: Error) => error instanceof OutOfOrder && /status has 1 entries/.test(error.message));
  const loop: PlaceAnswer = answer([["a", -1, {}], ["b", 5, {}]]);
  assert.throws(() => placeOf(loop), (error: Error) => error instanceof OutOfOrder && /row 1/.test(error.message));
});

test("a line break in a name does not shift the rows after it", () => {
  const place = placeOf(answer([["a\nb", -1, {}], ["c", -1, {}]]));
  assert.equal(nameOf(place, 0), "a b");
  assert.equal(nameOf(place, 1), "c");
});

test("an empty place is a place", () => {
  const place = placeOf(answer([]));
  assert.equal(place.size, 0);
  assert.equal(place.sequence.length, 0);
});
