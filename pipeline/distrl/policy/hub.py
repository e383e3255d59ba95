"""Base models named as on the Hugging Face Hub: `organisation/model@revision`.

The files are downloaded once, into the library's own cache (HF_HOME), and read from there like any directory. What a
run is bound to is the sha256 of the files and not the name: a branch that moves is noticed by every role.
"""

from __future__ import annotations

import logging
import re
from functools import lru_cache
from pathlib import Path
from typing import Final

from distrl.errors import PolicyError
from distrl.policy.vlm.directory import DECIDING
from distrl.text import first_line

LOG = logging.getLogger("distrl.policy.hub")

NAME: Final = re.compile(r"(?P<model>\w[\w.-]*/\w[\w.-]*)@(?P<revision>\w[\w./-]*)", re.ASCII)
UNREACHED: Final = (
    "correct the network, or download it elsewhere (`hf download`) and name the directory in policy.base_model"
)


def located(base_model: Path) -> Path:
    """The directory of a base model: itself, or where the files lie that it names on a hub. Raises PolicyError."""
    if base_model.exists() or NAME.fullmatch(str(base_model)) is None:
        return base_model
    return downloaded(str(base_model))


@lru_cache(maxsize=8)
def downloaded(name: str, endpoint: str | None = None, cache: Path | None = None) -> Path:
    """The directory with the files of `name`, which fits NAME; fetched where they are not there. Raises PolicyError.

    endpoint, cache: the library's own (HF_ENDPOINT, HF_HOME) where None. A revision that is a commit and was fetched
    before is found without a network.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

    model, revision = name.split("@")
    LOG.info("looking for %s of %s; what is not in the cache is downloaded", revision, model)
    try:
        return Path(
            snapshot_download(
                model,
                revision=revision,
                endpoint=endpoint,
                cache_dir=cache,
                allow_patterns=sorted(f"*{suffix}" for suffix in DECIDING),
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
        is_local = isinstance(error, OSError) and error.errno is not None and not isinstance(error, ConnectionError)
        if is_local:
            problem, hint = f"cannot be kept ({first_line(error)})", "make room, or set HF_HOME to a folder with more"
        else:
            problem, hint = f"cannot be fetched, and is not whole in the cache ({first_line(error)})", UNREACHED
    raise PolicyError(f"policy.base_model={name}", problem, hint)
