const { tools } = await client.listTools();
const discovery = await client.callTool({
  name: "tool_discovery",
  arguments: { query: ["what is the current time in Tokyo"] },
});
const found = discovery.structuredContent.results[0].toolKey;
const executed = await client.callTool({
  name: "tool_execute",
  arguments: { toolKey: found, arguments: { timezone: "Asia/Tokyo" } },
});
console.log(
  JSON.stringify({
    tools: tools.map((tool) => tool.name),
    found,
    answer: executed.content[0].text,
    version: client.getNegotiatedProtocolVersion?.() ?? client.transport.protocolVersion ?? null,
  }),
);
await client.close();
