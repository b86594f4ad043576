// The hello world of @a2a-js/sdk on Node's own server, whose card demands an API key that no one looks at.
// PORT says where.
import { createServer } from "node:http";
import { AGENT_CARD_PATH } from "@a2a-js/sdk";
import { DefaultRequestHandler, InMemoryTaskStore, JsonRpcTransportHandler } from "@a2a-js/sdk/server";

const url = `http://127.0.0.1:${process.env.PORT}`;
const card = {
  name: "Hello World",
  description: "Greets.",
  version: "1.0.0",
  supportedInterfaces: [{ url: `${url}/rpc`, protocolBinding: "JSONRPC", protocolVersion: "1.0", tenant: "" }],
  capabilities: { streaming: true, pushNotifications: false, extendedAgentCard: false, extensions: [] },
  securitySchemes: { key: { apiKeySecurityScheme: { location: "header", name: "X-API-Key" } } },
  securityRequirements: [{ schemes: { key: { list: [] } } }],
  defaultInputModes: ["text/plain"],
  defaultOutputModes: ["text/plain"],
  skills: [{ id: "greet", name: "Greet", description: "Greets.", tags: ["hello"] }],
};
const executor = { execute: async (_context, bus) => bus.finished(), cancelTask: async () => {} };
const transport = new JsonRpcTransportHandler(new DefaultRequestHandler(card, new InMemoryTaskStore(), executor));

createServer(async (request, response) => {
  const answer = (status, body, type = "application/json") => {
    response.writeHead(status, { "Content-Type": type });
    response.end(typeof body === "string" ? body : JSON.stringify(body));
  };
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  if (request.url === `/${AGENT_CARD_PATH}`) return answer(200, card);
  if (request.method !== "POST" || request.url !== "/rpc") return answer(404, { error: "not found" });
  const context = { requestedVersion: request.headers["a2a-version"] ?? "0.3", user: { isAuthenticated: false } };
  const result = await transport.handle(JSON.parse(Buffer.concat(chunks).toString()), context);
  if (typeof result[Symbol.asyncIterator] !== "function") return answer(200, result);
  const events = [];
  try {
    for await (const event of result) events.push(event);
  } catch (error) {
    events.push({ jsonrpc: "2.0", id: "probe", error: JsonRpcTransportHandler.mapToJSONRPCError(error) });
  }
  return answer(200, events.map((event) => `data: ${JSON.stringify(event)}\n\n`).join(""), "text/event-stream");
}).listen(Number(process.env.PORT), "127.0.0.1");
