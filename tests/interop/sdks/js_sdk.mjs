// The released JavaScript SDK at work: reads requests as JSON lines, writes an answer per line.
// The cards are plain ProtoJSON objects, as JSON.parse gives them, or what the SDK's own resolver makes of them.
import { createInterface } from "node:readline";
import { AgentCard, generateAgentCardSignature, verifyAgentCardSignature } from "@a2a-js/sdk";
import { DefaultAgentCardResolver } from "@a2a-js/sdk/client";
import { importJWK } from "jose";

console.debug = () => {}; // the SDK reports every failed signature on standard output, which carries our answers

async function readCard(request) {
  if (request.reader !== "resolver") return JSON.parse(request.card);
  const fetchImpl = async () => new Response(request.card);
  return new DefaultAgentCardResolver({ fetchImpl }).resolve("https://agent.example.com");
}

async function verify(request) {
  const keys = new Map(request.keys.map((key) => [key.kid, key]));
  const keyNamed = async (kid) => {
    if (!keys.has(kid)) throw new Error("no such key");
    return importJWK(keys.get(kid), keys.get(kid).alg);
  };
  try {
    await verifyAgentCardSignature(keyNamed)(await readCard(request));
  } catch (error) {
    return { refused: error.message };
  }
  return { refused: null };
}

async function sign(request) {
  const key = await importJWK(request.key, request.key.alg);
  const header = { alg: request.key.alg, kid: request.key.kid, typ: "JOSE" };
  if (request.jku) header.jku = request.jku;
  const generate = generateAgentCardSignature(key, header);
  if (request.wire === "typed") {
    // As the types of the SDK want it: the typed card is signed, and served as its toJSON prints it.
    return { card: JSON.stringify(AgentCard.toJSON(await generate(AgentCard.fromJSON(JSON.parse(request.card))))) };
  }
  return { card: JSON.stringify(await generate(JSON.parse(request.card))) };
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
