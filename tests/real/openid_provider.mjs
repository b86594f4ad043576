// A real OpenID provider (npm oidc-provider) for the tests. It is told what to do by JSON lines on standard input, one
// answer each: rotate or drop keys, move the key set, stop and start to listen, sign anything as the issuer could,
// register clients, and tell how often its documents were fetched and which token requests came.
import * as crypto from "node:crypto";
import * as https from "node:https";
import * as readline from "node:readline";
import { exportJWK, generateKeyPair, SignJWT } from "jose";
import Provider, { errors } from "oidc-provider";

console.info = console.log = console.error; // standard output is for answers

const { key, cert, ca, audience } = JSON.parse(process.argv[1]);
const ALGS = ["RS256", "ES256", "EdDSA"];
const INTROSPECTING = ["agent", "agent-key"]; // agents that ask about the tokens of their callers
const OPAQUE = "opaque";
const SCOPE = "read write";

let handler; // of the provider as it is configured now
let issuer;
let keys = []; // the first key of an algorithm signs
let jwksPath = "/jwks";
let nonceRequired = false; // in DPoP proofs
const nonceSecret = crypto.randomBytes(32);
const fetched = { discovery: 0, jwks: 0 };
const registered = new Map(); // the clients of single tests
let lifetime; // of access tokens for a resource, in seconds
let tokenRequests = [];
let introspected = 0;

async function makeKeys() {
  const generation = crypto.randomUUID();
  return Promise.all(
    ALGS.map(async (alg) => {
      const { privateKey } = await generateKeyPair(alg, { extractable: true });
      return { ...(await exportJWK(privateKey)), alg, use: "sig", kid: `${alg}-${generation}` };
    }),
  );
}

// A provider has its keys and routes for life: other ones make another provider, as a restart would.
function configure() {
  const provider = new Provider(issuer, {
    jwks: { keys },
    routes: { jwks: jwksPath },
    cookies: { keys: [crypto.randomBytes(16).toString("hex")] },
    findAccount: (_, sub) => ({ accountId: sub, claims: () => ({ sub }) }),
    scopes: ["openid", "offline_access", "read", "write"],
    enabledJWA: {
      clientAuthSigningAlgValues: ["ES256", "EdDSA"],
      dPoPSigningAlgValues: ["ES256"],
      idTokenSigningAlgValues: ALGS,
    },
    clientAuthMethods: [
      "client_secret_basic",
      "client_secret_post",
      "private_key_jwt",
      "tls_client_auth",
      "self_signed_tls_client_auth",
    ],
    clients: [
      machine("service"),
      machine("service-post", { token_endpoint_auth_method: "client_secret_post" }),
      machine("service: &+%", { client_secret: "s:e c+r/e%t&" }), // form-encoded before Basic (RFC 6749 2.3.1)
      machine("bound-service", { tls_client_certificate_bound_access_tokens: true }),
      machine("service-tls", {
        token_endpoint_auth_method: "tls_client_auth",
        tls_client_auth_san_dns: "client.example",
        tls_client_certificate_bound_access_tokens: true,
      }),
      machine("agent", { introspection_signed_response_alg: "ES256" }),
      ...registered.values(),
      ...ALGS.map((alg) => web(`web-${alg}`, { id_token_signed_response_alg: alg })),
      web("rotating", { id_token_signed_response_alg: "ES256" }),
    ],
    rotateRefreshToken: (ctx) => ctx.oidc.client.clientId === "rotating",
    features: {
      clientCredentials: { enabled: true },
      introspection: { enabled: true, allowedPolicy: (_, client) => INTROSPECTING.includes(client.clientId) },
      jwtIntrospection: { enabled: true },
      revocation: { enabled: true },
      dPoP: { enabled: true, nonceSecret, requireNonce: () => nonceRequired },
      mTLS: {
        enabled: true,
        certificateBoundAccessTokens: true,
        tlsClientAuth: true,
        selfSignedTlsClientAuth: true,
        getCertificate: (ctx) => ctx.socket.getPeerX509Certificate(),
        certificateAuthorized: (ctx) => ctx.socket.authorized,
        certificateSubjectMatches: (ctx, property, expected) =>
          property === "tls_client_auth_san_dns" &&
          ctx.socket.getPeerX509Certificate().subjectAltName === `DNS:${expected}`,
      },
      resourceIndicators: {
        enabled: true,
        getResourceServerInfo: (_, resource) => {
          const alg = resource.split("/").at(-1); // https://agent.example/ES256, or …/opaque
          if (resource !== `${audience}/${alg}` || ![...ALGS, OPAQUE].includes(alg)) throw new errors.InvalidTarget();
          const format =
            alg === OPAQUE ? { accessTokenFormat: "opaque" } : { accessTokenFormat: "jwt", jwt: { sign: { alg } } };
          return { scope: SCOPE, audience, accessTokenTTL: lifetime, ...format };
        },
      },
    },
  });
  provider.use(async (ctx, next) => {
    await next();
    if (ctx.oidc?.route === "introspection") introspected += 1;
    if (ctx.oidc?.route === "token") tokenRequests.push({ ...came(ctx), status: ctx.status });
  });
  const inner = provider.callback();
  handler = (request, response) => {
    if (request.url === "/.well-known/openid-configuration") fetched.discovery += 1;
    if (request.url === jwksPath) fetched.jwks += 1;
    inner(request, response);
  };
}

function client(id, more) {
  return { client_id: id, client_secret: "secret", token_endpoint_auth_method: "client_secret_basic", ...more };
}

function machine(id, more) {
  return client(id, { grant_types: ["client_credentials"], redirect_uris: [], response_types: [], ...more });
}

function web(id, more) {
  return client(id, {
    grant_types: ["authorization_code", "refresh_token"],
    redirect_uris: ["https://client.example/callback"],
    ...more,
  });
}

// What a token request carried, and not what the provider made of it.
function came({ headers, oidc, socket }) {
  const form = oidc.body ?? {};
  const [id, method] = authentication(headers.authorization, form, socket);
  return {
    grant: form.grant_type ?? null,
    client: id ?? null,
    method,
    scope: form.scope ?? null,
    resource: [form.resource ?? []].flat(),
    audience: [form.audience ?? []].flat(),
    dpop: "dpop" in headers,
  };
}

function authentication(authorization, form, socket) {
  if (authorization?.startsWith("Basic ")) {
    const [id] = Buffer.from(authorization.slice(6), "base64").toString().split(":");
    return [decodeURIComponent(id.replaceAll("+", " ")), "client_secret_basic"];
  }
  if (form.client_assertion) {
    const claims = JSON.parse(Buffer.from(form.client_assertion.split(".")[1], "base64url"));
    return [claims.sub, "private_key_jwt"];
  }
  if (form.client_secret) return [form.client_id, "client_secret_post"];
  return [form.client_id, socket.getPeerX509Certificate() ? "certificate" : "none"];
}

let server;

function listen(port) {
  server = https.createServer({ key, cert, ca, requestCert: true, rejectUnauthorized: false }, (request, response) =>
    handler(request, response),
  );
  return new Promise((resolve, reject) => {
    server.on("error", reject);
    server.listen(port, "127.0.0.1", () => resolve(server.address().port));
  });
}

let port = await listen(0);
issuer = `https://127.0.0.1:${port}`;
keys = await makeKeys();
configure();

const commands = {
  describe: () => ({ issuer, kids: keys.map(({ kid }) => kid) }),
  fetched: () => fetched,
  introspected: () => ({ questions: introspected }),
  // New keys in front sign from now on; the old ones stay published.
  async rotate() {
    keys = [...(await makeKeys()), ...keys];
    configure();
    return commands.describe();
  },
  // What the last rotation has replaced is no longer published.
  dropOld() {
    keys = keys.slice(0, ALGS.length);
    configure();
    return commands.describe();
  },
  moveKeys({ path }) {
    jwksPath = path;
    configure();
    return {};
  },
  requireNonce({ required }) {
    nonceRequired = required;
    return {};
  },
  // A client for client credentials, with metadata of RFC 7591.
  register({ client: id, metadata }) {
    registered.set(id, machine(id, metadata));
    configure();
    return {};
  },
  setLifetime({ seconds }) {
    lifetime = seconds ?? undefined;
    return {};
  },
  // Those since the last question.
  tokenRequests() {
    const requests = tokenRequests;
    tokenRequests = [];
    return { requests };
  },
  stop() {
    return new Promise((resolve) => {
      server.close(() => resolve({}));
      server.closeAllConnections();
    });
  },
  async start() {
    await listen(port);
    return {};
  },
  // Anything in the shape of a token, by the issuer's own key.
  async sign({ alg, header, claims }) {
    const jwk = keys.find((key) => key.alg === alg);
    const token = new SignJWT(claims).setProtectedHeader({ alg, kid: jwk.kid, ...header });
    return { token: await token.sign(crypto.createPrivateKey({ key: jwk, format: "jwk" })) };
  },
};

for await (const line of readline.createInterface({ input: process.stdin })) {
  const { do: name, ...request } = JSON.parse(line);
  let answer;
  try {
    answer = await commands[name](request);
  } catch (error) {
    answer = { crashed: String(error.stack) };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
server.closeAllConnections();
process.exit(0);
