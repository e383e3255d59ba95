"""One body for every server: the stand-in in each run of the tests, and a real vLLM, which somebody has started
(docs/serving.md says how), where `-m vllm` asks for it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import factories
import pytest
from distrl.policy.sampling import FULL
from distrl.rollout.episode import Decision
from distrl.rollout.served.names import is_of, name_of
from distrl.rollout.served.server import ModelServer
from model_server import ModelServer as StandIn

from rollout.served.world import RUN, Learned, learned, leaving, process, seen, settings

DECISIONS = 8
SCALE = 0.02
"""Of the random adapters: enough to change what a trained model writes, and not so much that it writes noise."""
CLOSE = 0.05
"""How far the log-probability of an action of at most 23 tokens may be from the learner's, in nats, both in float32.
Chosen, not measured."""


def given(name: str) -> str:
    return os.environ.get(name) or pytest.fail(f"{name} is not set: docs/serving.md, 'Against a real server'")


@pytest.mark.vllm
@pytest.mark.timeout(3600)
def test_a_real_server_draws_by_the_adapter_that_it_was_given_and_reports_its_probabilities() -> None:
    base, folder = Path(given("SERVED_BASE_MODEL")), Path(given("SERVED_ADAPTERS"))
    draws_by_its_adapter(base, folder, given("SERVED_ENDPOINT"), SCALE, CLOSE)


def test_the_stand_in_does_what_is_asked_of_a_real_server(base: Path, server: StandIn, tmp_path: Path) -> None:
    draws_by_its_adapter(base, tmp_path / "adapters", server.url, 0.1, 1e-4)


def draws_by_its_adapter(base: Path, folder: Path, url: str, scale: float, close: float) -> None:
    chosen = settings(base, folder, url, timeout_s=600.0)
    learner, server = learned(base, folder), ModelServer(chosen.server)

    def there() -> list[str]:
        return [name for name in server.adapters() if is_of(RUN, name)]

    with leaving(process(chosen)) as policy:
        policy.refuse_unable()
        for number in (1, 2):
            version, adapter = learner.version(number, scale)
            policy.swap(version, adapter)
            assert there() == [name_of(RUN, version)], "the old one is unloaded"
            drawn = [policy.decide(seen(step)) for step in range(DECISIONS)]
            assert {each.version_sha256 for each in drawn} == {version.adapter.sha256}
            apart = distances(learner, drawn)
            print(f"version {number}: {' '.join(f'{each:.2g}' for each in apart)} nats")
            assert apart[-1] < close
        learner.version(1, scale)
        assert distances(learner, drawn)[-1] > apart[-1], "the second adapter wrote them, not the first"
        server.unload(name_of(RUN, version))
        assert policy.decide(seen()).action_ids == drawn[0].action_ids, "what it has lost is loaded again"
    assert there() == []


def distances(learner: Learned, drawn: Sequence[Decision]) -> list[float]:
    """The differences of log-probabilities, in nats, between those recorded and those of the learner's weights; the
    largest last."""
    steps = [factories.step(prompt_ids=each.prompt_ids, action_ids=each.action_ids) for each in drawn]
    features = [learner.policy.image_features(seen(step).png) for step in range(len(drawn))]
    found = learner.policy.score(steps, features, FULL).logprob.tolist()
    return sorted(abs(score - each.logprob) for score, each in zip(found, drawn, strict=True))
