// Stores a memory in memser and recalls it, with the package `@modelcontextprotocol/client`.
//
//   npm install @modelcontextprotocol/client
//   MEMSER_URL=http://127.0.0.1:8080 MEMSER_TOKEN=… node remember.ts
//
// Node.js 22.18 and newer run TypeScript as it is.

import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';

interface Memory {
    content: string;
    score: number;
}

// Whose memory it is. The token needs `user:grace=write`.
const scope = 'user:grace';

const url = new URL('/mcp', process.env.MEMSER_URL);
const memser = new Client({ name: 'remember', version: '1.0.0' });
await memser.connect(
    new StreamableHTTPClientTransport(url, {
        requestInit: { headers: { Authorization: `Bearer ${process.env.MEMSER_TOKEN}` } },
    }),
);

// What a tool answers, as data.
async function call<T>(name: string, args: Record<string, unknown>): Promise<T> {
    const result = await memser.callTool({ name, arguments: { scope, ...args } });
    // What was wrong with the call, and the way out, in words that a model can act on as well.
    if (result.isError) throw new Error(JSON.stringify(result.content));
    return result.structuredContent as T;
}

const stored = await call<{ outcome: string }>('store_memory', {
    content: 'Grace plays the cello on Mondays.',
    tags: ['music'],
});
// `stored`, or at the second run `duplicate`.
console.log('outcome:', stored.outcome);

const recalled = await call<{ memories: Memory[] }>('recall_memory', { query: 'Which instrument does Grace play?', k: 3 });
for (const { score, content } of recalled.memories) {
    console.log(score.toFixed(2), content);
}

await memser.close();
