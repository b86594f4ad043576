// The released JavaScript SDK at work: reads requests as JSON lines, writes an answer per line.
// The cards are plain ProtoJSON objects, as JSON.parse gives them.
import { createInterface } from "node:readline";
import { generateAgentCardSignature, verifyAgentCardSignature } from "@a2a-js/sdk";
import { importJWK } from "jose";

console.debug = () => {}; // the SDK reports every failed signature on standard output, which carries our answers

async function verify(request) {
  const keys = new Map(request.keys.map((key) => [key.kid, key]));
  const keyNamed = async (kid) => {
    if (!keys.has(kid)) throw new Error("no such key");
    return importJWK(keys.get(kid), keys.get(kid).alg);
  };
  try {
    await verifyAgentCardSignature(keyNamed)(JSON.parse(request.card));
  } catch (error) {
    return { refused: error.message };
  }
  return { refused: null };
}

async function sign(request) {
  const key = await importJWK(request.key, request.key.alg);
  const header = { alg: request.key.alg, kid: request.key.kid, typ: "JOSE" };
  if (request.jku) header.jku = request.jku;
  return { card: JSON.stringify(await generateAgentCardSignature(key, header)(JSON.parse(request.card))) };
}

for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line);
  let answer;
  try {
    answer = await { verify, sign }[request.do](request);
  } catch (error) {
    answer = { crashed: error.stack }; // the test that asked fails with it, and the next one finds us alive
  }
  process.stdout.write(JSON.stringify(answer) + "\n");
}
