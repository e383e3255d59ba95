"""Every setting of the system: sections.py, phones.py and algorithms.py declare them, algorithm_plugins.py finds those
of other packages, tree.py assembles them, loading.py reads them, and effects.py has what each one decides of a run."""

from distrl.config.algorithms import (
    ArideSettings,
    BufferSettings,
    CloningSettings,
    DescentSettings,
    PluginSettings,
    PrioritisedReplaySettings,
    ReplaySettings,
    WarmupSettings,
)
from distrl.config.effects import Effect, Section, When
from distrl.config.loading import load, sources, with_run
from distrl.config.names import ENV_PREFIX, may_hold_secret
from distrl.config.phones import AdbSettings, DeviceSettings, EmulatorSettings, PhoneSettings
from distrl.config.refusals import UnsoundHereError
from distrl.config.sections import (
    AppAgentSettings,
    ChatSettings,
    EvaluateSettings,
    FeederSettings,
    JudgeSettings,
    KafkaSettings,
    LearnerSettings,
    LoggingSettings,
    MonitoringSettings,
    PolicySettings,
    ServerSettings,
    StackSettings,
    StoreSettings,
    TracingSettings,
    WorkerSettings,
)
from distrl.config.tree import LEARNING, RUN_NAME, Config

__all__ = [
    "ENV_PREFIX",
    "LEARNING",
    "RUN_NAME",
    "AdbSettings",
    "AppAgentSettings",
    "ArideSettings",
    "BufferSettings",
    "ChatSettings",
    "CloningSettings",
    "Config",
    "DescentSettings",
    "DeviceSettings",
    "Effect",
    "EmulatorSettings",
    "EvaluateSettings",
    "FeederSettings",
    "JudgeSettings",
    "KafkaSettings",
    "LearnerSettings",
    "LoggingSettings",
    "MonitoringSettings",
    "PhoneSettings",
    "PluginSettings",
    "PolicySettings",
    "PrioritisedReplaySettings",
    "ReplaySettings",
    "Section",
    "ServerSettings",
    "StackSettings",
    "StoreSettings",
    "TracingSettings",
    "UnsoundHereError",
    "WarmupSettings",
    "When",
    "WorkerSettings",
    "load",
    "may_hold_secret",
    "sources",
    "with_run",
]
