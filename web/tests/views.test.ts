import assert from "node:assert/strict";
import test from "node:test";
import { axisOf, brokenOf, pathOf, pointsOf, stepAt, stepShare } from "../source/model/curve.ts";
import { long, short, times, timesOf } from "../source/model/figures.ts";
import { decades, heatOf, strip } from "../source/model/heat.ts";
import { cellKey, fold, grids } from "../source/model/layers.ts";
import { labelOf, modulePathOf, parseName } from "../source/model/names.ts";
import { placeOf } from "../source/model/place.ts";
import { tableText } from "../source/model/tsv.ts";
import { said, setLanguage } from "../source/texts/index.ts";
import type { NodeAnswer, TensorSide } from "../source/data/protocol.ts";
import { answer, TREE } from "./made_up.ts";

test("a column of the strip shows the worst of what falls into it, and a click goes there", () => {
  const rows = Array.from({ length: 1000 }, (_, row) => [`c.${row}`, -1, { status: row === 500 ? 4 : 3, left: row === 501 ? 10 : 1e-3 }] as [string, number, object]);
  const place = placeOf(answer(rows));
  const heat = heatOf(place, strip(place), 100, "outputDifference");
  assert.equal(heat.status[50], 4);
  assert.equal(heat.rows[50], 500);
  assert.equal(heat.values[50], 10);
  assert.equal(heat.status[49], 3);
});

test("where nothing was recorded the strip shows no difference", () => {
  const place = placeOf(answer([["a", -1, { status: 0, left: 0 }], ["b", -1, { status: 1, left: 0 }]]));
  const heat = heatOf(place, strip(place), 10, "outputDifference");
  assert.ok(Number.isNaN(heat.values[0]));
  assert.equal(heat.values[9], 0);
});

test("few rows fill all columns", () => {
  const place = placeOf(TREE);
  const heat = heatOf(place, strip(place), 300, "outputDifference");
  assert.ok(heat.rows.every((row) => row >= 0));
  assert.equal(heat.segments.length, 1);
  assert.equal(heat.segments[0]!.to, 300);
});

test("passes and micro-steps are segments of the strip", () => {
  const place = placeOf(answer([["a", -1, { phase: 0 }], ["b", -1, { phase: 1 }], ["c", -1, { phase: 0, micro: 1 }], ["d", -1, { phase: 2 }]]));
  const { segments } = heatOf(place, strip(place), 40, "outputDifference");
  assert.deepEqual(segments.map(({ phase, micro }) => [phase, micro]), [[0, 0], [1, 0], [0, 1], [2, 0]]);
  assert.deepEqual(segments.map(({ from }) => from), [0, 10, 20, 30]);
});

test("the axis holds what there is, infinite differences aside", () => {
  assert.deepEqual(decades(Float32Array.from([1e-4, Infinity, NaN]), "outputDifference"), [-6, 0]);
  assert.deepEqual(decades(new Float32Array(0), "outputDifference"), [-8, 0]);
});

test("names are read as they are recorded", () => {
  const module = parseName("Module.layers.0.attn.Attention.forward.1");
  assert.deepEqual([module.path, module.className, module.number, module.isModule], ["layers.0.attn", "Attention", "1", true]);
  const call = parseName("Functional.linear.5.backward");
  assert.deepEqual([call.prefix, call.path, call.number, call.isModule], ["Functional", "linear", "5", false]);
  assert.equal(parseName("Cell.net.fc.Dense.parameters_grad").path, "net.fc");
  assert.equal(parseName("odd").path, "odd");
});

test("the quick way to a module's path and the thorough one agree", () => {
  for (const name of ["Module.layers.0.attn.Attention.forward.1", "Module.forwarding.fc.Linear.backward.0", "Cell.net.fc.Dense.parameters_grad", "Module.m.forward.0",
    "Functional.linear.5.backward", "odd", "Module", "Module.a.B.forward", "Optimizer.Adam.step.0", "Module.x.Y"]) {
    const parsed = parseName(name);
    assert.equal(modulePathOf(name), parsed.isModule ? parsed.path : null, name);
  }
});

test("a label leaves out what its parent says", () => {
  const place = placeOf(TREE);
  assert.deepEqual(labelOf(place, 1), { main: "layers.0", quiet: "Block" });
  assert.deepEqual(labelOf(place, 2), { main: "linear", quiet: "Functional 0" });
});

test("layers are folded, calls counted for their module", () => {
  assert.deepEqual(fold("model.layers.3.attn.q", false), { group: "model.layers", layer: "3", part: "attn.q" });
  assert.deepEqual(fold("model.layers.3.experts.7.fc", true), { group: "model.layers", layer: "3", part: "experts.*.fc" });
  assert.deepEqual(fold("head", false), { group: "", layer: "", part: "head" });
  const [grid] = grids(placeOf(TREE));
  assert.deepEqual(grid!.layers, ["0", "1"]);
  assert.deepEqual(grid!.cells.get(cellKey("1", ""))!.status, [4, 255, 255]);
  assert.equal(grid!.cells.get(cellKey("1", ""))!.rows[0], 5);
});

test("layers stand in numeric order", () => {
  const rows = [10, 9, 2].map((layer) => [`Module.m.layers.${layer}.Block.forward.0`, -1, { kind: 0 }] as [string, number, object]);
  assert.deepEqual(grids(placeOf(answer(rows)))[0]!.layers, ["2", "9", "10"]);
});

test("a difference is told in tolerances: none where nothing is known, no number where none is allowed", () => {
  assert.deepEqual([[6.5536, 1e-4], [3e-8, 1e-6], [0, 0], [0.5, 0], [1e300, 74]].map(([left, allowed]) => times(timesOf(left!, allowed!))),
    ["65,536 ×", "0.03 ×", "0 ×", "∞ ×", "∞ ×"]);
  assert.equal(times(timesOf(null, 1)), "");
  assert.equal(times(timesOf(1e300, 1e300)), ""); // NaN goes in, NaN comes out: nothing is beyond a tolerance
});

test("a text of the server is said in the language of the page", () => {
  assert.equal(said({ en: "within rounding", zh: "舍入误差以内" }), "within rounding");
  setLanguage("zh");
  assert.deepEqual([said({ en: "within rounding", zh: "舍入误差以内" }), said("Module.fc.Linear.forward.0")], ["舍入误差以内", "Module.fc.Linear.forward.0"]);
  setLanguage("en");
});

test("figures are as wide as they need to be", () => {
  assert.deepEqual([0, 0.5, 0.0123, 12345, 1.5e-9, -0.02].map((value) => short(value)), ["0", "0.500", "1.2e\u22122", "1.2e4", "1.5e\u22129", "\u22122.0e\u22122"]);
  assert.deepEqual([short(null), short(NaN), short(1e300), short(Infinity)], ["", "", "∞", "∞"]);
  assert.deepEqual([long(2.7713434), long("nan"), long("-inf"), long(16), long(-4.967054e-9), long(null)], ["2.771343", "NaN", "-inf", "16", "-4.9671e-9", ""]);
});

test("a copied table has a column for every figure, and nothing in a cell breaks it", () => {
  const side: TensorSide = { type: "torch.Tensor", dtype: "torch.float32", shape: [2, 3], strides: [3, 1], max: 1, min: -1, mean: 0, norm: "nan", nan: 1, inf: null, digest: null,
    requires_grad: null, value: "a\tb\nc", file: false, unset: false };
  const node = { tensors: [{ slot: "output.0", group: "output", candidate: side, reference: null, status: 5, relative: null, allowed: null, differences: { max: [1, 2] } }] } as unknown as NodeAnswer;
  const [head, line, end] = tableText(node, true).split("\n").map((text) => text.split("\t"));
  assert.equal(head!.length, line!.length);
  assert.equal(line![head!.indexOf("candidate shape")], "[2, 3]");
  assert.equal(line![head!.indexOf("candidate norm")], "nan");
  assert.equal(line![head!.indexOf("candidate value")], "a b c");
  assert.equal(line![head!.indexOf("max difference in its size")], "2");
  assert.deepEqual(end, [""]);
});

test("curves have round ticks, gaps where a value is missing, and a step under every point", () => {
  const axis = axisOf([0.3, 4.1, null], false);
  assert.deepEqual(axis.ticks, [0, 1, 2, 3, 4, 5]);
  assert.equal(axis.share(2.5), 0.5);
  assert.deepEqual(pointsOf([1, null, 2], (x) => x, (y) => y), [[0, 1], [2, 2]]);
  assert.equal(pathOf([1, null, 2, 3], (x) => x, (y) => y), "M0.0 1.0h.1M2.0 2.0L3.0 3.0");
  assert.equal(pathOf([1, "nan", 2, 3], (x) => x, (y) => y), "M0.0 1.0h.1M2.0 2.0L3.0 3.0");
  assert.deepEqual(brokenOf([1, "nan", "inf", null, "-inf"]), [{ from: 1, to: 2, value: "nan" }, { from: 4, to: 4, value: "-inf" }]);
  assert.equal(stepAt([0, 10, 100], 0.04), 0);
  assert.equal(stepAt([0, 10, 100], 0.06), 1);
  assert.equal(stepAt([0, 10, 100], 7), 2);
  assert.equal(stepShare([5], 0), 0.5);
});

test("a difference of 0 stands below the least power, and has a tick that says 0", () => {
  const axis = axisOf([0, 1e-6, 1e300], true);
  assert.deepEqual(axis.ticks, [1e-5, 1e-6, 0]);
  assert.equal(axis.share(0), 0);
  assert.ok(axis.share(1e-6) > 0.1);
  assert.equal(axis.share(1e300), 1);
  assert.deepEqual(axisOf([0, 0, null], true).ticks, [0]);
  assert.deepEqual(axisOf([1e-6, 1e-5], true).ticks, [1e-5, 1e-6]);
});
