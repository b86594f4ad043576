// The OpenID provider of the example: npm's oidc-provider, with the clients of secrets/clients and keys that stay.
// Its tokens are bound to a key of the client (DPoP), and for the agent only. In production you have one already.
import * as fs from "node:fs";
import * as https from "node:https";
import { exportJWK, generateKeyPair } from "jose";
import Provider, { errors } from "oidc-provider";

const { ISSUER, ISSUER_PORT, AGENT_URL } = process.env;
const KEYS = "secrets/provider-keys.json";
const CLIENTS = "secrets/clients"; // a file for each client, with its secret

if (!fs.existsSync(KEYS)) {
  const { privateKey } = await generateKeyPair("ES256", { extractable: true });
  const key = { ...(await exportJWK(privateKey)), alg: "ES256", use: "sig" };
  fs.writeFileSync(`${KEYS}.new`, JSON.stringify([key]), { mode: 0o600 });
  fs.renameSync(`${KEYS}.new`, KEYS);
}

const provider = new Provider(ISSUER, {
  jwks: { keys: JSON.parse(fs.readFileSync(KEYS)) },
  scopes: ["openid", "invoices"],
  enabledJWA: { dPoPSigningAlgValues: ["ES256"], idTokenSigningAlgValues: ["ES256"] },
  clientDefaults: { id_token_signed_response_alg: "ES256" },
  clients: fs.readdirSync(CLIENTS).map((name) => ({
    client_id: name,
    client_secret: fs.readFileSync(`${CLIENTS}/${name}`, "utf8").trim(),
    token_endpoint_auth_method: "client_secret_basic",
    grant_types: ["client_credentials"],
    redirect_uris: [],
    response_types: [],
    dpop_bound_access_tokens: true,
  })),
  features: {
    devInteractions: { enabled: false },
    clientCredentials: { enabled: true },
    dPoP: { enabled: true },
    resourceIndicators: {
      enabled: true,
      getResourceServerInfo: (_, resource) => {
        if (resource !== AGENT_URL) throw new errors.InvalidTarget();
        const format = { accessTokenFormat: "jwt", jwt: { sign: { alg: "ES256" } } };
        return { scope: "invoices", audience: AGENT_URL, accessTokenTTL: 600, ...format };
      },
    },
  },
});
const tls = { cert: fs.readFileSync("tls/localhost.pem"), key: fs.readFileSync("tls/localhost.key") };
https.createServer(tls, provider.callback()).listen(ISSUER_PORT, "127.0.0.1");
