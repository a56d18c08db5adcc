"""A client that has no token, with the package `mcp`: it finds the authorization server by memser's own words, registers
there, gets a token, asks for more when memser says that it lacks a right, and refreshes it.

    MEMSER_URL=http://127.0.0.1:8080 MEMSER_LIVE_ISSUER=http://127.0.0.1:9000 python oauth.py MODE

MODE is one of python_client.py; issuer.py is the authorization server.
"""

import asyncio
import os
import sys
from urllib.parse import parse_qs, urlsplit

import httpx2
import jwt
from mcp.client import Client
from mcp.client.auth.oauth2 import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientMetadata

ENDPOINT = f"{os.environ['MEMSER_URL']}/mcp"
ISSUER = os.environ["MEMSER_LIVE_ISSUER"]


class Person:
    """Keeps what the client is given, and stands for the browser: it follows the link and comes back with the code."""

    def __init__(self) -> None:
        self.tokens = self.client = None
        self.asked: list[dict] = []

    async def get_tokens(self):
        return self.tokens

    async def set_tokens(self, tokens) -> None:
        self.tokens = tokens

    async def get_client_info(self):
        return self.client

    async def set_client_info(self, client) -> None:
        self.client = client

    async def open(self, link: str) -> None:
        self.asked.append({name: values[0] for name, values in parse_qs(urlsplit(link).query).items()})
        async with httpx2.AsyncClient() as browser:
            self.back = (await browser.get(link, follow_redirects=False)).headers["location"]

    async def come_back(self) -> AuthorizationCodeResult:
        given = {name: values[0] for name, values in parse_qs(urlsplit(self.back).query).items()}
        return AuthorizationCodeResult(**given)


def provider(person: Person) -> OAuthClientProvider:
    metadata = OAuthClientMetadata(client_name="memser's interop test", redirect_uris=["http://127.0.0.1:1/back"])
    return OAuthClientProvider(
        server_url=ENDPOINT,
        client_metadata=metadata,
        storage=person,
        redirect_handler=person.open,
        callback_handler=person.come_back,
    )


async def main(mode: str) -> None:
    person = Person()
    scope = "user:alice"
    async with httpx2.AsyncClient(auth=provider(person), timeout=60) as http:
        transport = streamable_http_client(ENDPOINT, http_client=http)
        async with Client(transport, mode=mode) as client:
            tools = (await client.list_tools()).tools
            assert len(tools) == 5, tools
            # No more than what was asked for, for memser alone.
            assert [asked["scope"] for asked in person.asked] == ["memory:read"], person.asked
            assert person.asked[0]["resource"] == ENDPOINT, person.asked
            claims = jwt.decode(person.tokens.access_token, options={"verify_signature": False})
            assert (claims["iss"], claims["aud"]) == (ISSUER, ENDPOINT), claims

            # The scope is left out: the subject has one.
            stored = await client.call_tool("store_memory", {"content": f"Ada logged in ({mode})."})
            assert not stored.is_error, stored
            assert person.asked[-1]["scope"].split() == ["memory:read", "memory:write"], person.asked
            recalled = await client.call_tool("recall_memory", {"query": "Who logged in?", "scope": scope})
            ids = [memory["id"] for memory in recalled.structured_content["memories"]]
            assert stored.structured_content["id"] in ids, recalled

            # Another's scope is an answer: no login would help.
            asked = len(person.asked)
            refused = await client.call_tool("recall_memory", {"query": "anything", "scope": "user:bob"})
            assert refused.structured_content["error"]["code"] == "scope_not_granted", refused
            assert len(person.asked) == asked, person.asked

    # Later, with a token that memser takes no more: the client refreshes it without the person.
    old, person.tokens.access_token = person.tokens.access_token, "expired"
    person.tokens.expires_in = -1
    async with httpx2.AsyncClient(auth=provider(person), timeout=60) as http:
        async with Client(streamable_http_client(ENDPOINT, http_client=http), mode=mode) as client:
            assert len((await client.list_tools()).tools) == 5
    assert person.tokens.access_token not in (old, "expired"), person.tokens


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "auto"))
