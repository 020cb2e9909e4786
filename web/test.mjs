// Runs tests/*.test.ts with node's own test runner: esbuild makes JavaScript of them first.
import { build } from "esbuild";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "msprobe-page-"));
try {
  const tests = readdirSync(join(here, "tests")).filter((name) => name.endsWith(".test.ts")).map((name) => join(here, "tests", name));
  await build({
    entryPoints: tests, outdir: folder, outExtension: { ".js": ".mjs" }, bundle: true, platform: "node", format: "esm",
    target: "node20", jsx: "automatic", jsxImportSource: "preact", logLevel: "warning", absWorkingDir: here,
  });
  const built = readdirSync(folder).map((name) => join(folder, name));
  process.exitCode = spawnSync(process.execPath, ["--test", "--test-reporter=dot", ...built], { stdio: "inherit" }).status ?? 1;
} finally {
  rmSync(folder, { recursive: true, force: true });
}
