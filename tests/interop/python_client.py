"""memser from Python, with the package `mcp`: lists the tools, uses each and looks at an error.

    MEMSER_URL=http://127.0.0.1:8080 MEMSER_TOKEN=… python python_client.py MODE

MODE is `legacy` (a handshake first, protocol 2025-11-25 and older), `2026-07-28` (that version at once) or `auto` (asks
the server what it speaks).
"""

import asyncio
import os
import sys

import httpx2
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client


async def main(mode: str) -> None:
    headers = {"Authorization": f"Bearer {os.environ['MEMSER_TOKEN']}"}
    async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
        transport = streamable_http_client(f"{os.environ['MEMSER_URL']}/mcp", http_client=http)
        async with Client(transport, mode=mode) as client:
            await use(client, scope=f"example:python-{mode}-{os.getpid()}")


async def use(client: Client, scope: str) -> None:
    async def call(tool: str, **arguments) -> dict:
        """The `structuredContent` of a call that succeeds; the client checks it against the tool's schema."""
        result = await client.call_tool(tool, {"scope": scope, **arguments})
        assert not result.is_error, (tool, result.content)
        return result.structured_content

    tools = (await client.list_tools()).tools
    # The sixth is shown to tokens with review rights, as this one has.
    assert len(tools) == 6, tools

    # The first store makes the scope.
    stored = await call("store_memory", content="Ada moved the release review to Thursdays.", tags=["schedule"])
    assert stored["outcome"] == "stored", stored

    recalled = await call("recall_memory", query="When is the release review?")
    assert recalled["memories"][0]["id"] == stored["id"], recalled

    listed = await call("list_memories", tags=["schedule"])
    assert listed["memories"][0]["id"] == stored["id"], listed

    await call("consolidate_memories", dry_run=True)

    corrected = await call("store_memory", content="The review is on Fridays.", replaces=stored["id"])
    assert corrected["supersedes"][0]["id"] == stored["id"], corrected
    restored = await call("resolve_conflict", memory_id=stored["id"], action="restore")
    assert restored["restored"] == [stored["id"]], restored

    forgotten = await call("forget_memory", memory_id=stored["id"])
    assert forgotten["ids"] == [stored["id"]], forgotten

    # What the caller can put right is an answer with `is_error` and a code, not an exception.
    refused = await client.call_tool("recall_memory", {"scope": scope, "query": "review", "k": 0})
    assert refused.is_error, refused
    error = refused.structured_content["error"]
    assert (error["code"], error["field"]) == ("invalid_argument", "k"), error


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "auto"))
