"""Images without a Docker daemon or a registry: buildah makes them, and the node's containerd takes their archives."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from fetching import cache

from k8s.node.calls import called


@dataclass(frozen=True, slots=True)
class Store:
    """Where buildah keeps layers, containers and what it downloads: all in one folder, which may be deleted."""

    folder: Path

    @classmethod
    def of_user(cls) -> Store:
        return cls(cache() / "node" / "store")

    def buildah(self, *arguments: str | Path) -> str:
        """What a call of buildah prints. Raises CallError."""
        places = ["--root", self.folder / "layers", "--runroot", self.folder / "run", "--storage-driver", "overlay"]
        scratch = self.folder / "tmp"  # of caches that RUN --mount names, too
        scratch.mkdir(parents=True, exist_ok=True)
        return called(["buildah", *map(str, [*places, *arguments])], environment={"TMPDIR": str(scratch)})

    def names(self) -> list[str]:
        return self.buildah("images", "--format", "{{.Name}}:{{.Tag}}").splitlines()

    def has(self, name: str) -> bool:
        return name in self.names()

    def keep_only(self, repository: str, name: str) -> None:
        """Delete other images of the repository of `name`, and layers that no image with a name needs."""
        for other in self.names():
            if other.rpartition(":")[0] == repository and other != name:
                self.buildah("rmi", other)
        self.buildah("rmi", "--prune", "--force")

    def forget_downloads(self) -> None:
        """Delete what RUN --mount=type=cache has kept: gigabytes, for a build that is rare."""
        shutil.rmtree(self.folder / "tmp", ignore_errors=True)

    def of_folder(self, name: str, folder: Path, *configuration: str, base: str = "scratch") -> None:
        """An image of the files of `folder`, over those of `base`; configuration: options of `buildah config`."""
        container = self.buildah("from", base)
        self.buildah("add", container, folder, "/")
        if configuration:
            self.buildah("config", *configuration, container)
        self.buildah("commit", "--rm", "--format", "docker", container, name)

    def of_program(self, name: str, program: Path) -> None:
        """An image of one program without libraries, which is its entry point."""
        container = self.buildah("from", "scratch")
        self.buildah("copy", container, program, f"/{program.name}")
        self.buildah("config", "--entrypoint", f'["/{program.name}"]', container)
        self.buildah("commit", "--rm", "--format", "docker", container, name)

    def archive(self, name: str, file: Path) -> None:
        """The image as a file that `ctr images import` takes."""
        file.unlink(missing_ok=True)
        self.buildah("push", name, f"docker-archive:{file}:{name}")
