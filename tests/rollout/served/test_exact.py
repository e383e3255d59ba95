"""What a server writes is scored by the learner as it was drawn, for each family of models."""

from __future__ import annotations

from pathlib import Path

import factories
import numpy as np
import pytest
from distrl.policy.sampling import Sampling
from model_server import model_server
from policy.vlm.models import FAMILIES

from rollout.served.world import learned, processes, seen


@pytest.mark.parametrize(
    ("sampling", "history"), [(Sampling(0.7), 0), (Sampling(0.9, 0.8, 5), 0), (Sampling(0.9, 0.8, 5), 2)]
)
@pytest.mark.parametrize("family", FAMILIES)
def test_ratio_is_one_between_server_and_learner(family: str, sampling: Sampling, history: int, tmp_path: Path) -> None:
    """ρ of what the server drew, scored by the learner at equal weights, is 1 within 1e-4; the learner is given the
    recorded ids alone. The server runs the library's own pass over pixels."""
    base = tmp_path / "base"
    base.mkdir()
    FAMILIES[family](base)
    learner = learned(base, tmp_path, history)
    version, adapter = learner.version(3)
    with (
        model_server(base) as server,
        processes(base, tmp_path / "adapters", server)(sampling, history_screens=history) as policy,
    ):
        policy.swap(version, adapter)
        for step in range(4):
            observation = seen(step, history_screens=policy.earlier_screens)
            assert len(observation.earlier) == min(step, history)
            chosen = policy.decide(observation)
            recorded = factories.step(prompt_ids=chosen.prompt_ids, action_ids=chosen.action_ids)
            assert learner.policy.tokenizer.accepts(recorded, step)
            *earlier, now = map(learner.policy.image_features, (*observation.earlier, observation.png))
            read = now._replace(earlier=tuple(earlier))
            score = learner.policy.score([recorded], [read], sampling).logprob.item()
            assert np.exp(score - chosen.logprob) == pytest.approx(1.0, abs=1e-4)
            assert (chosen.version, chosen.version_sha256) == (3, version.adapter.sha256)
