// An agent on @a2a-js/sdk that greets its caller by name. It checks no credential: `a2a-sign serve` does so in front of
// it, and says who calls in a signed token. PORT and CALLER_KEYS are in the environment.
//
//   npm install @a2a-js/sdk jose
//   PORT=9000 CALLER_KEYS=caller.jwks.json node agent.mjs
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { DefaultRequestHandler, InMemoryTaskStore, JsonRpcTransportHandler } from "@a2a-js/sdk/server";
import { createLocalJWKSet, jwtVerify } from "jose";

const port = Number(process.env.PORT ?? 9000);
const card = JSON.parse(readFileSync("agent-card.json", "utf8"));
const keys = createLocalJWKSet(JSON.parse(readFileSync(process.env.CALLER_KEYS ?? "caller.jwks.json", "utf8")));

/** The caller's id, or "" for an anonymous one. It throws for a request that did not come through the proxy. */
async function callerOf(request) {
  const token = request.headers["a2a-caller-token"];
  if (token === undefined) throw new Error("not through the proxy");
  if (token === "") return "";
  const [issuer, audience] = ["http://localhost:8080", "http://127.0.0.1:9000"];
  const rules = { issuer, audience, typ: "a2a-caller+jwt" };
  return (await jwtVerify(token, keys, rules)).payload.sub;
}

const executor = {
  async execute(context, bus) {
    const parts = [{ content: { $case: "text", value: `Hello ${context.context.user.userName}` } }];
    const message = { role: 2, messageId: crypto.randomUUID(), parts, taskId: "", contextId: context.contextId };
    bus.publish({ kind: "message", data: { extensions: [], referenceTaskIds: [], ...message } });
    bus.finished();
  },
  async cancelTask() {},
};
const transport = new JsonRpcTransportHandler(new DefaultRequestHandler(card, new InMemoryTaskStore(), executor));

createServer(async (request, response) => {
  const answer = (status, body) => {
    response.writeHead(status, { "Content-Type": "application/json" });
    response.end(JSON.stringify(body));
  };
  let caller;
  try {
    caller = await callerOf(request);
  } catch {
    return answer(401, { error: "call http://localhost:8080" });
  }
  if (request.method !== "POST" || request.url !== "/rpc") return answer(404, { error: "not found" });
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const user = { isAuthenticated: caller !== "", userName: caller };
  const context = { requestedVersion: request.headers["a2a-version"] ?? "0.3", user };
  answer(200, await transport.handle(JSON.parse(Buffer.concat(chunks).toString()), context));
}).listen(port, "127.0.0.1");
