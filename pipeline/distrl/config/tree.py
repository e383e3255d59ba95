"""Every setting of the system in one typed tree: the sections, and what they must agree on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, SecretStr, model_validator

from distrl.config.algorithm_plugins import ByType
from distrl.config.algorithms import AlgorithmSettings, ArideSettings, GrpoSettings, WarmupSettings, named
from distrl.config.effects import Effect, Section, effects, learned, shared
from distrl.config.phones import OPERATIONS_PER_LEASE, AdbSettings, DeviceSettings, PhoneSettings
from distrl.config.sections import (
    AppAgentSettings,
    EvaluateSettings,
    FeederSettings,
    JudgeSettings,
    KafkaSettings,
    LearnerSettings,
    LoggingSettings,
    MonitoringSettings,
    PolicySettings,
    StackSettings,
    StoreSettings,
    TracingSettings,
    WorkerSettings,
)

LEARNING = ("policy", "warmup", "algorithm", "learner")
"""The sections that the fold reads."""
CLIENT = ("kafka", "client")
"""Path of the only setting that is a mapping; its keys are librdkafka's."""
RUN_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")


def _run_name(value: str) -> str:
    if not RUN_NAME.fullmatch(value):
        raise ValueError("a run is named with 1 to 63 of a-z, 0-9 and '-', starting with a letter or digit")
    return value


class Config(Section):
    run: Annotated[str, AfterValidator(_run_name)] = "demo"
    kafka: KafkaSettings = KafkaSettings()
    store: StoreSettings = StoreSettings()
    adb: AdbSettings = AdbSettings()
    devices: DeviceSettings = DeviceSettings()
    phones: PhoneSettings = PhoneSettings()
    feeder: FeederSettings = FeederSettings()
    worker: WorkerSettings = WorkerSettings()
    policy: PolicySettings = PolicySettings()
    warmup: WarmupSettings = WarmupSettings()
    algorithm: Annotated[AlgorithmSettings, ByType(), BeforeValidator(named)] = ArideSettings()
    learner: LearnerSettings = LearnerSettings()
    evaluate: EvaluateSettings = EvaluateSettings()
    judge: JudgeSettings = JudgeSettings()
    appagent: AppAgentSettings = AppAgentSettings()
    monitoring: MonitoringSettings = MonitoringSettings()
    logging: LoggingSettings = LoggingSettings()
    tracing: TracingSettings = TracingSettings()
    stack: StackSettings = StackSettings()

    @model_validator(mode="after")
    def _agree(self) -> Config:
        if self.learner.rebuild_window < self.learner.trajectories_per_update:
            raise ValueError("learner.rebuild_window must be at least learner.trajectories_per_update")
        capacity = self.algorithm.replay.capacity
        if self.learner.rebuild_window < capacity:
            raise ValueError(
                f"learner.rebuild_window ({self.learner.rebuild_window} records) must be at least "
                f"algorithm.replay.capacity ({capacity} transitions): a trajectory may have one step, and a restart "
                "reads all back"
            )
        if self.feeder.curriculum and self.feeder.tasks:
            raise ValueError("feeder.curriculum weighs the families of a suite; feeder.tasks is fed in rounds")
        if isinstance(self.algorithm, GrpoSettings) and self.episodes_per_task < self.algorithm.group_size:
            raise ValueError(
                f"algorithm.group_size ({self.algorithm.group_size}) must be at most feeder.episodes_per_task "
                f"({self.episodes_per_task}): no group of episodes would ever be whole"
            )
        if isinstance(self.algorithm, GrpoSettings) and self.algorithm.group_size > capacity:
            raise ValueError(
                f"algorithm.group_size ({self.algorithm.group_size}) must be at most algorithm.replay.capacity "
                f"({capacity} transitions): no group of episodes would ever be whole in the buffer"
            )
        operation_s, lease_s = self.devices.operation_timeout_s, self.devices.lease_ttl_s
        if operation_s > lease_s / OPERATIONS_PER_LEASE:
            raise ValueError(
                f"devices.lease_ttl_s ({lease_s:g}) must be at least {OPERATIONS_PER_LEASE} times "
                f"devices.operation_timeout_s ({operation_s:g}): an operation that begins just before the lease is no "
                "longer used must end before another host may take the phone"
            )
        if self.devices.settle_unchanged_s >= self.devices.settle_timeout_s:
            raise ValueError("devices.settle_unchanged_s must be less than devices.settle_timeout_s")
        for name, chat in (("judge", self.judge), ("appagent", self.appagent)):
            if chat.endpoint and not chat.model:
                raise ValueError(f"{name}.endpoint needs {name}.model, the name of a model that it serves")
        if self.judge.validity != "none" and not self.judge.endpoint:
            raise ValueError("judge.validity needs judge.endpoint, the base URL of a chat endpoint")
        return self

    @property
    def episodes_per_task(self) -> int:
        """How often the feeder feeds each task: as set, else as often as the algorithm needs."""
        needed = self.algorithm.group_size if isinstance(self.algorithm, GrpoSettings) else 1
        return self.feeder.episodes_per_task or needed

    def secrets(self) -> dict[str, SecretStr]:
        """Path -> every secret that is set, in the sections, those in sections, and kafka.client."""
        found = dict(_leaves(self))
        found |= {f"kafka.client.{name}": value for name, value in self.kafka.client.items()}
        return {path: value for path, value in found.items() if isinstance(value, SecretStr)}

    def tree(self, *, with_secrets: bool) -> dict[str, Any]:
        """Every setting, as for a YAML file. Secrets are in the clear, or left out."""
        tree = self.model_dump(mode="json")
        for path, secret in self.secrets().items():
            *sections, name = path_of(path.split("."))
            node = tree
            for section in sections:
                node = node[section]
            if with_secrets:
                node[name] = secret.get_secret_value()
            else:
                del node[name]  # a mask would be read as the secret where the file is used
        return tree

    def effects(self) -> dict[str, Effect]:
        """Path -> effect of every setting that the fold reads."""
        return {path: each for name in LEARNING for path, each in effects(getattr(self, name), name)}

    def shared(self) -> dict[str, Any]:
        """Path -> JSON-able value of every setting that belongs to the run, and not to a machine or a process."""
        return {
            path: each for name, section in self if isinstance(section, Section) for path, each in shared(section, name)
        }

    def learning_settings(self) -> dict[str, Any]:
        """The settings that the fold reads, by section and name, JSON-able."""
        return {name: learned(getattr(self, name)) for name in LEARNING}


def _leaves(section: Section, above: str = "") -> Iterator[tuple[str, Any]]:
    """Path -> value of every setting below `section`."""
    for name, value in section:
        if isinstance(value, Section):
            yield from _leaves(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


def path_of(parts: list[str]) -> list[str]:
    """The path of a setting as names. What follows kafka.client is one name, with its dots."""
    return [*CLIENT, ".".join(parts[2:])] if tuple(parts[:2]) == CLIENT and len(parts) > 2 else parts
