"""What a worker, an evaluator and a dry run refuse of a server before they take a task."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from chat.server import body
from chat.server import serving as replying
from distrl.cli.main import app
from distrl.config import Config, ServerSettings, load
from distrl.errors import ConfigError
from distrl.evaluate.run import CLOSING, greedy
from distrl.policy.sampling import FULL, Sampling
from distrl.policy.vlm.processor import Processor
from distrl.rollout.episode import Episode
from distrl.rollout.served.names import name_of
from distrl.rollout.served.server import ModelServer as Client
from distrl.rollout.serving import serving
from distrl.rollout.wiring import TRUTH
from distrl.train.roles import write_settings
from model_server import ModelServer
from pydantic import SecretStr
from typer.testing import CliRunner
from waiting import until

from rollout.served.world import RUN, Learned, settings


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


def test_an_evaluator_that_stops_waits_for_no_more_than_one_request_of_a_version_that_loads(
    config: Config, learner: Learned, server: ModelServer
) -> None:
    version, adapter = learner.version(1)
    stop, server.hold = threading.Event(), threading.Event()
    episode = Episode("evaluator", lambda png: pytest.fail("nothing is played"), TRUTH)

    def play() -> None:
        greedy(config, version, adapter, (), episode, pytest.fail, stop=stop, give_up=threading.Event())

    with ThreadPoolExecutor(1) as pool:
        playing = pool.submit(play)
        assert server.asked.wait(30)
        asked = len(server.events)
        stop.set()
        until(lambda: all(each.name != CLOSING for each in threading.enumerate()))
        server.hold.set()
        playing.result(30)
    name = name_of(RUN, version)
    assert server.events[asked:] == [("answer", name), ("unload", name)], "it is asked nothing more"


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


def test_config_check_reads_the_processor_of_a_served_model_once(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Path] = []
    opened = Processor._open

    def counted(self: Processor, directory: Path, template: str | None, images: int) -> None:
        read.append(directory)
        opened(self, directory, template, images)

    monkeypatch.setattr(Processor, "_open", counted)
    write_settings(config, tmp_path / "run.yaml")
    ended = CliRunner().invoke(app, ["config", "check", "-c", str(tmp_path / "run.yaml")])
    assert (ended.exit_code, len(read)) == (0, 1), ended.output
