import assert from "node:assert/strict";
import test from "node:test";
import { placeOf } from "../source/model/place.ts";
import { heightOf, keptOf, Opened, positionOf, scrollTo, TALLEST, visibleRows, windowOf } from "../source/model/rows.ts";
import { askedRows, EVERYTHING } from "../source/model/search.ts";
import { TREE } from "./made_up.ts";

const ROW = 24;

test("only what is open shows its children", () => {
  const place = placeOf(TREE);
  const opened = new Opened(place.size);
  assert.deepEqual([...visibleRows(place, opened, null)], [0]);
  opened.set(0, true, null);
  assert.deepEqual([...visibleRows(place, opened, null)], [0, 1, 3, 6]);
  opened.setAll(true);
  assert.equal(visibleRows(place, opened, null).length, place.size);
});

test("a search shows what was found below its containers, and closing one of them is kept", () => {
  const place = placeOf(TREE);
  const opened = new Opened(place.size);
  const kept = keptOf(place, askedRows(place, { ...EVERYTHING, query: "linear" })!);
  assert.equal(kept.count, 2);
  assert.deepEqual([...visibleRows(place, opened, kept)], [0, 1, 2, 3, 5]);
  opened.set(1, false, kept);
  assert.deepEqual([...visibleRows(place, opened, kept)], [0, 1, 3, 5]);
});

test("what lies inside of a found container can be opened", () => {
  const place = placeOf(TREE);
  const opened = new Opened(place.size);
  const kept = keptOf(place, askedRows(place, { ...EVERYTHING, query: "layers.1" })!);
  assert.deepEqual([...visibleRows(place, opened, kept)], [0, 3]);
  opened.set(3, true, kept);
  assert.deepEqual([...visibleRows(place, opened, kept)], [0, 3, 4, 5]);
});

test("a row is found by its place among the visible ones", () => {
  const rows = Int32Array.from([0, 3, 8, 9]);
  assert.equal(positionOf(rows, 8), 2);
  assert.equal(positionOf(rows, 4), 2);
});

test("the rows drawn cover the screen and little more", () => {
  for (const scroll of [0, 1, 500, 12345, 2_399_000]) {
    const shown = windowOf(100_000, ROW, 600, scroll);
    assert.ok(shown.to - shown.from <= 600 / ROW + 14);
    assert.ok(shown.from * ROW <= scroll && shown.to * ROW >= Math.min(scroll + 600, 2_400_000));
    assert.equal(shown.offset, shown.from * ROW);
  }
});

test("a million rows fit into what browsers can scroll, to the last row", () => {
  const height = heightOf(1_000_000, ROW);
  assert.equal(height, TALLEST);
  const end = windowOf(1_000_000, ROW, 600, height - 600);
  assert.equal(end.to, 1_000_000);
  // The last row ends where the screen does.
  assert.ok(Math.abs(end.offset + (end.to - end.from) * ROW - height) < 1);
});

test("a jump brings a row onto the screen, and a row on the screen does not move it", () => {
  for (const count of [1000, 1_000_000]) {
    for (const position of [0, 500, count - 1]) {
      const scroll = scrollTo(position, count, ROW, 600, 0);
      const shown = windowOf(count, ROW, 600, scroll, 0);
      assert.ok(shown.from <= position && position < shown.to, `${position} of ${count}`);
      assert.equal(scrollTo(position, count, ROW, 600, scroll), scroll);
    }
  }
});
