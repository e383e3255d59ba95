"""Every setting of the system: sections.py, phones.py and algorithms.py declare them, tree.py reads them, effects.py
tells what each one decides of a run."""

from distrl.config.algorithms import Aride, Buffer, Cloning, Descent, PrioritisedReplay, Replay, Warmup
from distrl.config.effects import Section
from distrl.config.phones import Adb, Devices, Emulators, Phones
from distrl.config.sections import (
    AppAgent,
    Chat,
    Evaluate,
    Feeder,
    Judge,
    Kafka,
    Learner,
    Policy,
    Stack,
    Store,
    Worker,
)
from distrl.config.tree import ENV_PREFIX, LEARNING, RUN_NAME, Config, load, with_run

__all__ = [
    "ENV_PREFIX",
    "LEARNING",
    "RUN_NAME",
    "Adb",
    "AppAgent",
    "Aride",
    "Buffer",
    "Chat",
    "Cloning",
    "Config",
    "Descent",
    "Devices",
    "Emulators",
    "Evaluate",
    "Feeder",
    "Judge",
    "Kafka",
    "Learner",
    "Phones",
    "Policy",
    "PrioritisedReplay",
    "Replay",
    "Section",
    "Stack",
    "Store",
    "Warmup",
    "Worker",
    "load",
    "with_run",
]
