"""Every setting of the system, in one typed tree: a file, then DISTRL_* variables, then `--set path=value`.

Later sources win. DISTRL_KAFKA__BOOTSTRAP sets `kafka.bootstrap`. An unknown key or an impossible value is refused
before anything starts, with its path and what is allowed.
"""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, get_args

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    SecretStr,
    ValidationError,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from distrl.config.algorithms import AlgorithmSettings, ArideSettings, GrpoSettings, WarmupSettings, named
from distrl.config.allowed import allowed, written
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
from distrl.errors import ConfigError
from distrl.librdkafka import PropertyError, is_secret

ENV_PREFIX = "DISTRL_"
LEARNING = ("policy", "warmup", "algorithm", "learner")
"""The sections that the fold reads."""
CLIENT = ("kafka", "client")
"""The only setting that is a mapping; its keys are librdkafka's."""
UNREADABLE = "fix that line; a value that begins with one of ! & * % @ ` belongs into quotes"
LOGIN = re.compile(r"(?<=://).*(?=@)")
"""Of an address that names one; none may."""
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
    algorithm: Annotated[AlgorithmSettings, BeforeValidator(named)] = ArideSettings()
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
            *sections, name = _split(path.split("."))
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


def load(
    file: Path | None = None,
    sets: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
    base: Mapping[str, Any] | None = None,
) -> Config:
    """The configuration from the tree `base`, then `file` (YAML), then `environ` (DISTRL_*), then `sets`
    ("path.to=value"); the later wins. Another algorithm.type than the base's takes none of the base's `algorithm`.

    Raises ConfigError, naming the setting, what is wrong with it and what is allowed.
    """
    tree: dict[str, Any] = {} if file is None else _read(file)
    for name, value in sorted((os.environ if environ is None else environ).items()):
        if name.startswith(ENV_PREFIX):
            _put(tree, _split(name.removeprefix(ENV_PREFIX).lower().split("__")), value, where=name)
    for item in sets:
        path, equals, value = item.partition("=")
        if not equals:
            # Not the text itself, which may hold a secret.
            raise ConfigError("--set", "one has no '='", "write it as --set path.to.setting=value")
        _put(tree, _split(path.strip().split(".")), value, where=f"--set {path}")
    try:
        return Config.model_validate(_over(base or {}, tree))
    except ValidationError as error:
        raise _explain(error) from None


def sources(file: Path | None, sets: Sequence[str] = (), environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """What `load` takes settings from, in words: the file's name, the variables, the paths of `sets`. No values."""
    names = sorted(os.environ if environ is None else environ)
    return (
        *([] if file is None else [f"file {file.name}"]),
        *(name for name in names if name.startswith(ENV_PREFIX)),
        *(f"--set {item.partition('=')[0].strip()}" for item in sets),
    )


def _over(base: Mapping[str, Any], tree: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with the values of `tree` over it."""
    merged = copy.deepcopy(dict(base))
    for name, value in tree.items():
        below = merged.get(name)
        if (
            isinstance(value, Mapping)
            and isinstance(below, Mapping)
            and value.get("type", below.get("type")) == below.get("type")
        ):
            merged[name] = _over(below, value)
        else:
            merged[name] = copy.deepcopy(value)
    return merged


def with_run(config: Config, run: str) -> Config:
    """`config` for another run. Raises ConfigError for an invalid name."""
    try:
        Config.model_validate({"run": run})
    except ValidationError as error:
        raise _explain(error) from None
    return config.model_copy(update={"run": run})


def _read(file: Path) -> dict[str, Any]:
    try:
        tree = yaml.safe_load(file.read_text())
    except OSError as error:
        raise ConfigError(str(file), f"cannot be read ({error.strerror})", "name a readable YAML file") from None
    except yaml.YAMLError as error:
        raise ConfigError(str(file), f"is no YAML{_place(error)}", UNREADABLE) from None
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise ConfigError(str(file), "holds no mapping of settings", "see `distrl config show` for the shape")
    return tree


def _place(error: yaml.YAMLError) -> str:
    """Where; not the line, nor why, which names what stands there and may be a secret."""
    mark = getattr(error, "problem_mark", None)
    return "" if mark is None else f" in line {mark.line + 1}, column {mark.column + 1}"


def _split(parts: list[str]) -> list[str]:
    """The path of a setting as names. What follows kafka.client is one name, with its dots."""
    return [*CLIENT, ".".join(parts[2:])] if tuple(parts[:2]) == CLIENT and len(parts) > 2 else parts


def _put(tree: dict[str, Any], path: list[str], value: str, where: str) -> None:
    node = tree
    for name in path[:-1]:
        node = node.setdefault(name, {})
        if not isinstance(node, dict):
            raise ConfigError(where, f"'{name}' is a setting, not a section", "see `distrl config show`")
    node[path[-1]] = _value(path, value)


def _value(path: Sequence[str], value: str) -> Any:
    """The value of a variable or a flag. Text is not parsed as YAML: a password may be a number, or hold a ' #'."""
    kinds = _kinds(path)
    if kinds == {SecretStr} or (kinds == {str} and value not in ("", "null") and value[:1] not in "'\""):
        return value
    try:
        return yaml.safe_load(value)
    except yaml.YAMLError:
        return value


def _explain(error: ValidationError) -> ConfigError:
    """One error for all wrong settings, each with its hint."""
    found = [_refusal(problem) for problem in error.errors()]
    what = found[0].what
    for before, after in pairwise(found):
        what += f"\n  hint: {before.hint}\n{after.where}: {after.what}"
    return ConfigError(found[0].where, what, found[-1].hint)


def _refusal(problem: ErrorDetails) -> ConfigError:
    loc, kind = _untagged(problem["loc"])
    path = ".".join(str(part) for part in loc) or "config"
    fault = problem.get("ctx", {}).get("error")
    if isinstance(fault, PropertyError):
        return ConfigError(f"{path}.{fault.name}" if fault.name else path, str(fault), fault.fix)
    if problem["type"] == "union_tag_invalid":
        wrong, known = problem["ctx"]["tag"], problem["ctx"]["expected_tags"].replace("'", "")
        return ConfigError(f"{path}.type", f"no such type (it is {written(wrong)})", f"one of: {known}")
    if problem["type"] == "extra_forbidden":
        of = f" of {loc[0]}.type {kind}" if kind else ""
        return ConfigError(path, f"no such setting{of}", f"one of: {', '.join(_siblings(problem['loc']))}")
    return ConfigError(path, f"{_wrong(problem)}{_shown(problem['loc'], problem['input'])}", _allowed(problem["loc"]))


def _wrong(problem: ErrorDetails) -> str:
    """What is wrong, without pydantic's terms."""
    if problem["type"] == "value_error":
        return str(problem["ctx"]["error"])
    return {
        "tuple_type": "Input should be a list",
        "path_type": "Input should be a path",
        "model_type": "Input should be a section, with settings of its own",
        "model_attributes_type": "Input should be a section, with settings of its own",
    }.get(problem["type"], problem["msg"])


def _shown(loc: Sequence[int | str], value: Any) -> str:
    """The wrong value, unless it is a secret or stands for a section that may hold one."""
    path = [str(part) for part in loc]
    found = _field(path)
    stands_for_section = found is not None and bool(_types(found.annotation)) and not isinstance(value, int | float)
    hidden = SecretStr in _kinds(path) or isinstance(value, Mapping | BaseModel) or stands_for_section
    return "" if hidden else f" (it is {LOGIN.sub('…', written(value))})"


def _kinds(path: Sequence[str]) -> set[Any]:
    """The types of the setting at `path` but None; empty where there is no such setting."""
    if tuple(path[:2]) == CLIENT and len(path) == 3:
        return {SecretStr} if is_secret(path[2]) else {str}
    found = _field(path)
    if found is None:
        return set()
    return {*(get_args(found.annotation) or (found.annotation,))} - {type(None)}


def may_hold_secret(name: str) -> bool:
    """Whether the setting of this dotted name is a secret, or a section or a mapping with one somewhere below."""
    path = _split(name.strip().split("."))
    found = _field(path)
    if tuple(path) == CLIENT or SecretStr in _kinds(path):
        return True
    return found is not None and any(_has_secret(model) for model in _types(found.annotation))


def _has_secret(section: type[BaseModel]) -> bool:
    fields = [field.annotation for field in section.model_fields.values()]
    return any(SecretStr in get_args(each) or any(map(_has_secret, _types(each))) for each in fields)


def _field(loc: Sequence[int | str]) -> FieldInfo | None:
    models = _sections(loc[:-1]) if loc else []
    return next((model.model_fields[str(loc[-1])] for model in models if str(loc[-1]) in model.model_fields), None)


def _sections(loc: Sequence[int | str]) -> list[type[BaseModel]]:
    """The section at `loc`, or all that are possible there; where `loc` leads further, the last section on the way."""
    models: list[type[BaseModel]] = [Config]
    for part in map(str, loc):
        tagged = [model for model in models if len(models) > 1 and _tag(model) == part]
        below = [each for m in models if part in m.model_fields for each in _types(m.model_fields[part].annotation)]
        if not tagged and not below:
            break
        models = tagged or below
    return models


def _untagged(loc: Sequence[int | str]) -> tuple[list[int | str], str]:
    """`loc` as a person writes it, and the type that pydantic inserts where a section may be one of several."""
    for place in range(1, len(loc)):
        if len(models := _sections(loc[:place])) > 1 and str(loc[place]) in map(_tag, models):
            return [*loc[:place], *loc[place + 1 :]], str(loc[place])
    return list(loc), ""


def _tag(model: type[BaseModel]) -> str:
    return str(model.model_fields["type"].default) if "type" in model.model_fields else ""


def _types(annotation: Any) -> list[type[BaseModel]]:
    """The sections that an annotation names."""
    found = get_args(annotation) or (annotation,)
    return [each for each in found if isinstance(each, type) and issubclass(each, Section)]


def _siblings(loc: Sequence[int | str]) -> list[str]:
    return sorted({name for model in _sections(loc[:-1]) for name in model.model_fields})


def _allowed(loc: Sequence[int | str]) -> str:
    setting = (
        loc[:-1] if loc and isinstance(loc[-1], int) else loc
    )  # the hint for an entry of a list is that of the list
    found = _field(setting) if setting else None
    if found is None or _types(found.annotation):
        return "see `distrl config show`"
    return allowed(found)
