"""What a worker, an evaluator and a dry run refuse of a server before they take a task."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from chat.server import body
from chat.server import serving as replying
from distrl.config import Config, ServerSettings, load
from distrl.errors import ConfigError
from distrl.policy.sampling import FULL, Sampling
from distrl.rollout.served.server import ModelServer as Client
from distrl.rollout.serving import serving
from model_server import ModelServer
from pydantic import SecretStr

from rollout.served.world import RUN, settings


@pytest.fixture
def config(base: Path, tmp_path: Path, server: ModelServer) -> Config:
    policy = settings(base, tmp_path / "adapters", server.url)
    return Config(run=RUN, policy=policy)


@pytest.mark.parametrize(
    ("wrong", "message", "hint"),
    [
        ({"lora": False}, "LoRA is not enabled", "--enable-lora"),
        ({"runtime_updates": False}, "load_lora_adapter", "VLLM_ALLOW_RUNTIME_LORA_UPDATING"),
        ({"key": "secret"}, "refuses it", "--api-key"),
    ],
)
def test_a_server_that_can_load_no_adapters_is_refused_before_there_is_a_version(
    config: Config, server: ModelServer, wrong: dict[str, object], message: str, hint: str
) -> None:
    for name, value in wrong.items():
        setattr(server, name, value)
    with pytest.raises(ConfigError, match=message) as refused, serving(config, FULL):
        pytest.fail("it would have begun")
    assert hint in refused.value.hint


def test_a_server_that_is_still_starting_is_waited_for(
    config: Config, server: ModelServer, caplog: pytest.LogCaptureFixture
) -> None:
    """It is asked again when there is a version to load."""
    server.away = True
    with serving(config, FULL) as policy:
        assert policy.decider.loaded is None
    assert "not ready yet" in caplog.text


def test_one_that_takes_adapters_is_given_none_that_is_not_there(
    config: Config, server: ModelServer, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), serving(config, FULL):
        assert not server.adapters
    assert not caplog.records


def test_a_redirect_is_the_endpoints_fault_and_is_not_followed() -> None:
    with replying(body(b"{}")) as other, replying(body(b"", 308, {"Location": other.url})) as server:
        client = Client(ServerSettings(endpoint=server.url, api_key=SecretStr("s3cret"), adapters=Path("/adapters")))
        with pytest.raises(ConfigError) as refused:
            client.load("a", "/a")
        with pytest.raises(ConfigError):
            client.write({"model": "a"})
        assert (len(server.requests), other.requests) == (2, [])
    assert refused.value.where == "policy.server.endpoint"
    assert f"answers 308, a redirect to '{other.url}'" in refused.value.what
    assert "policy.server.endpoint" in refused.value.hint


def test_a_ladder_without_a_recurrent_q_is_refused(config: Config) -> None:
    """Nothing else has an ε, and the probabilities would be those of no ladder, unnoticed."""
    worker = load(sets=["worker.ladder.rungs=8"], environ={}).worker
    for each in (config, Config(run=RUN)):
        with pytest.raises(ConfigError, match=r"worker\.ladder\.rungs"), serving(each, Sampling.of(worker)):
            pytest.fail("it would have begun")


def test_a_temperature_that_the_server_would_raise_is_refused(config: Config) -> None:
    with pytest.raises(ConfigError, match=r"worker\.temperature: is 0\.005"), serving(config, Sampling(0.005)):
        pytest.fail("it would have begun")
