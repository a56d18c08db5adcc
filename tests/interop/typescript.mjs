// memser from TypeScript or JavaScript: lists the tools, uses each and looks at an error.
//
//   MEMSER_URL=http://127.0.0.1:8080 MEMSER_TOKEN=… node typescript.mjs MODE
//
// MODE is `legacy` or `auto` for the package `@modelcontextprotocol/client`: a handshake first (protocol 2025-11-25 and
// older), or 2026-07-28 where the server has it. `sdk` is the package before it, `@modelcontextprotocol/sdk`, which
// many agents still use.

import assert from 'node:assert/strict';

const { MEMSER_URL, MEMSER_TOKEN } = process.env;
const mode = process.argv[2] ?? 'auto';

const url = new URL('/mcp', MEMSER_URL);
const options = { requestInit: { headers: { Authorization: `Bearer ${MEMSER_TOKEN}` } } };
const info = { name: 'example', version: '1.0.0' };
let client;
if (mode === 'sdk') {
    const { Client } = await import('@modelcontextprotocol/sdk/client/index.js');
    const { StreamableHTTPClientTransport } = await import('@modelcontextprotocol/sdk/client/streamableHttp.js');
    client = new Client(info);
    await client.connect(new StreamableHTTPClientTransport(url, options));
} else {
    const { Client, StreamableHTTPClientTransport } = await import('@modelcontextprotocol/client');
    client = new Client(info, { versionNegotiation: { mode } });
    await client.connect(new StreamableHTTPClientTransport(url, options));
}

// The `structuredContent` of a call that succeeds. The client checks it against the schema that the tool declares.
async function call(name, args) {
    const result = await client.callTool({ name, arguments: args });
    assert(!result.isError, `${name}: ${JSON.stringify(result.content)}`);
    return result.structuredContent;
}

const { tools } = await client.listTools();
// The sixth is shown to tokens with review rights, as this one has.
assert.equal(tools.length, 6);

// A scope is made by the first store; this one is a new one in each run.
const scope = `example:typescript-${mode}-${process.pid}`;

const stored = await call('store_memory', {
    scope,
    content: 'Ada moved the release review to Thursdays.',
    tags: ['schedule'],
});
assert.equal(stored.outcome, 'stored');

const recalled = await call('recall_memory', { scope, query: 'When is the release review?' });
assert.equal(recalled.memories[0].id, stored.id);

const listed = await call('list_memories', { scope, tags: ['schedule'] });
assert.equal(listed.memories[0].id, stored.id);

await call('consolidate_memories', { scope, dry_run: true });

const correction = { scope, content: 'The review is on Fridays.', replaces: stored.id };
assert.equal((await call('store_memory', correction)).supersedes[0].id, stored.id);
const restored = await call('resolve_conflict', { scope, memory_id: stored.id, action: 'restore' });
assert.deepEqual(restored.restored, [stored.id]);

const forgotten = await call('forget_memory', { scope, memory_id: stored.id });
assert.deepEqual(forgotten.ids, [stored.id]);

// What the caller can put right is an answer with `isError` and a code, not an exception.
const refused = await client.callTool({ name: 'recall_memory', arguments: { scope, query: 'review', k: 0 } });
assert.equal(refused.isError, true);
assert.equal(refused.structuredContent.error.code, 'invalid_argument');
assert.equal(refused.structuredContent.error.field, 'k');

await client.close();
