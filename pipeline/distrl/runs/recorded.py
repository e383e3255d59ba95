"""A run's settings in its log: the topic `settings`.

The first record holds all of them, each later one a change. A process that reads the run uses them as the base of its
own settings; a role with other settings warns of each difference.
"""

from __future__ import annotations

import json
import logging
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from typing import Any

from distrl.broker.connect import UnknownTopicError, admin, failover_s
from distrl.broker.fenced import this_process
from distrl.broker.journal import journal_lines
from distrl.broker.producer import RecordProducer
from distrl.broker.reader import LogReader, RawRecord, decoded, place_of
from distrl.broker.topic_admin import partition_count
from distrl.broker.topics import topic_name
from distrl.broker.versions import lineage
from distrl.clock import SYSTEM_CLOCK
from distrl.config import LEARNING, Config, load
from distrl.errors import BrokerError, ConfigError, WireError
from distrl.plugins import ALL_FILES, SOURCES
from distrl.runs.plugin_code import PACKAGES, plugin_code, what
from distrl.runs.settings import (
    ABSENT,
    NOT_SETTINGS,
    STORE,
    Difference,
    before_values,
    differences,
    learned,
    learning_fingerprint,
    other_settings,
    run_settings,
    shared_settings,
)
from distrl.types import Settings
from distrl.wire.codec import has_unknown_schema

LOG = logging.getLogger("distrl.runs")

TOPIC = "settings"
ALGORITHM = "algorithm."
TYPE = "algorithm.type"
LEARNER = "learner"
STORE_PATHS = {f"store.{name}" for name in STORE}
OWN_SINCE = frozenset({"devices.settle_unchanged_s"})
"""Settings that once belonged to the run and now belong to each process. The run's value is still used, except 0, which
may be meant for the phones of a local stack."""
STORE_URL = "store.url"
"""If a record has None for it, earlier records no longer count for the store, and each process uses its own."""
CODE_OF_ALGORITHM = "plugin.algorithm"
INCOMPLETE = "copy.incomplete"
"""Not a setting: in the record that `runs copy` writes before all others, and deletes once everything is copied."""
LEARNED = "the newest update or version"
"""Whose settings `learned_with` returns, as an error names it."""
RECORDERS = (LEARNER, "feeder", "demonstrator")
"""The roles that record the settings of a run that has none yet; the others have no right to write them."""


@dataclass(frozen=True, slots=True)
class RecordedSettings:
    """The settings of a run, and how they came to be."""

    records: tuple[Settings, ...]
    """In log order; at least one."""
    unrecorded: Mapping[str, Any] = field(default_factory=dict)
    """Path -> value of settings that did not exist when the run was begun."""

    @property
    def history(self) -> tuple[Settings, ...]:
        """The records that count: the first, and each change. (Roles that start together may all write a first one.)
        Empty for a copy under way that has none yet."""
        found = [each for each in self.records if INCOMPLETE not in each.settings]
        return tuple(each for place, each in enumerate(found) if place == 0 or each.is_change)

    @property
    def is_incomplete_copy(self) -> bool:
        """Whether `runs copy` is writing the run, or was interrupted."""
        return any(INCOMPLETE in each.settings for each in self.records)

    @property
    def values(self) -> dict[str, Any]:
        """Path -> JSON-able value, after the last change."""
        return self._after(len(self.history))

    def with_fingerprint(self, fingerprint: str) -> dict[str, Any]:
        """The settings as they were when they had this learning fingerprint; empty if they never had."""
        places = [place for place, each in enumerate(self.history) if each.fingerprint == fingerprint]
        return self._after(places[-1] + 1) if places else {}

    def _after(self, count: int) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for record in self.history[:count]:
            values = _changed(values, {path: json.loads(text) for path, text in record.settings.items()})
        if values.get(STORE_URL, "") is None:
            values = {path: each for path, each in values.items() if path not in STORE_PATHS}
        return {**self.unrecorded, **values}


def _whole_algorithm(
    changes: Mapping[str, Any], values: Mapping[str, Any], here: Mapping[str, Any]
) -> Mapping[str, Any]:
    """`changes` of `values`; if they change the algorithm, together with all of its settings in `here`."""
    if changes.get(TYPE, values.get(TYPE)) == values.get(TYPE):
        return changes
    return {**{path: each for path, each in here.items() if path.startswith(ALGORITHM)}, **changes}


def _changed(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`values` with `changes` over them. If these change the algorithm, settings of the old one are dropped unless the
    new one has them too: earlier versions recorded only those that differ."""
    kind = changes.get(TYPE)
    if TYPE in values and kind not in (None, values[TYPE]) and (its := _settings_of(kind)) is not None:
        values = {path: each for path, each in values.items() if not path.startswith(ALGORITHM) or path in its}
    return {**values, **changes}


def _settings_of(kind: object) -> Mapping[str, Any] | None:
    """The settings of the algorithm `kind`, by path; None for one that this version does not have."""
    try:
        return {path: each for path, each in defaults_with(kind).shared().items() if path.startswith(ALGORITHM)}
    except ConfigError:
        return None


def defaults_with(kind: object) -> Config:
    """The defaults with the algorithm `kind`. Raises ConfigError for one that this version does not have.

    kind: taken from a record, hence of any JSON type; it is used as a value and not parsed.
    """
    return load(environ={}, base={"algorithm": {"type": kind}})


def recorded(config: Config) -> RecordedSettings | None:
    """The settings in the log of `config.run`; None if it has none. Raises BrokerError, WireError."""
    try:
        with LogReader(config, TOPIC) as reader:
            found = [settings_in(raw, config.run) for batch in reader.to_end() for raw in batch]
    except UnknownTopicError:
        return None  # the run has not begun, or is of an older version
    return completed(RecordedSettings(tuple(found)), config) if found else None


def settings_in(raw: RawRecord, run: str) -> Settings:
    """The settings in a record of the topic. Raises WireError with its place and a hint: records of settings are never
    skipped. A record of a newer version is not damaged; its error says to upgrade."""
    try:
        record = decoded(raw, Settings)
        for path, text in record.settings.items():
            _refuse_no_json(raw, path, text)
    except WireError as error:
        if has_unknown_schema(raw.value or b""):
            raise
        hint = (
            f"no role of the run starts before it is gone: `distrl runs repair {run}` removes it and keeps the others"
        )
        raise WireError(error.where, error.what, hint) from None
    return record


def _refuse_no_json(raw: RawRecord, path: str, text: str) -> None:
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        raise WireError(f"{place_of(raw)}: {path}", f"is no JSON ({error})", "write JSON") from None


def completed(found: RecordedSettings, here: Config) -> RecordedSettings:
    """`found` with the settings of this version that did not exist when the run was begun. here: any settings of this
    version. Pure."""
    values = found.values
    if (kind := values.get(TYPE, here.algorithm.type)) != here.algorithm.type:
        with suppress(ConfigError):  # an algorithm that this version does not have is refused when it is loaded
            here = here.model_copy(update={"algorithm": defaults_with(kind).algorithm})
    missing = {path: value for path, value in before_values(here).items() if path not in values}
    return replace(found, unrecorded=missing)


def base_tree(found: RecordedSettings, here: Config) -> dict[str, Any]:
    """The run's settings as a tree for `config.load`. here: any settings of this version of DistRL. Pure.

    A setting that this version does not have is left out, unless the fold reads it: raises ConfigError then. Also for
    an incomplete copy: a role that starts on it would begin with an earlier part of the run.
    """
    if found.is_incomplete_copy:
        raise ConfigError(
            f"run {here.run}",
            f"is an incomplete copy at the broker {here.kafka.bootstrap}: `distrl runs copy` is at work or was "
            "interrupted",
            "wait until it ends; if it was interrupted, run the same `distrl runs copy` again: it names the command "
            "that removes what is there",
        )
    known = Config.model_fields.keys()
    tree: dict[str, Any] = {}
    values = found.values
    same_algorithm = values.get(TYPE) == here.algorithm.type
    ours = {*here.shared(), *STORE_PATHS, *(path for path in OWN_SINCE if values.get(path))}
    for path, value in values.items():
        section, *names = path.split(".")
        if path in NOT_SETTINGS or section not in known or not names:
            continue
        if path not in ours and (section != "algorithm" or same_algorithm):
            if section in LEARNING:
                brought = values.get(CODE_OF_ALGORITHM) if section == "algorithm" else None
                raise ConfigError(
                    path,
                    f"run {here.run} was made with this setting (it is {json.dumps(value)}), which this version of "
                    f"{'DistRL' if brought is None else 'the package that brings its algorithm'} does not have",
                    f"use {brought or f'version {found.history[-1].software}'}, or choose a new `run`",
                )
            continue
        node = tree.setdefault(section, {})
        for name in names[:-1]:
            node = node.setdefault(name, {})
            if not isinstance(node, dict):  # a record may name a setting and, as if it were a section, one within it
                break
        else:
            node[names[-1]] = value
    return tree


def join(config: Config, found: RecordedSettings | None, role: str, sources: Sequence[str]) -> None:
    """Compare the settings of a starting `role` with the run's, `found`, and record them where the run has none.

    Warns of each setting that differs. The learner decides the settings that the fold reads: while nothing is learned,
    it records its own; after that it is refused unless they are those of `learned_with`. For a run that has learned and
    has recorded no settings, no other ones are recorded. If another package provides the policy or the algorithm, it
    warns of other code, and records that of the learner. sources: as in `config.sources`. Raises ConfigError,
    BrokerError, PolicyError.
    """
    here = run_settings(config)
    if found is None:
        if role not in RECORDERS:
            return
        fingerprint = learned_with(config)
        if fingerprint is None or fingerprint == learning_fingerprint(config):
            append(config, role, sources, {**here, **plugin_code(config)}, is_change=False)
            join(config, recorded(config), role, sources)  # another role may have been first
        elif role == LEARNER:
            refuse_other_settings(fingerprint, config, LEARNED)
        return
    differ = _differing(found, here)
    of_fold = learned(differ, config)
    if role == LEARNER and of_fold:
        fingerprint = learned_with(config)
        if fingerprint is not None:  # it decides: settings may have changed while the journal's first line was written
            refuse_other_settings(fingerprint, config, LEARNED)
        changes = {each.path: each.here for each in of_fold if each.here is not ABSENT}
        append(config, role, sources, _whole_algorithm(changes, found.values, here), is_change=True)
        why = "the run has learned with them" if fingerprint is not None else "nothing is learned yet"
        LOG.info("%s: the run's settings are now %s", why, ", ".join(_now(each) for each in of_fold))
    for each in differ:
        if role != LEARNER or each not in of_fold:
            LOG.warning("%s", _differs(each, config.run, sources, may_change=each not in of_fold))
    _compare_plugins(config, found.values, role, sources)


def refuse_changed(config: Config) -> None:
    """Called by a learner before it journals its first update. Raises ConfigError where the run's learning settings
    were changed since the learner started: its journal would contradict them for ever. Raises BrokerError."""
    found = recorded(config)
    if found is None:
        return
    if of_fold := learned(_differing(found, run_settings(config)), config):
        raise ConfigError(
            ", ".join(each.path for each in of_fold),
            f"was changed for run {config.run} since this learner started: {'; '.join(map(str, of_fold))}",
            "start it again: nothing is learned yet, and it takes the run's settings where it is given none of its own",
        )


def _differing(found: RecordedSettings, here: Mapping[str, Any]) -> list[Difference]:
    """The differences in settings that belong to the run. here: the settings of a process, by path."""
    return [each for each in differences(found.values, here) if each.path not in OWN_SINCE | PACKAGES.keys()]


def _compare_plugins(config: Config, run: Mapping[str, Any], role: str, sources: Sequence[str]) -> None:
    """Warn where a package that provides the policy or the algorithm has other code than the run's. If the role is the
    learner, record its code, with which later processes are compared. No warning for a run whose code was not recorded,
    or was recorded by earlier software. run: the run's recorded values, by path."""
    here = plugin_code(config)
    unlike = [path for path in PACKAGES if here.get(path) != run.get(path)]
    for path in unlike:
        if path == CODE_OF_ALGORITHM and run.get(TYPE) != config.algorithm.type:
            continue  # another algorithm, which is said with the other settings
        if (of_run := run.get(path)) is not None and SOURCES not in of_run:
            LOG.warning(
                "the %s is of %s here, and of %s in run %s: the same log may give other weights. Hint: %s",
                what(path),
                here.get(path, "DistRL"),
                of_run,
                config.run,
                f"`distrl learner --verify --from-start --run {config.run}` says whether it does"
                if role == LEARNER
                else f"install the package that its learner has, or start the learner again with this one; {ALL_FILES}",
            )
    if role == LEARNER and unlike:
        append(config, role, sources, {path: here.get(path) for path in unlike}, is_change=True)


def learned_with(config: Config) -> str | None:
    """The fingerprint of the learning settings of the newest journalled update. Without an update, that of the newest
    version: without a warm-up, version 0 comes before any update. None where there is neither.

    A line that makes updates void is none of them: `distrl skip` writes one also where nothing is learned yet.
    """
    for line in reversed(journal_lines(config)):
        if not line.void:
            return line.config_fingerprint
    versions = lineage(config)
    return versions[-1].config_fingerprint if versions else None


def change(config: Config, role: str, sources: Sequence[str], changes: Mapping[str, Any]) -> None:
    """Record `changes` of the run's settings, by path, for every process that starts from now on. If they change the
    algorithm, all of its settings are recorded, as `config` has them.

    Raises ConfigError where nothing is recorded yet, since the first record must hold all settings, which only the
    roles know; and for a setting that the fold reads, once something is journalled or published.
    """
    found = recorded(config)
    if found is None:
        raise ConfigError(
            f"run {config.run}",
            "has no settings in its log yet, so there are none to change",
            f"give {', '.join(changes)} to its learner and feeder (a file, a DISTRL_ variable, --set): the first to "
            "start records all of its settings for the run",
        )
    values = found.values
    changes = _whole_algorithm(changes, values, shared_settings(config))
    differ = [each for each in differences(values, values | dict(changes)) if each.path in changes]
    of_fold = learned(differ, config)
    if of_fold and learned_with(config) is not None:
        raise ConfigError(
            ", ".join(each.path for each in of_fold),
            f"decides what is learned, and run {config.run} has learned already",
            "choose a new `run`; `distrl ablate` folds this run's log with other settings",
        )
    # Where nothing changes that the fold reads, the base model need not be here.
    fingerprint = learning_fingerprint(config) if of_fold else found.history[-1].fingerprint
    append(config, role, sources, changes, is_change=True, fingerprint=fingerprint)


def append(
    config: Config,
    role: str,
    sources: Sequence[str],
    values: Mapping[str, Any],
    *,
    is_change: bool,
    fingerprint: str | None = None,
) -> None:
    """Append one record and wait until it is acknowledged. fingerprint: of the learning settings; None: of those of
    `config`. Raises BrokerError."""
    record = Settings(
        SYSTEM_CLOCK.now_ms(),
        role,
        this_process(),
        tuple(sources),
        version("distrl"),
        learning_fingerprint(config) if fingerprint is None else fingerprint,
        is_change,
        {path: json.dumps(value, sort_keys=True) for path, value in values.items()},
    )
    topic, longest_s = topic_name(config.run, TOPIC), failover_s(config.kafka)
    partition_count(admin(config.kafka), config, topic, "record the run's settings")  # a producer waits for a topic
    with RecordProducer(config, role) as producer:
        try:
            producer.publish(TOPIC, config.run, record).result(longest_s)
        except TimeoutError:
            raise BrokerError(
                topic,
                f"the run's settings were not acknowledged within {longest_s:g} s",
                "see what `distrl doctor` says of the brokers, then start this again",
            ) from None


def refuse_other_settings(fingerprint: str, config: Config, what: str) -> None:
    """Raises ConfigError where `what` (a checkpoint, a journal line) was made with other learning settings.

    The error names each setting with both values, where the log has the settings of `fingerprint`.
    """
    if fingerprint == learning_fingerprint(config):
        return
    found = learned(differences(settings_behind(fingerprint, config), run_settings(config)), config)
    if found:
        raise other_settings(found, what, config.run)
    raise ConfigError(
        f"run {config.run}",
        f"{what} was made with other settings under policy, warmup, algorithm or learner, and the log has no record of "
        "them",
        "start with the settings that the run began with, or choose a new `run`",
    )


def settings_behind(fingerprint: str, config: Config) -> dict[str, Any]:
    """The run's settings with this learning fingerprint; empty where the log has none or cannot be read."""
    try:
        found = recorded(config)
    except (BrokerError, WireError):
        return {}
    return found.with_fingerprint(fingerprint) if found is not None else {}


def _now(difference: Difference) -> str:
    return f"{difference.path}={json.dumps(difference.here)}" if difference.here is not ABSENT else difference.path


def _differs(difference: Difference, run: str, sources: Sequence[str], *, may_change: bool) -> str:
    """may_change: whether the run may have another value though it has learned."""
    given = f" ({', '.join(sources)})" if sources else ""
    here = json.dumps(difference.here) if difference.here is not ABSENT else ""
    text = f"{difference} in run {run}; this process goes by its own. Hint: leave it out of its settings{given}"
    if not here or not may_change or difference.path in NOT_SETTINGS:
        return text
    return f"{text}, or set it for the run: `distrl runs set {run} {shlex.quote(f'{difference.path}={here}')}`"
