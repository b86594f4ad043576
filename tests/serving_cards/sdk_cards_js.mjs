// The client of @a2a-js/sdk 1.3.0 fetches cards, as sdk_cards_1_3.py does with that of a2a-sdk 1.3.0.
// Signatures are verified over the raw JSON: the SDK's resolver drops members that were signed.
import { readFileSync } from "node:fs";
import { verifyAgentCardSignature } from "@a2a-js/sdk";
import { ClientFactory, DefaultAgentCardResolver, JsonRpcTransportFactory, RestTransportFactory } from "@a2a-js/sdk/client";
import { importJWK } from "jose";

console.debug = () => {}; // the SDK reports every failed signature on standard output, which carries our answers

async function run(question) {
  const last = {};
  const fetchImpl = async (url, init = {}) => {
    const headers = new Headers(init.headers);
    if (question.key) headers.set("X-API-Key", question.key);
    const response = await fetch(url, { ...init, headers });
    Object.assign(last, { status: response.status, raw: await response.clone().text() });
    return response;
  };
  const keys = new Map(question.keys.map((key) => [key.kid, key]));
  const refused = async (card) => {
    try {
      await verifyAgentCardSignature((kid) => importJWK(keys.get(kid), "ES256"))(card);
    } catch (error) {
      return error.message;
    }
    return null;
  };
  const got = async (card) => {
    const parsed = JSON.parse(last.raw);
    return { ...last, seen: card.description, refused: await refused(parsed.result ?? parsed) };
  };
  const options = { fetchImpl, legacyCompat: { enabled: true } };
  const card = await new DefaultAgentCardResolver(options).resolve(question.url, question.path);
  const answer = { public: await got(card) };
  card.supportedInterfaces = card.supportedInterfaces.filter(
    (item) => item.protocolBinding === question.binding && item.protocolVersion === question.version,
  );
  const transports = [new JsonRpcTransportFactory(options), new RestTransportFactory(options)];
  const client = await new ClientFactory({ transports }).createFromAgentCard(card);
  try {
    answer.extended = await got(await client.getAgentCard());
  } catch {
    answer.extended = { ...last };
  }
  try {
    const part = { content: { $case: "text", value: "hi" }, metadata: undefined, filename: "", mediaType: "" };
    const message = { messageId: "1", role: 1, parts: [part], extensions: [], referenceTaskIds: [], contextId: "", taskId: "" };
    const said = await client.sendMessage({ tenant: "", message, configuration: undefined, metadata: {} });
    answer.called = said.parts[0].content.value;
  } catch {
    answer.called = last.status;
  }
  return answer;
}

const questions = JSON.parse(readFileSync(0, "utf8"));
process.stdout.write(JSON.stringify(await Promise.all(questions.map(run))));
