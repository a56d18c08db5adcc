"""What a token meets that lacks the right, with the package `mcp`: an error each time, and never a wait for a login.

    MEMSER_URL=http://127.0.0.1:8080 MEMSER_READER_TOKEN=… python refusals.py MODE

The reader's token may read the scopes that start with `example:`. MODE is one of python_client.py.
"""

import asyncio
import os
import sys
from contextlib import asynccontextmanager

import httpx2
from mcp import MCPError
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client


@asynccontextmanager
async def connect(token: str, mode: str, statuses: list[int]):
    """A client; `statuses` gets the status of each HTTP answer, which `mcp` does not show."""

    async def note(response: httpx2.Response) -> None:
        statuses.append(response.status_code)

    headers = {"Authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(headers=headers, timeout=60, event_hooks={"response": [note]}) as http:
        transport = streamable_http_client(f"{os.environ['MEMSER_URL']}/mcp", http_client=http)
        async with Client(transport, mode=mode) as client:
            yield client


async def main(mode: str) -> None:
    statuses: list[int] = []
    async with connect(os.environ["MEMSER_READER_TOKEN"], mode, statuses) as client:
        scope = "example:refusals"
        granted = await client.call_tool("recall_memory", {"scope": scope, "query": "review"})
        assert not granted.is_error, granted

        # A scope that is not granted is an answer, which a model can read.
        refused = await client.call_tool("recall_memory", {"scope": "other", "query": "review"})
        assert refused.is_error, refused
        assert refused.structured_content["error"]["code"] == "scope_not_granted", refused

        # What the token may do nowhere is refused by HTTP already, so that a client can ask for another token.
        try:
            stored = await client.call_tool("store_memory", {"scope": scope, "content": "Ada is away."})
        except MCPError:
            assert statuses[-1] == 403, statuses
        else:
            raise AssertionError(stored)

    statuses.clear()
    try:
        async with connect("not-a-token-of-this-memser", mode, statuses) as client:
            listed = await client.list_tools()
    except Exception:  # a group of errors where it comes out of connecting
        assert set(statuses) == {401}, statuses
    else:
        raise AssertionError(listed)


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "auto"))
