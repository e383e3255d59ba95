"""The Dockerfile and what it is given. `make test-k8s` builds it and runs what comes out."""

from __future__ import annotations

import re
import shlex
import tomllib

from k8s.image import ROOT, sources

LINES = (ROOT / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
WORDS = [shlex.split(line, comments=True) for line in LINES]


def test_it_copies_everything_that_the_build_is_given() -> None:
    """A file that is left out of the context fails a build; one that is there and unused invalidates its layers."""
    copied = {name for word, *names in filter(None, WORDS) if word == "COPY" for name in names[:-1]}
    assert {name for name in copied if not name.startswith(("--from=", "/"))} == set(sources())


def test_every_source_is_there() -> None:
    assert [name for name in sources() if not (ROOT / name).exists()] == []


def test_what_makes_the_image_is_pinned() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    for requirement in groups["image"]:
        name = requirement.partition(">")[0]
        assert f"\n{name}==" in lock, name


def test_all_stages_stand_on_a_base_that_is_pinned_by_its_digest() -> None:
    (base,) = (words[1] for words in WORDS if words[:1] == ["ARG"])
    assert re.fullmatch(r"BASE=debian:bookworm-\d{8}-slim@sha256:[0-9a-f]{64}", base)
    stages = [words[1] for words in WORDS if words[:1] == ["FROM"]]
    named = [words[3] for words in WORDS if words[:1] == ["FROM"]]
    assert set(stages) <= {"${BASE}", *named}
