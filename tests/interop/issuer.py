"""An authorization server of the smallest kind that MCP clients find their way with, for the time of a command:

    python issuer.py COMMAND...

It has metadata (RFC 8414), dynamic registration of public clients (RFC 7591), the code flow with PKCE, resource indicators
(RFC 8707), rotating refresh tokens and a key set. Everybody who asks is logged in as `alice`. The command finds its address
in MEMSER_LIVE_ISSUER; scripts/live.sh starts a memser that trusts it.
"""

import base64
import hashlib
import os
import secrets
import socket
import subprocess
import sys
import threading
import time
from urllib.parse import urlencode

import jwt
import uvicorn
from cryptography.hazmat.primitives.asymmetric import ec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse
from starlette.routing import Route

SCOPES = ["memory:read", "memory:write"]
SECONDS = 60


class Issuer:
    def __init__(self, url: str) -> None:
        self.url = url
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.clients: dict[str, list[str]] = {}
        # What each code, and each refresh token, stands for; both serve once.
        self.codes: dict[str, dict] = {}
        self.refreshes: dict[str, dict] = {}

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/.well-known/oauth-authorization-server", self.metadata),
                Route("/jwks", self.jwks),
                Route("/register", self.register, methods=["POST"]),
                Route("/authorize", self.authorize),
                Route("/token", self.token, methods=["POST"]),
            ]
        )

    async def metadata(self, _: Request) -> JSONResponse:
        return JSONResponse(
            {
                "issuer": self.url,
                "authorization_endpoint": f"{self.url}/authorize",
                "token_endpoint": f"{self.url}/token",
                "registration_endpoint": f"{self.url}/register",
                "jwks_uri": f"{self.url}/jwks",
                "scopes_supported": SCOPES,
                "response_types_supported": ["code"],
                "grant_types_supported": ["authorization_code", "refresh_token"],
                "code_challenge_methods_supported": ["S256"],
                "token_endpoint_auth_methods_supported": ["none"],
                "authorization_response_iss_parameter_supported": True,
            }
        )

    async def jwks(self, _: Request) -> JSONResponse:
        jwk = jwt.algorithms.ECAlgorithm.to_jwk(self.key.public_key(), as_dict=True)
        return JSONResponse({"keys": [{**jwk, "kid": "k1", "alg": "ES256", "use": "sig"}]})

    async def register(self, request: Request) -> JSONResponse:
        client = await request.json()
        client_id = secrets.token_urlsafe(16)
        self.clients[client_id] = client["redirect_uris"]
        return JSONResponse({**client, "client_id": client_id, "token_endpoint_auth_method": "none"}, 201)

    async def authorize(self, request: Request) -> RedirectResponse | JSONResponse:
        asked = request.query_params
        known = asked["redirect_uri"] in self.clients.get(asked["client_id"], [])
        scopes = asked.get("scope", "").split()
        challenged = asked.get("code_challenge_method") == "S256" and asked.get("code_challenge")
        if not known or not challenged or not asked.get("resource") or not set(scopes) <= set(SCOPES):
            return JSONResponse({"error": "invalid_request"}, 400)
        code = secrets.token_urlsafe(16)
        self.codes[code] = dict(asked)
        back = urlencode({"code": code, "state": asked["state"], "iss": self.url})
        return RedirectResponse(f"{asked['redirect_uri']}?{back}", 302)

    async def token(self, request: Request) -> JSONResponse:
        form = await request.form()
        if form["grant_type"] == "refresh_token":
            asked = self.refreshes.pop(form["refresh_token"], None)
            if asked is None or asked["client_id"] != form["client_id"]:
                return JSONResponse({"error": "invalid_grant"}, 400)
        else:
            asked = self.codes.pop(form["code"], None)
            digest = hashlib.sha256(form["code_verifier"].encode()).digest()
            proof = base64.urlsafe_b64encode(digest).decode().rstrip("=")
            if asked is None or any(
                (
                    proof != asked["code_challenge"],
                    form["client_id"] != asked["client_id"],
                    form["redirect_uri"] != asked["redirect_uri"],
                    form.get("resource") != asked["resource"],
                )
            ):
                return JSONResponse({"error": "invalid_grant"}, 400)
        now = int(time.time())
        claims = {"iss": self.url, "sub": "alice", "aud": asked["resource"], "scope": asked.get("scope", "")}
        claims |= {"iat": now, "exp": now + SECONDS, "client_id": asked["client_id"]}
        refresh = secrets.token_urlsafe(16)
        self.refreshes[refresh] = asked
        return JSONResponse(
            {
                "access_token": jwt.encode(claims, self.key, algorithm="ES256", headers={"kid": "k1"}),
                "token_type": "Bearer",
                "expires_in": SECONDS,
                "refresh_token": refresh,
                "scope": asked.get("scope", ""),
            },
            headers={"Cache-Control": "no-store"},
        )


def main(command: list[str]) -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        server = uvicorn.Server(uvicorn.Config(Issuer(url).app(), log_level="warning"))
        threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True).start()
        status = subprocess.run(command, env={**os.environ, "MEMSER_LIVE_ISSUER": url}).returncode
        server.should_exit = True
    return status


sys.exit(main(sys.argv[1:]))
