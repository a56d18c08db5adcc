"""The Claude Code plugin without Claude Code: its files are what the documentation asks for, its hook puts memories into
the context, and its server is reached with the variables put in.

    MEMSER_URL=http://127.0.0.1:8080 MEMSER_SOLE_TOKEN=… python plugin.py
"""

import json
import os
import re
import subprocess
import urllib.request
from pathlib import Path

PLUGIN = Path(__file__).parents[2] / "examples" / "claude-code-plugin"
URL = os.environ["MEMSER_URL"]
TOKEN = os.environ["MEMSER_SOLE_TOKEN"]
CONTENT = "The parser of project Heron rejects tabs."


def post(url: str, headers: dict, body: dict) -> dict:
    headers = {**headers, "Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def start(**environment: str) -> dict:
    """What the hook says at the start of a session, called as Claude Code calls it."""
    (event,) = json.loads((PLUGIN / "hooks" / "hooks.json").read_text())["hooks"]["SessionStart"]
    assert {"startup", "compact"} <= set(event["matcher"].split("|")), event
    (hook,) = event["hooks"]
    assert hook["type"] == "command" and hook["timeout"] > 10, hook
    told = {"session_id": "1", "transcript_path": "/none", "cwd": "/", "hook_event_name": "SessionStart"}
    ran = subprocess.run(
        ["sh", "-c", hook["command"]],
        input=json.dumps({**told, "source": "startup"}),
        env={"PATH": os.environ["PATH"], "CLAUDE_PLUGIN_ROOT": str(PLUGIN), **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert TOKEN not in ran.stdout + ran.stderr and not ran.stderr, ran.stderr
    return json.loads(ran.stdout)


def expanded(text: str, variables: dict) -> str:
    """`${NAME}` and `${NAME:-default}`, the two forms that Claude Code knows."""
    return re.sub(r"\$\{(\w+)(?::-([^}]*))?\}", lambda m: variables.get(m[1], m[2]), text)


def check_files() -> None:
    manifest = json.loads((PLUGIN / ".claude-plugin" / "plugin.json").read_text())
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", manifest["name"]), manifest
    assert re.fullmatch(r"\d+\.\d+\.\d+", manifest["version"]), manifest
    assert set(manifest) <= {"name", "version", "description", "author", "repository", "license", "keywords"}
    for skill in PLUGIN.glob("skills/*"):
        front = re.match(r"---\nname: (.*)\ndescription: (.*)\n---\n", (skill / "SKILL.md").read_text())
        assert front and front[1] == skill.name and 0 < len(front[2]) <= 1024, skill


def check_server() -> None:
    server = json.loads((PLUGIN / ".mcp.json").read_text())["mcpServers"]["memser"]
    assert server["type"] == "http", server
    assert expanded(server["url"], {}) == "http://127.0.0.1:8080/mcp", server
    variables = {"CLAUDE_MEMSER_URL": URL, "MEMSER_CLIENT_TOKEN": TOKEN}
    headers = {name: expanded(value, variables) for name, value in server["headers"].items()}
    listed = post(expanded(server["url"], variables), headers, {"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
    assert "store_memory" in [tool["name"] for tool in listed["result"]["tools"]], listed


def check_hook() -> None:
    right = {"CLAUDE_MEMSER_URL": URL, "MEMSER_CLIENT_TOKEN": TOKEN}
    post(f"{URL}/v1/memories", {"Authorization": f"Bearer {TOKEN}"}, {"content": CONTENT})
    told = start(**right)["hookSpecificOutput"]
    assert told["hookEventName"] == "SessionStart" and CONTENT in told["additionalContext"], told

    # What is wrong is said, and a session starts all the same.
    for wrong, word in [
        ({"CLAUDE_MEMSER_URL": URL}, "set MEMSER_CLIENT_TOKEN"),
        ({**right, "MEMSER_CLIENT_TOKEN": "not-a-token-of-this-memser"}, "token"),
        ({**right, "MEMSER_CLIENT_TOKEN": os.environ["MEMSER_TOKEN"]}, "scope"),
        ({**right, "CLAUDE_MEMSER_URL": "http://127.0.0.1:9"}, "refused"),
    ]:
        told = start(**wrong)
        assert list(told) == ["systemMessage"] and word in told["systemMessage"], told


check_files()
check_server()
check_hook()
