// Builds the page into a folder: node build.mjs FOLDER. The same source gives the same bytes.
import { build } from "esbuild";
import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

const here = dirname(fileURLToPath(import.meta.url));
const LARGEST = 100_000; // bytes of the three files together, gzip

const [folder] = process.argv.slice(2);
if (!folder) {
  console.error("which folder? node build.mjs FOLDER");
  process.exit(2);
}
const out = resolve(folder);
mkdirSync(out, { recursive: true });

const shared = { bundle: true, minify: true, charset: "utf8", legalComments: "none", logLevel: "warning", absWorkingDir: here };
const target = ["es2022"];
const banner = { js: "// msprobe, Apache-2.0. Built from web/; contains Preact (MIT), see LICENSES.txt." };
await build({
  ...shared, target, banner, entryPoints: ["source/main.tsx"], outfile: join(out, "app.js"), format: "iife",
  jsx: "automatic", jsxImportSource: "preact", define: { "process.env.NODE_ENV": '"production"' },
});
await build({ ...shared, entryPoints: ["source/style/page.css"], outfile: join(out, "app.css") });
copyFileSync(join(here, "source/index.html"), join(out, "index.html"));

// What is in app.js beside our own code, with the words its licence asks to be kept.
const licence = readFileSync(join(here, "node_modules/preact/LICENSE"), "utf8").trim();
const version = JSON.parse(readFileSync(join(here, "node_modules/preact/package.json"), "utf8")).version;
writeFileSync(join(out, "LICENSES.txt"), `app.js contains Preact ${version}.\n\n${licence}\n`);

const script = readFileSync(join(out, "app.js"), "utf8");
// The script is put inside a <script> element of the single file.
if (/<\/script|<!--/i.test(script)) {
  console.error("app.js holds </script or <!--, which would end it when it stands inside a page");
  process.exit(1);
}
const size = ["app.js", "app.css", "index.html"].reduce((sum, name) => sum + gzipSync(readFileSync(join(out, name))).length, 0);
console.log(`${out}: ${size} bytes with gzip`);
if (size > LARGEST) {
  console.error(`the page is larger than ${LARGEST} bytes`);
  process.exit(1);
}
