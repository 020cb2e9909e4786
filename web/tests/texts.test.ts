import assert from "node:assert/strict";
import test from "node:test";
import { TEXTS } from "../source/texts/index.ts";
import type { Key } from "../source/texts/index.ts";

const keys = Object.keys(TEXTS.en) as Key[];

test("both languages have every text", () => {
  assert.deepEqual(Object.keys(TEXTS.zh).sort(), [...keys].sort());
  for (const language of ["en", "zh"] as const) {
    for (const key of keys) assert.ok(TEXTS[language][key].trim(), `${language}: ${key} is empty`);
  }
});

test("both languages name the same values", () => {
  const values = (text: string): string[] => (text.match(/\{\w+\}/g) ?? []).sort();
  for (const key of keys) assert.deepEqual(values(TEXTS.zh[key]), values(TEXTS.en[key]), key);
});

test("the Chinese texts are Chinese", () => {
  const same = new Set<Key>(["place.step", "place.rank", "view.ranks", "view.steps", "ranks.step", "steps.step", "layers.mask"]); // step and rank are said so in Chinese, too
  for (const key of keys) if (!same.has(key)) assert.match(TEXTS.zh[key], /[\u4e00-\u9fff]/, key);
});
