"""Base models named as on the Hugging Face Hub: `organisation/model@revision`.

The files are downloaded once, into the library's own cache (HF_HOME), and read from there like any directory. What a
run is bound to is the sha256 of the files and not the name: a branch that moves is noticed by every role.

A command is offline but for these downloads: nothing else that it reads is on a hub.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Final

from distrl.errors import PolicyError
from distrl.policy.vlm.directory import DECIDING, TEMPLATE
from distrl.text import first_line

LOG = logging.getLogger("distrl.policy.hub")

NAME: Final = re.compile(r"(?P<model>\w[\w.-]*/\w[\w.-]*)@(?P<revision>\w[\w./-]*)", re.ASCII)
UNPINNED: Final = re.compile(r"\w[\w.-]*/\w[\w.-]*", re.ASCII)
"""A name without its revision, or a directory that is not there."""
ELSEWHERE: Final = "or download it elsewhere (`hf download`) and name the directory in policy.base_model"
OFFLINE: Final = "HF_HUB_OFFLINE"
"""The variable that keeps the library from every request, unless it is 0."""
OFFLINE_BEFORE: Final = "TRANSFORMERS_OFFLINE"
"""The variable that the library reads if OFFLINE is not set."""
BY_DEFAULT: Final = "HF_HUB_OFFLINE_BY_DISTRL"
"""The variable that marks OFFLINE as set by `offline_by_default`, for this process and those that it starts."""

_DOWNLOADING = threading.Lock()
"""Whether the library is offline is one variable of the process."""


def offline_by_default(environ: MutableMapping[str, str]) -> None:
    """Have the library ask no hub but in `downloaded`; what a user has set stands. Called before it is imported."""
    if not {OFFLINE, OFFLINE_BEFORE} & environ.keys():
        environ.update({OFFLINE: "1", BY_DEFAULT: "1"})


def located(base_model: Path) -> Path:
    """The directory of a base model: itself, or where the files lie that it names on a hub. Raises PolicyError."""
    name = str(base_model)
    if base_model.exists():
        return base_model
    if UNPINNED.fullmatch(name):
        raise PolicyError(
            f"policy.base_model={name}",
            "is no directory here, and names no revision on a hub",
            f"name one, as a branch or a commit: {name}@main; or the path of a directory",
        )
    return base_model if NAME.fullmatch(name) is None else downloaded(name)


@lru_cache(maxsize=8)
def downloaded(name: str, endpoint: str | None = None, cache: Path | None = None) -> Path:
    """The directory with the files of `name`, which fits NAME; fetched where they are not there. Raises PolicyError.

    endpoint, cache: the library's own (HF_ENDPOINT, HF_HOME) where None. A revision that is a commit and was fetched
    before is found without a network.
    """
    from huggingface_hub import is_offline_mode, snapshot_download
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

    model, revision = name.split("@")
    LOG.info("looking for %s of %s; what is not in the cache is downloaded", revision, model)
    try:
        with _online():
            return Path(
                snapshot_download(
                    model,
                    revision=revision,
                    endpoint=endpoint,
                    cache_dir=cache,
                    allow_patterns=sorted(f"*{suffix}" for suffix in DECIDING),
                    # of folders within, which may hold gigabytes in another form, templates alone are read
                    ignore_patterns=sorted(f"*/*{suffix}" for suffix in DECIDING - {TEMPLATE}),
                )
            )
    except GatedRepoError:
        problem, hint = (
            "is given only to those who agreed to its terms",
            "agree on its page, and log in (`hf auth login`)",
        )
    except RevisionNotFoundError:
        problem, hint = f"has no revision {revision!r:.60}", "name a branch, a tag or a commit of it after the @"
    except RepositoryNotFoundError:
        problem, hint = "is not on the hub, or is private", "correct the name, or log in (`hf auth login`)"
    except Exception as error:  # the library passes on what its HTTP client raises
        why = first_line(error)
        is_local = isinstance(error, OSError) and error.errno is not None and not isinstance(error, ConnectionError)
        if is_local:
            problem, hint = f"cannot be kept ({why})", "make room, or set HF_HOME to a folder with more"
        elif is_offline_mode() and BY_DEFAULT not in os.environ:
            problem, hint = f"is not whole in the cache, and {OFFLINE} forbids to fetch it", f"unset it, {ELSEWHERE}"
        else:
            problem = f"cannot be fetched, and is not whole in the cache ({why})"
            hint = f"correct the network, {ELSEWHERE}"
    raise PolicyError(f"policy.base_model={name}", problem, hint)


@contextmanager
def _online() -> Iterator[None]:
    """Within, the library may ask the hub, unless a user has said otherwise, and reports nothing of this machine: it
    would fetch a list of agents too, to say in each request whether one has started it."""
    from huggingface_hub import constants

    with _DOWNLOADING:
        before = constants.HF_HUB_OFFLINE, constants.HF_HUB_DISABLE_TELEMETRY
        constants.HF_HUB_OFFLINE = before[0] and BY_DEFAULT not in os.environ
        constants.HF_HUB_DISABLE_TELEMETRY = True
        try:
            yield
        finally:
            constants.HF_HUB_OFFLINE, constants.HF_HUB_DISABLE_TELEMETRY = before
