"""Which settings the other side of a copy may have."""

from __future__ import annotations

import pytest
from distrl.config import Config, load
from distrl.errors import ConfigError
from distrl.runs import copy
from distrl.runs.settings import learning_fingerprint, run_settings
from distrl.types import Update

RUN = load(sets=["algorithm.gamma=0.9"], environ={})


@pytest.mark.parametrize(("to", "refused"), [(RUN, False), (load(environ={}), True)])
def test_a_run_that_has_recorded_no_settings_is_not_copied_to_other_learning_settings(
    to: Config, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its journal says of them a fingerprint alone: one of earlier software."""
    monkeypatch.setattr(copy, "recorded", lambda config: None)
    monkeypatch.setattr(copy, "journal_lines", lambda config: [Update(0, (), learning_fingerprint(RUN), 0)])
    if not refused:
        copy._refuse_other_learning(RUN, to, run_settings(to))
        return
    with pytest.raises(ConfigError, match="would not learn as run demo does, which has recorded no settings"):
        copy._refuse_other_learning(RUN, to, run_settings(to))
