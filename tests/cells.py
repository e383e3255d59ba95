"""What the tests of rights share: a refusal, and whether a cell of the table holds."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from distrl.rights.roles import ROLES

EACH_ROLE = pytest.mark.parametrize("role", ROLES.values(), ids=lambda role: role.name)


class RefusedError(Exception):
    """The broker or the store says that the user may not."""


def holds(may: bool, do: Callable[..., None], *given: str) -> None:
    if may:
        do(*given)
    else:
        with pytest.raises(RefusedError):
            do(*given)
