"""HTML shared by the report and the pages of episodes. Everything is in the page itself; no script, no other server."""

from __future__ import annotations

import base64
from html import escape

from distrl.text import printable

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
"""Content-Security-Policy: were some text not escaped, the browser would still run and fetch nothing."""


def document(title: str, style: str, body: str) -> str:
    """A whole page. title: HTML. style: CSS. body: HTML."""
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title} · DistRL</title>\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<style>{style}</style></head>\n'
        f"<body><main>\n{body}\n</main></body></html>\n"
    )


def visible(text: object) -> str:
    """Untrusted text as HTML: markup is escaped, and control characters, which may turn the line's direction, too."""
    return escape(printable(str(text)))


def png_uri(png: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"


def rows(pairs: dict[str, str]) -> str:
    """A table of names and values. Both are HTML; empty values are left out."""
    return (
        "<table>"
        + "".join(f"<tr><th>{name}</th><td>{value}</td></tr>" for name, value in pairs.items() if value)
        + "</table>"
    )
