"""memser from Python over standard input and output, as a client that starts a command uses it: `memser stdio` as a bridge
to the memser at MEMSER_URL.

    MEMSER_URL=http://127.0.0.1:8080 MEMSER_TOKEN=… python python_stdio.py MODE MEMSER

MODE is as for python_client.py, MEMSER the program.
"""

import asyncio
import os
import sys

from mcp import StdioServerParameters
from mcp.client import Client
from mcp.client.stdio import stdio_client

from python_client import use


async def main(mode: str, program: str) -> None:
    server = StdioServerParameters(
        command=program,
        args=["stdio", "--url", f"{os.environ['MEMSER_URL']}/mcp"],
        env={"MEMSER_CLIENT_TOKEN": os.environ["MEMSER_TOKEN"]},
    )
    async with Client(stdio_client(server), mode=mode) as client:
        await use(client, scope=f"example:python-stdio-{mode}-{os.getpid()}")


asyncio.run(main(sys.argv[1], sys.argv[2]))
