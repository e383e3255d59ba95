"""Which settings an ablation may change, and the arms that a command line names. Pure: settings in, arms out.

An arm is the run's settings with some of them changed. The first one, `baseline`, changes none. All arms keep the run's
name and seed, so they draw the same random numbers and differ only in what was changed.
"""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from distrl import config as settings
from distrl.config import Config
from distrl.config.algorithms import GrpoSettings
from distrl.config.effects import Effect, When
from distrl.errors import ConfigError
from distrl.runs.settings import learning_fingerprint

BASELINE: Final = "baseline"
ALGORITHM: Final = "algorithm."
TYPE: Final = f"{ALGORITHM}type"
CRITICS_ALONE: Final = "algorithm.critic_warmup_updates"

SWEEPS: Final[Mapping[str, Mapping[str, Sequence[str]]]] = {
    "dper-weights": {
        "algorithm.replay.w1": ("0.01", "0.1", "0.5", "1.0", "2.0", "5.0", "10.0"),
        "algorithm.replay.w2": ("0.01", "0.1", "0.3", "0.5", "0.7", "1.0"),
        "algorithm.replay.w3": ("0.01", "0.1", "0.3", "0.5", "0.7", "1.0"),
    },
}
"""dper-weights: the ranges that DistRL searched (A.4.3), 252 arms; it does not print which values won. The text there
has w2 ∈ {0.01, 0.10.3, …}, read as 0.1, 0.3. `<name>-axes` varies one setting at a time (19 arms)."""

Sets = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Arm:
    """One variant of the run's settings."""

    name: str
    sets: Sets
    """(path, value as written) of what differs from the run."""
    config: Config

    @property
    def paths(self) -> frozenset[str]:
        return frozenset(path for path, _ in self.sets)

    @property
    def label(self) -> str:
        """The name, for a narrow table: of each path its last part, where no other path has it."""
        last = Counter(path.rpartition(".")[2] for path in self.config.effects())
        parts = [path if last[(end := path.rpartition(".")[2])] > 1 else end for path in dict(self.sets)]
        return ",".join(f"{part}={value}" for part, (_, value) in zip(parts, self.sets, strict=True)) or self.name

    @property
    def effects(self) -> Mapping[str, Effect]:
        """What each changed setting decides."""
        known = self.config.effects()
        return {path: known[path] for path in self.paths}

    @property
    def other_windows(self) -> bool:
        """Whether it folds the same records in other windows."""
        return any(effect.windows for effect in self.effects.values())

    @property
    def shares_warmup(self) -> bool:
        """Whether the warm-up reads nothing that it changes: it may go on from the baseline's state after that."""
        return all(effect.when is When.LATER for effect in self.effects.values())

    @property
    def early(self) -> list[str]:
        """The paths it changes that count before or in the warm-up: impossible where the range starts after update
        0."""
        return sorted(path for path, effect in self.effects.items() if effect.when in (When.START, When.WARMUP))

    def unshared(self, run: Config) -> dict[str, tuple[Any, Any]]:
        """Path -> (its value, that of the run) of the settings that it has of its own algorithm's defaults, where the
        run's algorithm has the setting, too, and another value. Empty for an arm of the run's algorithm."""
        theirs = {path: each for path, each in run.shared().items() if path.startswith(ALGORITHM)}
        ours = {path: each for path, each in self.config.shared().items() if path not in self.paths}
        return {
            path: (ours[path], each) for path, each in sorted(theirs.items()) if path in ours and ours[path] != each
        }

    def used_up(self, run: Config, first: int) -> list[str]:
        """The paths it changes that count in no update from `first` > 0 on: a range from there cannot ablate them."""
        if self.early or CRITICS_ALONE not in self.paths:
            return self.early
        alone = max(each.algorithm.model_dump()["critic_warmup_updates"] for each in (run, self.config))
        return [CRITICS_ALONE] if first >= run.warmup.updates + alone else []


@dataclass(frozen=True, slots=True)
class Plan:
    """The arms of an ablation."""

    arms: tuple[Arm, ...]
    """Baseline first, no two with equal settings."""
    same: Mapping[str, str]
    """Name of an arm that was left out -> the arm with equal settings."""


def plan(
    config: Config,
    sets: Iterable[str] = (),
    arms: Iterable[str] = (),
    grids: Sequence[str] = (),
    sweeps: Iterable[str] = (),
) -> Plan:
    """The arms of a command line.

    sets: "path=value", an arm each. arms: "path=value,path=value", an arm each. grids: "path=value,value…"; arms of
    their product. sweeps: names of SWEEPS, or `<name>-axes`. A path may be its last part where that is unambiguous.
    Raises ConfigError for settings that cannot be ablated, naming those that can, and for impossible values.
    """
    wanted: list[Sets] = [(_pair(item, f"--set {item}", config),) for item in sets]
    wanted += [_pairs(item, config) for item in arms]
    wanted += product(_axes(grids, config))
    for name in sweeps:
        wanted += _sweep(name)
    found = [Arm(BASELINE, (), config)]
    by_settings = {learning_fingerprint(config): BASELINE}
    same: dict[str, str] = {}
    for changes in wanted:
        arm = Arm(",".join(f"{path}={value}" for path, value in changes), changes, changed(config, changes))
        fingerprint = learning_fingerprint(arm.config)
        if fingerprint not in by_settings:
            by_settings[fingerprint] = arm.name
            found.append(arm)
        elif by_settings[fingerprint] != arm.name:
            same[arm.name] = by_settings[fingerprint]
    return Plan(tuple(found), same)


def refuse_elsewhere(sets: Iterable[str], arms: Iterable[str], grids: Iterable[str], sweeps: Iterable[str]) -> None:
    """Raises ConfigError for what no run's settings make an arm, before a server is asked: a path of another section,
    such as that of the broker, and a sweep that there is not."""
    asked = [(f"--set {item}", item) for item in sets]
    asked += [(f"--arm {item}", part) for item in arms for part in split(item)]
    asked += [(f"--grid {item}", item) for item in grids]
    for where, item in asked:
        section, dot, _ = item.partition("=")[0].strip().partition(".")
        if dot and section not in settings.LEARNING:
            raise ConfigError(
                where,
                f"{section} cannot be ablated: an arm changes {', '.join(settings.LEARNING)}",
                "give what is no arm in --config FILE or as a variable, such as DISTRL_KAFKA__BOOTSTRAP",
            )
    for name in sweeps:
        _sweep(name)


def changed(config: Config, sets: Sets) -> Config:
    """`config` with `sets`. Raises ConfigError for an impossible value, naming what is allowed."""
    base = {name: getattr(config, name).model_dump(mode="json") for name in settings.LEARNING}
    base["learner"]["rebuild_window"] = sys.maxsize  # it bounds a learner's restart, and no arm has one
    types = dict(sets)
    if types.get(TYPE, config.algorithm.type) != config.algorithm.type:
        del base["algorithm"]  # another type has settings of its own
    read = settings.load(None, [f"{path}={value}" for path, value in sets], {}, base)
    sections = {name: getattr(read, name) for name in settings.LEARNING}
    # No arm changes where a policy is asked; and in JSON a mask stands in the place of the server's key.
    sections["policy"] = read.policy.model_copy(update={"server": config.policy.server})
    made = config.model_copy(update=sections)
    _refuse_no_groups(made, fed=config.episodes_per_task)
    return made


def _refuse_no_groups(arm: Config, fed: int) -> None:
    """Raises ConfigError where the arm would learn nothing. fed: how often the run's feeder fed each task."""
    if isinstance(arm.algorithm, GrpoSettings) and arm.algorithm.group_size > fed:
        raise ConfigError(
            "algorithm.group_size",
            f"is {arm.algorithm.group_size}, and the run fed each task {'once' if fed == 1 else f'{fed} times'}: no "
            "group of episodes is ever whole in its log",
            f"ablate a run that was fed with feeder.episodes_per_task={arm.algorithm.group_size} or more",
        )


def allowed(config: Config) -> list[str]:
    """The path of every setting that an arm may change."""
    return [path for path, effect in config.effects().items() if not effect.fixed]


def resolve(name: str, where: str, config: Config) -> str:
    """The full path of a setting given in full or by its last part. Raises ConfigError."""
    name, effects = name.strip(), config.effects()
    found = [path for path in effects if name in (path, path.rpartition(".")[2])]
    may = [path for path in found if not effects[path].fixed]
    if name in found and name not in may:
        may = []
    if len(may) == 1 or name in may:
        return name if name in may else may[0]
    known = f"one of: {', '.join(allowed(config))}"
    if may:
        raise ConfigError(where, f"'{name}' may be each of {', '.join(may)}", "write the whole path")
    if found:
        raise ConfigError(where, f"{found[0]} cannot be ablated: it {effects[found[0]].fixed}", known)
    raise ConfigError(where, f"no setting '{name}' that can be ablated", known)


def product(axes: Sequence[Sequence[tuple[str, str]]]) -> list[Sets]:
    """Every combination of one (path, value) of each axis, the last axis fastest; none without axes."""
    return list(itertools.product(*axes)) if axes else []


def _axes(grids: Sequence[str], config: Config) -> list[list[tuple[str, str]]]:
    """Raises ConfigError where two of them are of one setting, as the last value alone would count."""
    axes = [_axis(item, config) for item in grids]
    for number, axis in enumerate(axes):
        if axis[0][0] in {other[0][0] for other in axes[:number]}:
            raise ConfigError(
                f"--grid {grids[number]}", f"{axis[0][0]} has a grid already", "write all of its values in one --grid"
            )
    return axes


def _sweep(name: str) -> list[Sets]:
    grid = SWEEPS.get(name.removesuffix("-axes"))
    if grid is None:
        known = [each for sweep in SWEEPS for each in (sweep, f"{sweep}-axes")]
        raise ConfigError(f"--sweep {name}", "no sweep of that name", f"one of: {', '.join(known)}")
    axes = [[(path, value) for value in values] for path, values in grid.items()]
    return [(pair,) for axis in axes for pair in axis] if name.endswith("-axes") else product(axes)


def _axis(item: str, config: Config) -> list[tuple[str, str]]:
    path, text = _pair(item, f"--grid {item}", config)
    return [(path, value.strip()) for value in split(text)]


def _pairs(item: str, config: Config) -> Sets:
    where = f"--arm {item}"
    for part in split(item):
        if part.strip().startswith(f"{TYPE}="):  # its other paths are settings of that type
            config = changed(config, (_pair(part, where, config),))
    found = tuple(_pair(part, where, config) for part in split(item))
    if len({path for path, _ in found}) < len(found):
        raise ConfigError(where, "sets one setting twice", "name each setting once")
    return found


def _pair(item: str, where: str, config: Config) -> tuple[str, str]:
    name, equals, value = item.partition("=")
    if not equals or not value.strip():
        raise ConfigError(where, f"'{item}' is no setting with a value", "write it as path.to.setting=value")
    return resolve(name, where, config), value.strip()


def split(text: str) -> list[str]:
    """`text` split at its commas, but not within brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "[{(") - (letter in "]})")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts
