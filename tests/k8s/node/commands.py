"""How each program of the node is called."""

from __future__ import annotations

from k8s.node.keys import FRONT, Keys
from k8s.node.layout import ADDRESS, ETCD, NAME, PODS, SERVICES, Layout

ISSUER = "https://kubernetes.default.svc.cluster.local"


def containerd(layout: Layout) -> list[str]:
    return ["containerd", f"--config={layout.state}/containerd.toml"]


def etcd(layout: Layout) -> list[str]:
    return [
        "etcd",
        f"--data-dir={layout.state}/etcd",
        f"--listen-client-urls={ETCD}",
        f"--advertise-client-urls={ETCD}",
        "--listen-peer-urls=http://127.0.0.1:2380",
        "--log-level=error",
        "--unsafe-no-fsync",  # the data ends with the node
    ]


def apiserver(keys: Keys) -> list[str]:
    return [
        "kube-apiserver",
        f"--etcd-servers={ETCD}",
        f"--bind-address={ADDRESS}",
        f"--advertise-address={ADDRESS}",
        "--secure-port=6443",
        f"--tls-cert-file={keys.server.certificate}",
        f"--tls-private-key-file={keys.server.key}",
        f"--token-auth-file={keys.tokens}",
        "--authorization-mode=Node,RBAC",
        f"--service-account-issuer={ISSUER}",
        f"--service-account-key-file={keys.service_accounts}",
        f"--service-account-signing-key-file={keys.service_accounts}",
        f"--service-cluster-ip-range={SERVICES}",
        "--kubelet-preferred-address-types=InternalIP",
        # Servers of further APIs, as KEDA's of metrics, which believe whom these name.
        f"--requestheader-client-ca-file={keys.front_authority}",
        f"--requestheader-allowed-names={FRONT}",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={keys.front.certificate}",
        f"--proxy-client-key-file={keys.front.key}",
        "--enable-aggregator-routing",
    ]


def controller_manager(layout: Layout, keys: Keys) -> list[str]:
    return [
        "kube-controller-manager",
        f"--kubeconfig={layout.kubeconfig}",
        f"--service-account-private-key-file={keys.service_accounts}",
        f"--root-ca-file={keys.authority}",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
    ]


def scheduler(layout: Layout) -> list[str]:
    return [
        "kube-scheduler",
        f"--kubeconfig={layout.kubeconfig}",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
    ]


def kubelet(layout: Layout, keys: Keys) -> list[str]:
    return [
        "kubelet",
        f"--config={layout.state}/kubelet.yaml",
        f"--kubeconfig={keys.kubelet}",
        f"--hostname-override={NAME}",
        f"--node-ip={ADDRESS}",
    ]


def proxy(keys: Keys) -> list[str]:
    return [
        "kube-proxy",
        f"--kubeconfig={keys.proxy}",
        f"--hostname-override={NAME}",
        "--proxy-mode=nftables",
        f"--cluster-cidr={PODS}",
        f"--bind-address={ADDRESS}",
        "--metrics-bind-address=127.0.0.1:10249",
        "--healthz-bind-address=127.0.0.1:10256",
        "--conntrack-max-per-core=0",  # a setting of the whole machine: leave it
        "--conntrack-min=0",
    ]


def netpol(layout: Layout) -> list[str]:
    return ["netpol", f"--kubeconfig={layout.kubeconfig}"]
