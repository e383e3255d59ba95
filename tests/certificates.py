"""Certificates for the tests, made by the `openssl` program: an authority, a server's, a client's."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

LOCAL = ("IP:127.0.0.1", "DNS:localhost")
KEY_PASSWORD = "right-key-password"  # of keys that live as long as a test session


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its private key, both PEM."""

    certificate: Path
    key: Path


class Authority:
    """A certificate authority of its own, in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.certificate = folder / "ca.pem"
        self._key = folder / "ca.key"
        _openssl(
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=test authority",
            "-addext",
            "keyUsage=critical,keyCertSign,cRLSign",  # Python 3.13 refuses an authority without it
            "-keyout",
            self._key,
            "-out",
            self.certificate,
        )

    def issue(self, name: str, password: str | None = None, hosts: Sequence[str] = LOCAL) -> Pair:
        """A certificate of `hosts` for CN=`name`; its key is encrypted with `password`, if given."""
        key, request, made = (self._folder / f"{name}.{suffix}" for suffix in ("key", "csr", "pem"))
        hidden = ["-passout", f"pass:{password}"] if password else ["-nodes"]
        _openssl("req", "-newkey", "rsa:2048", *hidden, "-subj", f"/CN={name}", "-keyout", key, "-out", request)
        extensions = self._folder / "extensions"
        extensions.write_text(
            f"subjectAltName={','.join(hosts)}\nsubjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n"
        )
        _openssl(
            "x509",
            "-req",
            "-in",
            request,
            "-CA",
            self.certificate,
            "-CAkey",
            self._key,
            "-CAcreateserial",
            "-days",
            "2",
            "-extfile",
            extensions,
            "-out",
            made,
        )
        return Pair(made, key)


def _openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=60)
