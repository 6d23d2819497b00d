// A client of the TypeScript SDK signs in at the gateway that GATEWAY names, and calls a tool.
import { spawn } from "node:child_process";
import { createServer } from "node:http";
import { Client, StreamableHTTPClientTransport, UnauthorizedError } from "@modelcontextprotocol/client";

const answers = createServer();
const answered = new Promise((resolve) =>
  answers.on("request", (request, response) => {
    response.end("done");
    resolve(new URL(request.url, "http://localhost").searchParams);
  }),
);
await new Promise((resolve) => answers.listen(0, "127.0.0.1", resolve));

const kept = {};
const redirectUrl = `http://localhost:${answers.address().port}/callback`;
const authProvider = {
  redirectUrl,
  clientMetadata: { client_name: "A script", redirect_uris: [redirectUrl], token_endpoint_auth_method: "none" },
  clientInformation: () => kept.client,
  saveClientInformation: (client) => void (kept.client = client),
  tokens: () => kept.tokens,
  saveTokens: (tokens) => void (kept.tokens = tokens),
  saveCodeVerifier: (verifier) => void (kept.verifier = verifier),
  codeVerifier: () => kept.verifier,
  redirectToAuthorization: (address) => void spawn("xdg-open", [address.href]),
};

const url = new URL(process.env.GATEWAY);
const connect = async () => {
  const client = new Client({ name: "script", version: "1" }, { versionNegotiation: { mode: "auto" } });
  const transport = new StreamableHTTPClientTransport(url, { authProvider });
  try {
    await client.connect(transport);
    return client;
  } catch (error) {
    if (!(error instanceof UnauthorizedError)) throw error;
    await transport.finishAuth(await answered);
  }
};
const client = (await connect()) ?? (await connect());
const executed = await client.callTool({
  name: "tool_execute",
  arguments: { toolKey: "time:get_current_time", arguments: { timezone: "Asia/Tokyo" } },
});
console.log(executed.content[0].text);
await client.close();
answers.close();
