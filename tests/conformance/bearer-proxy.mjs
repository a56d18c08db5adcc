// A reverse proxy for MEMSER_URL that adds MEMSER_TOKEN as bearer token: the conformance suite has no option for one.
//
// Listens on a free port of 127.0.0.1 and prints its URL. Everything else passes unchanged: Host and Origin, because
// the suite tests their validation; bodies and event streams as they come, and a client that goes away.

import http from 'node:http';

const { MEMSER_URL, MEMSER_TOKEN } = process.env;
const { hostname, port } = new URL(MEMSER_URL);
const agent = new http.Agent({ keepAlive: true });

const server = http.createServer((request, response) => {
    const upstream = http.request({
        hostname,
        port,
        agent,
        method: request.method,
        path: request.url,
        setHost: false,
        headers: { ...request.headers, authorization: `Bearer ${MEMSER_TOKEN}` },
    });
    upstream.on('response', (answer) => {
        response.writeHead(answer.statusCode, answer.headers);
        response.flushHeaders();
        answer.pipe(response);
        answer.on('error', () => response.destroy());
    });
    upstream.on('error', (error) => {
        if (response.headersSent) {
            response.destroy();
        } else {
            response.writeHead(502, { 'content-type': 'text/plain' }).end(error.message);
        }
    });
    response.on('close', () => upstream.destroy());
    request.pipe(upstream);
});

server.listen(0, '127.0.0.1', () => console.log(`http://127.0.0.1:${server.address().port}`));
