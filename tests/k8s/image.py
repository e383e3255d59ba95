"""The image that pods run: the Dockerfile's, executed by buildah, on a Debian that debootstrap makes.

Where Docker builds it, the Dockerfile begins with Debian's published image; no registry is reached here, so its base is
made of the same packages. From there on it is the same file, instruction by instruction.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import time
from pathlib import Path

from fetching import Say
from filelock import FileLock

from k8s.node.calls import called
from k8s.node.images import Store

ROOT = Path(__file__).parents[2]
REPOSITORY = "localhost/distrl"
ENVIRONMENT = "localhost/distrl-environment:cpu"
BASE = "localhost/debian:bookworm"
AUTHORITIES = Path("/usr/local/share/ca-certificates")
"""Where this machine's administrator adds certificate authorities: what the build downloads through, it trusts too."""
TRUSTED = "/etc/ssl/certs/ca-certificates.crt"


def build(store: Store, say: Say) -> str:
    """The name of the image of this checkout in `store`; built unless it is there."""
    name = f"{REPOSITORY}:{_digest()}"
    store.folder.mkdir(parents=True, exist_ok=True)
    with FileLock(store.folder / "build.lock"):
        if not store.has(name):
            _build(store, name, say)
    return name


def _build(store: Store, name: str, say: Say) -> None:
    if not store.has(BASE):
        say("making Debian's base image (a minute, once)")
        _make_base(store)
    say("building the image (minutes where requirements.lock or the Dockerfile changed, else less)")
    began = time.monotonic()
    # Named, it stays: the large layer, which other code does not change.
    for target, tag in (("cpu-environment", ENVIRONMENT), ("cpu", name)):
        store.buildah(
            "build",
            "--isolation=chroot",
            "--layers",
            f"--build-arg=BASE={BASE}",
            f"--target={target}",
            f"--tag={tag}",
            ROOT,
        )
    store.keep_only(REPOSITORY, name)
    store.forget_downloads()
    say(f"built {name} in {time.monotonic() - began:.0f} s")


def sources() -> list[str]:
    """Files and folders that the Dockerfile's build sees: what .dockerignore lets in."""
    return [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]


def _digest() -> str:
    """Changes with every byte of what goes into the image."""
    digest = hashlib.sha256()
    for source in ["Dockerfile", *sources()]:
        top = ROOT / source
        files = sorted(top.rglob("*")) if top.is_dir() else [top]
        for file in files:
            if file.is_file() and "__pycache__" not in file.parts:
                digest.update(f"{file.relative_to(ROOT).as_posix()}\0".encode() + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _make_base(store: Store) -> None:
    with tempfile.TemporaryDirectory(dir=store.folder, prefix="debian.") as scratch:
        root = Path(scratch) / "root"
        called(["debootstrap", "--variant=minbase", "bookworm", str(root)])
        shutil.rmtree(root / "var/cache/apt/archives")
        shutil.rmtree(root / "var/lib/apt/lists")
        if AUTHORITIES.is_dir():
            shutil.copytree(AUTHORITIES, root / AUTHORITIES.relative_to("/"))
        store.of_folder(BASE, root, f"--env=SSL_CERT_FILE={TRUSTED}", f"--env=PIP_CERT={TRUSTED}")
