// An authorization server for tests: `node provider.mjs '{"cimd": true}'` prints its issuer when it listens on loopback.
// Everybody may sign in with any name and password, and is in the group `staff`.
import { createServer } from 'node:http';
import Provider from 'oidc-provider';

const options = JSON.parse(process.argv[2] ?? '{}');
const scopes = ['mcp', 'mcp:read', 'mcp:write', 'mcp:destructive'];
const server = createServer();

server.listen(0, '127.0.0.1', () => {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const provider = new Provider(issuer, {
    scopes: ['openid', 'offline_access', ...scopes],
    pkce: { required: () => true },
    cookies: { keys: ['only for tests'] },
    clientDefaults: { token_endpoint_auth_method: 'none' },
    findAccount: (context, id) => ({ accountId: id, claims: async () => ({ sub: id }) }),
    extraTokenClaims: async () => ({ groups: ['staff'] }),
    issueRefreshToken: async () => true,
    ttl: { AccessToken: options.accessTokenSeconds ?? 600, ClientCredentials: 600, Grant: 3600, Interaction: 600, Session: 3600 },
    fetch: async (target, init) => document(String(target.url ?? target)) ?? fetch(target, init),
    features: {
      devInteractions: { enabled: true },
      registration: { enabled: options.registration ?? true, initialAccessToken: false },
      revocation: { enabled: true },
      introspection: { enabled: true },
      clientCredentials: { enabled: true },
      clientIdMetadataDocument: { enabled: options.cimd ?? false, ack: 'draft-02' },
      resourceIndicators: {
        enabled: true,
        defaultResource: () => undefined,
        useGrantedResource: () => true,
        getResourceServerInfo: async (context, resource) => ({
          scope: scopes.join(' '), audience: resource, accessTokenFormat: 'jwt', jwt: { sign: { alg: 'RS256' } },
        }),
      },
    },
  });
  server.on('request', provider.callback());
  console.log(`issuer ${issuer}`);
});

// Documents of clients that would be on the internet, by their address.
function document(address) {
  const found = options.documents?.[address];
  return found && new Response(JSON.stringify(found), { headers: { 'content-type': 'application/json' } });
}
