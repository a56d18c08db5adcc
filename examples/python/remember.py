"""Stores a memory in memser and recalls it, with the package `mcp`.

    pip install 'mcp>=2.3,<3'
    MEMSER_URL=http://127.0.0.1:8080 MEMSER_TOKEN=… python remember.py
"""

import asyncio
import os

import httpx2
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client

# Whose memory it is. The token needs `user:ada=write`.
SCOPE = "user:ada"


async def call(memser: Client, tool: str, **arguments) -> dict:
    """What a tool answers, as data."""
    result = await memser.call_tool(tool, {"scope": SCOPE, **arguments})
    if result.is_error:
        # What was wrong with the call, and the way out, in words that a model can act on as well.
        raise RuntimeError(result.content[0].text)
    return result.structured_content


async def main() -> None:
    headers = {"Authorization": f"Bearer {os.environ['MEMSER_TOKEN']}"}
    async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
        transport = streamable_http_client(f"{os.environ['MEMSER_URL']}/mcp", http_client=http)
        async with Client(transport) as memser:
            stored = await call(memser, "store_memory", content="Ada's cat is called Byron.", tags=["pets"])
            # `stored`, or at the second run `duplicate`.
            print("outcome:", stored["outcome"])

            recalled = await call(memser, "recall_memory", query="What is the cat's name?", k=3)
            for memory in recalled["memories"]:
                print(f"{memory['score']:.2f}  {memory['content']}")


asyncio.run(main())
