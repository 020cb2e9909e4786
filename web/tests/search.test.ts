import assert from "node:assert/strict";
import test from "node:test";
import { placeOf } from "../source/model/place.ts";
import { askedRows, EVERYTHING, Lines, namesHold } from "../source/model/search.ts";
import type { Question } from "../source/model/search.ts";
import { answer, TREE } from "./made_up.ts";

const found = (question: Partial<Question>, place = placeOf(TREE)): number[] => {
  const mask = askedRows(place, { ...EVERYTHING, ...question });
  assert.ok(mask);
  return [...mask].flatMap((is, row) => (is ? [row] : []));
};

test("nothing asked is everything", () => assert.equal(askedRows(placeOf(TREE), EVERYTHING), null));

test("words are found in any case and any order, all of them", () => {
  assert.deepEqual(found({ query: "LINEAR" }), [2, 5]);
  assert.deepEqual(found({ query: "1 linear" }), [5]);
  assert.deepEqual(found({ query: "linear nothing" }), []);
});

test("a call is found by the module around it, and a module by no word of its calls", () => {
  assert.deepEqual(found({ query: "layers.1 linear" }), [5]);
  assert.deepEqual(found({ query: "layers.1 __mul__" }), [4]);
  assert.deepEqual(found({ query: "layers.0 __mul__" }), []);
  assert.deepEqual(found({ query: "layers.1" }), [3]);
});

test("a word is not found across two names", () => {
  const place = placeOf(answer([["ab", -1, {}], ["cd", -1, {}]]));
  assert.deepEqual(found({ query: "bc" }, place), []);
  assert.deepEqual(found({ query: "b" }, place), [0]);
});

test("two names in a row are both found", () => {
  const place = placeOf(answer([["xx", -1, {}], ["xx", -1, {}], ["x", -1, {}]]));
  assert.deepEqual(found({ query: "x" }, place), [0, 1, 2]);
});

test("the reference's name is found, too", () => {
  assert.deepEqual(found({ query: "matmul" }, placeOf({ ...TREE, twins: { "2": "Functional.matmul.0.forward" } })), [2]);
});

test("letters that grow in lower case do not move what is found", () => {
  const place = placeOf(answer([["İİİ", -1, {}], ["target", -1, {}]]));
  assert.deepEqual(found({ query: "target" }, place), [1]);
});

test("filters are all of them, values within one are any", () => {
  assert.deepEqual(found({ status: (1 << 4) | (1 << 5) }), [4, 5]);
  assert.deepEqual(found({ kinds: 1 << 0 }), [0, 1, 3]);
  assert.deepEqual(found({ kinds: 1 << 0, status: 1 << 3 }), [3]);
  assert.deepEqual(found({ query: "linear", status: 1 << 4 }), [5]);
});

test("flags and micro-steps filter", () => {
  const place = placeOf(answer([["a", -1, { flags: 3, micro: 0 }], ["b", -1, { flags: 32, micro: 1 }]]));
  assert.deepEqual(found({ flags: 1 }, place), [0]);
  assert.deepEqual(found({ micro: 1 }, place), [1]);
});

test("a source line is found by its file and number, and by a part of its text", () => {
  const place = placeOf(TREE);
  const lines = new Lines(place, { lines: ["/w/model.py:57 in forward: x = self.act(x) * 1.5", "/w/model.py:5 in main: loss.backward()"], rows: [-1, -1, 0, -1, 0, 1, 1] });
  const rows = (text: string): number[] => [...lines.rows(text)].flatMap((is, row) => (is ? [row] : []));
  assert.deepEqual(rows("Model.py:57"), [2, 4]);
  assert.deepEqual(rows("model.py:5"), [5, 6]);
  assert.deepEqual(rows("self.act(x)  * 1.5"), [2, 4]);
  assert.deepEqual(rows("nowhere"), []);
  assert.equal(namesHold(place, "model.py:57"), false);
  assert.equal(namesHold(place, "linear"), true);
  const mask = askedRows(place, { ...EVERYTHING, query: "model.py:57", status: 1 << 5 }, lines);
  assert.deepEqual([...mask!].flatMap((is, row) => (is ? [row] : [])), [4]);
});
