"""Who may ask, and what an answer may do in a browser: an ASGI middleware around the whole application.

On loopback without a token, only requests that name this server as their host are answered, so that no page of another
site reaches it by a name of its own (DNS rebinding), and none with a header of a proxy; a proxy that adds none is not
recognised. With a token, each request must show it: in `Authorization: Bearer …`, or in the cookie that a form sets,
which a browser gets in place of any page. No answer may load or run anything from elsewhere, whatever a record says.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Collection
from html import escape
from ipaddress import ip_address
from typing import Final
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from distrl.view.answers import refusal

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; font-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
FORWARDED: Final = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")
"""Headers that proxies add. Not every proxy does: nginx's `proxy_pass` alone adds none."""
PROBES: Final = ("/livez", "/readyz")
"""Asked by an orchestrator, which knows no token and names the address of a pod. They say that the server answers."""
COOKIE: Final = "distrl-view"
"""Start of the cookie's name. A digest of the token follows, as servers at other ports of one host get each other's
cookies."""
HTTP_PORT: Final = 80
"""The port that browsers leave out of the Host header."""
MOST_FORM: Final = 4_096
"""Most bytes of the form with the token."""
# A form without an action is sent to the page's own address, whose fragment stays through the redirect.
LOGIN: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>DistRL</title></head><body><main><h1>DistRL</h1><p>{said}</p>
<form method="post"><label>Token <input type="password" name="token" autocomplete="current-password"
required autofocus></label> <button>Open</button></form>
<p>The token is in the file that <code>distrl view --token-file</code> was given.</p></main></body></html>
"""


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def own_hosts(host: str, port: int) -> frozenset[str]:
    """The values of the Host header that name a server of this machine. host: as in an address."""
    names = {host, "localhost", "127.0.0.1", "[::1]"}
    bare = names if port == HTTP_PORT else set()
    return frozenset(bare | {f"{name}:{port}" for name in names})


class Guard:
    """hosts: the values of the Host header that name this server, where it has no token. address: of this server, for
    people. token: None: none is asked.
    """

    def __init__(self, app: ASGIApp, hosts: Collection[str], address: str, token: str | None) -> None:
        self._app, self._hosts, self._address = app, hosts, address
        self._token = None if token is None else token.encode()
        self._cookie = f"{COOKIE}-{self._digest(b'distrl view cookie name')[:16]}"
        self._value = self._digest(b"distrl view cookie")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        request = Request(scope, receive)
        answer = await self._answer(request)
        await (self._app if answer is None else answer)(scope, receive, guarded)

    async def _answer(self, request: Request) -> Response | None:
        """What is answered in place of the application; None where the request may pass."""
        headers = request.headers
        # The path of the scope: that of `request.url` comes from the client's Host header in Starlette before 1.0.1.
        if request.scope["path"] in PROBES and request.method in ("GET", "HEAD"):
            return None
        if self._token is None:
            if headers.get("host", "").lower() not in self._hosts:
                return refusal(421, "the request names another host than this server", f"open {self._address}")
            if any(name in headers for name in FORWARDED):
                return refusal(
                    403,
                    "the request came through a proxy, and this server asks for no token",
                    "start it with `distrl view --token-file FILE`",
                )
        elif request.method == "POST":
            return await self._login(request)
        elif not self._shown(headers, request.cookies.get(self._cookie, "")):
            if "text/html" in headers.get("accept", ""):
                return HTMLResponse(LOGIN.format(said="This page asks for a token."), 401)
            return refusal(401, "the request shows no token", "send `Authorization: Bearer TOKEN`, or use a browser")
        if request.method not in ("GET", "HEAD"):
            return refusal(405, f"{request.method[:20]} is not answered: nothing can be changed here", "use GET")
        return None

    def _shown(self, headers: Headers, cookie: str) -> bool:
        kind, _, given = headers.get("authorization", "").partition(" ")
        return (kind.lower() == "bearer" and self._is_token(given.strip())) or hmac.compare_digest(
            cookie.encode(), self._value.encode()
        )

    def _digest(self, of: bytes) -> str:
        return hmac.digest(self._token or b"", of, hashlib.sha256).hex()

    def _is_token(self, given: str) -> bool:
        return self._token is not None and hmac.compare_digest(given.encode(), self._token)

    async def _login(self, request: Request) -> Response:
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > MOST_FORM:
                return refusal(413, "the form is too large", "send the token alone")
        given = parse_qs(body.decode("utf-8", "replace")).get("token", [""])[0].strip()
        if not self._is_token(given):
            return HTMLResponse(LOGIN.format(said=escape("That is not the token.")), 401)
        answer = RedirectResponse(".", 303)
        secure = request.url.scheme == "https" or request.headers.get("x-forwarded-proto") == "https"
        # Lax: a link of another site opens its page. Nothing can be changed here, and no site may frame a page.
        answer.set_cookie(self._cookie, self._value, httponly=True, samesite="lax", secure=secure)
        return answer
