// Parses the diagrams on standard input, a JSON list of texts; prints a JSON list: null, or what is wrong.
import { readFileSync } from "node:fs";
import { runInThisContext } from "node:vm";
import { parseHTML } from "linkedom";

const { window, document } = parseHTML("<html><body></body></html>");
Object.assign(globalThis, { window, document });
for (const name of ["Element", "Node", "DocumentFragment", "HTMLTemplateElement", "HTMLFormElement", "NodeFilter", "DOMParser"]) {
  globalThis[name] ??= window[name];
}
runInThisContext(readFileSync("node_modules/@mermaid-js/tiny/dist/mermaid.tiny.js", "utf8"));

const problems = [];
for (const text of JSON.parse(readFileSync(0, "utf8"))) {
  problems.push(await mermaid.parse(text).then(() => null, String));
}
console.log(JSON.stringify(problems));
