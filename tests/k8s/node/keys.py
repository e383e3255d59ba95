"""Who may do what on the node: one authority, the API server's certificate, and a token for each of three users.

A second authority signs what the API server shows to servers behind it, as KEDA's of metrics: the first would let every
certificate that it signed speak for any user.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from pathlib import Path

from certificates import Authority, Pair

from k8s.node.layout import ADDRESS, API, API_SERVICE, NAME

SERVER_NAMES = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")


@dataclass(frozen=True, slots=True)
class Keys:
    authority: Path
    server: Pair
    service_accounts: Path
    """The private key that signs the tokens of pods."""
    tokens: Path
    """What the API server knows users by."""
    kubelet: Path
    proxy: Path
    front_authority: Path
    front: Pair


FRONT = "front-proxy"
"""Whom servers behind the API server let speak for its users."""


def make(folder: Path, administrator: Path) -> Keys:
    """New keys in `folder`, kubeconfig files of kubelet and kube-proxy there, and the administrator's where it says."""
    authority = Authority(folder)
    hosts = [f"IP:{address}" for address in ("127.0.0.1", ADDRESS, API_SERVICE)]
    server = authority.issue("kube-apiserver", hosts=[*hosts, *(f"DNS:{name}" for name in SERVER_NAMES)])
    front_authority = Authority(folder / FRONT)
    keys = Keys(
        authority=authority.certificate,
        server=server,
        service_accounts=authority.issue("service-accounts").key,
        tokens=folder / "tokens.csv",
        kubelet=folder / "kubelet.kubeconfig",
        proxy=folder / "proxy.kubeconfig",
        front_authority=front_authority.certificate,
        front=front_authority.issue(FRONT),
    )
    users = (
        (administrator, "admin", "system:masters"),
        (keys.kubelet, f"system:node:{NAME}", "system:nodes"),
        (keys.proxy, "system:kube-proxy", ""),
    )
    rows = []
    for config, user, group in users:
        token = secrets.token_hex(16)
        rows.append(f'{token},{user},{user},"{group}"\n')
        config.write_text(_kubeconfig(authority.certificate, token))
        config.chmod(0o600)
    keys.tokens.write_text("".join(rows))
    return keys


def _kubeconfig(authority: Path, token: str) -> str:
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "node", "cluster": {"server": API, "certificate-authority": str(authority)}}],
            "users": [{"name": "user", "user": {"token": token}}],
            "contexts": [{"name": "node", "context": {"cluster": "node", "user": "user"}}],
            "current-context": "node",
        }
    )
