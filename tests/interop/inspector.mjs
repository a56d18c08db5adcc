// Uses memser through the command line of the MCP inspector, one process a call:
//
//   MEMSER_URL=http://127.0.0.1:8080 MEMSER_TOKEN=… node inspector.mjs PATH_OF_MCP_INSPECTOR ERA
//
// ERA is `legacy` or `modern`.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';

const { MEMSER_URL, MEMSER_TOKEN } = process.env;
const [inspector, era] = process.argv.slice(2);

function run(method, ...options) {
    const connection = ['--transport', 'http', '--protocol-era', era, '--stored-auth-only'];
    const header = ['--header', `Authorization: Bearer ${MEMSER_TOKEN}`];
    const call = ['--cli', `${MEMSER_URL}/mcp`, ...connection, ...header, '--format', 'json', '--method', method];
    return spawnSync(inspector, [...call, ...options], { encoding: 'utf8', timeout: 60_000 });
}

function callTool(name, args) {
    const done = run('tools/call', '--tool-name', name, '--tool-args-json', JSON.stringify(args));
    assert.notEqual(done.stdout, '', `${name}: ${done.stderr}`);
    return { code: done.status, ...JSON.parse(done.stdout).result };
}

function call(name, args) {
    const { code, isError, structuredContent, content } = callTool(name, args);
    assert(code === 0 && !isError, `${name}: exit ${code}, ${JSON.stringify(content)}`);
    return structuredContent;
}

// `--strict` fails on a schema that some client is known not to understand.
const listed = run('tools/list', '--strict');
assert.equal(listed.status, 0, listed.stderr);
assert.equal(JSON.parse(listed.stdout).result.tools.length, 6);

const scope = `example:inspector-${era}-${process.pid}`;
const content = 'Ada moved the release review to Thursdays.';
const stored = call('store_memory', { scope, content, tags: ['schedule'] });
assert.equal(stored.outcome, 'stored');
const recalled = call('recall_memory', { scope, query: 'When is the release review?' });
assert.equal(recalled.memories[0].id, stored.id);
assert.equal(call('list_memories', { scope, tags: ['schedule'] }).memories[0].id, stored.id);
call('consolidate_memories', { scope, dry_run: true });
call('store_memory', { scope, content: 'The review is on Fridays.', replaces: stored.id });
const restored = call('resolve_conflict', { scope, memory_id: stored.id, action: 'restore' });
assert.deepEqual(restored.restored, [stored.id]);
assert.deepEqual(call('forget_memory', { scope, memory_id: stored.id }).ids, [stored.id]);

const refused = callTool('recall_memory', { scope, query: 'review', k: 0 });
assert.equal(refused.isError, true);
assert.notEqual(refused.code, 0);
assert.equal(refused.structuredContent.error.code, 'invalid_argument');
