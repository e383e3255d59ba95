"""Which settings an ablation may change, and the arms that a command line names. Pure: settings in, arms out.

An arm is the run's settings with some of them changed. The first one is always `baseline`, which changes none. All
arms keep the run's name and seed, so they draw the same random numbers and differ in what was changed alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from distrl import config as settings
from distrl.config import Config
from distrl.errors import ConfigError

BASELINE: Final = "baseline"

SECTIONS: Final = ("aride", "replay", "learner", "policy")

REFUSED: Final[Mapping[str, str]] = {
    "learner.publish_every": "decides when versions are published, and an ablation publishes none",
    "learner.checkpoint_every": "changes no result",
    "learner.keep_checkpoints": "changes no result",
    "learner.rebuild_window": "changes no result",
    "learner.torch_threads": "decides how sums are split, and arms are compared by the bit",
    "policy.base_model": "is what the recorded token ids and probabilities belong to",
}
"""Settings of the sections that no arm may change, and why."""

CUTS: Final = frozenset({"learner.demonstrations", "learner.warmup_updates", "learner.trajectories_per_update"})
"""Settings that decide which records an update takes: an arm that changes one folds the same records, cut anew."""

BEFORE_A_RANGE: Final = frozenset(
    {
        *(f"policy.{name}" for name in settings.Policy.model_fields),
        *(f"learner.{name}" for name in ("demonstrations", "warmup_updates", "warmup_minibatches", "warmup_lr")),
        *("replay.capacity", "replay.demonstrations"),
    }
)
"""Settings that a range which begins after update 0 finds decided already: its first state was made with them."""

AFTER_WARMUP: Final = frozenset(
    {
        *(f"aride.{name}" for name in settings.Aride.model_fields),
        *(f"replay.{name}" for name in ("w1", "w2", "w3", "alpha", "refresh_every", "value_filter")),
        *(f"learner.{name}" for name in ("minibatches", "lr", "critic_lr", "critic_warmup_updates")),
    }
)
"""Settings that no update of the warm-up reads: an arm that changes none but these goes on from the baseline's state
after it. A test folds each of them both ways."""

SWEEPS: Final[Mapping[str, Mapping[str, Sequence[str]]]] = {
    "dper-weights": {
        "replay.w1": ("0.01", "0.1", "0.5", "1.0", "2.0", "5.0", "10.0"),
        "replay.w2": ("0.01", "0.1", "0.3", "0.5", "0.7", "1.0"),
        "replay.w3": ("0.01", "0.1", "0.3", "0.5", "0.7", "1.0"),
    },
}
"""dper-weights: the ranges that DistRL searched (A.4.3), 252 arms; it does not print which values won. The text there
has w2 ∈ {0.01, 0.10.3, …}, read as 0.1, 0.3. `<name>-axes` varies one setting at a time (19 arms)."""

Sets = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Arm:
    """One setting of everything. sets: (path, value as written) of what differs from the run."""

    name: str
    sets: Sets
    config: Config

    @property
    def paths(self) -> frozenset[str]:
        return frozenset(path for path, _ in self.sets)

    @property
    def cuts_anew(self) -> bool:
        return bool(self.paths & CUTS)

    @property
    def shares_warmup(self) -> bool:
        return self.paths <= AFTER_WARMUP


@dataclass(frozen=True, slots=True)
class Plan:
    """The arms, baseline first, no two with equal settings. same: a name left out -> the arm that it equals."""

    arms: tuple[Arm, ...]
    same: Mapping[str, str]


def plan(
    config: Config,
    sets: Iterable[str] = (),
    arms: Iterable[str] = (),
    grids: Sequence[str] = (),
    sweeps: Iterable[str] = (),
) -> Plan:
    """The arms of a command line.

    sets: "path=value", an arm each. arms: "path=value,path=value", an arm each. grids: "path=value,value…"; the product
    of all of them. sweeps: names of SWEEPS, or `<name>-axes`. A path may be short where it is the only one of its name.
    Raises ConfigError for what cannot be ablated, naming what can, and for values that the setting does not take.
    """
    wanted: list[Sets] = [(_pair(item, f"--set {item}"),) for item in sets]
    wanted += [_pairs(item) for item in arms]
    wanted += product([_axis(item) for item in grids])
    for name in sweeps:
        wanted += _sweep(name)
    found = [Arm(BASELINE, (), config)]
    by_settings = {config.learning_fingerprint(): BASELINE}
    same: dict[str, str] = {}
    for changes in wanted:
        arm = Arm(",".join(f"{path}={value}" for path, value in changes), changes, changed(config, changes))
        fingerprint = arm.config.learning_fingerprint()
        if fingerprint not in by_settings:
            by_settings[fingerprint] = arm.name
            found.append(arm)
        elif by_settings[fingerprint] != arm.name:
            same[arm.name] = by_settings[fingerprint]
    return Plan(tuple(found), same)


def changed(config: Config, sets: Sets) -> Config:
    """`config` with `sets`. Raises ConfigError for a value that a setting does not take, saying what it takes."""
    read = settings.load(None, [f"{path}={value}" for path, value in sets], {})
    for section, name in (path.split(".") for path, _ in sets):
        value = getattr(getattr(read, section), name)
        config = config.model_copy(update={section: getattr(config, section).model_copy(update={name: value})})
    return config


def allowed() -> list[str]:
    """The path of every setting that an arm may change."""
    paths = (f"{section}.{name}" for section in SECTIONS for name in _fields(section))
    return [path for path in paths if path not in REFUSED]


def resolve(name: str, where: str) -> str:
    """The full path of a setting named in full, or by its last part alone. Raises ConfigError."""
    name = name.strip()
    if name in REFUSED:
        raise ConfigError(where, f"{name} cannot be ablated: it {REFUSED[name]}", f"one of: {', '.join(allowed())}")
    if name in allowed():
        return name
    found = [path for path in allowed() if path.rpartition(".")[2] == name]
    if len(found) == 1:
        return found[0]
    if found:
        raise ConfigError(where, f"'{name}' may be each of {', '.join(found)}", "write the whole path")
    refused = [path for path in REFUSED if path.rpartition(".")[2] == name]
    if refused:
        return resolve(refused[0], where)
    raise ConfigError(where, f"no setting '{name}' that can be ablated", f"one of: {', '.join(allowed())}")


def product(axes: Sequence[Sequence[tuple[str, str]]]) -> list[Sets]:
    """Every choice of one (path, value) of each axis, the last axis fastest; none without axes."""
    return list(itertools.product(*axes)) if axes else []


def _sweep(name: str) -> list[Sets]:
    grid = SWEEPS.get(name.removesuffix("-axes"))
    if grid is None:
        known = [each for sweep in SWEEPS for each in (sweep, f"{sweep}-axes")]
        raise ConfigError(f"--sweep {name}", "no sweep of that name", f"one of: {', '.join(known)}")
    axes = [[(path, value) for value in values] for path, values in grid.items()]
    return [(pair,) for axis in axes for pair in axis] if name.endswith("-axes") else product(axes)


def _axis(item: str) -> list[tuple[str, str]]:
    path, text = _pair(item, f"--grid {item}")
    return [(path, value.strip()) for value in split(text)]


def _pairs(item: str) -> Sets:
    where = f"--arm {item}"
    found = tuple(_pair(part, where) for part in split(item))
    if len({path for path, _ in found}) < len(found):
        raise ConfigError(where, "sets one setting twice", "name each setting once")
    return found


def _pair(item: str, where: str) -> tuple[str, str]:
    name, equals, value = item.partition("=")
    if not equals or not value.strip():
        raise ConfigError(where, f"'{item}' is no setting with a value", "write it as path.to.setting=value")
    return resolve(name, where), value.strip()


def split(text: str) -> list[str]:
    """`text` at its commas, those within brackets left alone."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "[{(") - (letter in "]})")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def _fields(section: str) -> list[str]:
    model: Any = Config.model_fields[section].annotation
    return list(model.model_fields)
