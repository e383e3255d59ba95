"""`distrl ablate`: folds one range of a run's log under several settings, on this machine.

    read the range once ──▶ baseline ──▶ arm ──▶ arm … ──▶ report.json, table.md, curves.png, adapters/, arms/

Reads topics and objects and writes only files: it joins no group, publishes no record and stores no object. Arms are
folded one after the other, so more arms cost time and no memory; the records of the range and the image tokens of their
screenshots are shared. Each arm is persisted once folded, and its success once played: after an interruption the same
command does only the rest. The report is written after each arm, marked incomplete until the last.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import resource
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Final

from distrl.accelerator import gpu
from distrl.algorithms.registry import refuse_other_policy
from distrl.broker.journal import history
from distrl.config import Config, PolicySettings
from distrl.device.names import LOOPBACK
from distrl.errors import ConfigError, DeviceError, PolicyError
from distrl.evaluate.play import evaluation_tasks, warn_left_out
from distrl.evaluate.run import greedy
from distrl.files import unwritable, write
from distrl.learner.state import LearnerState
from distrl.offline.ablation import figure as ablate_figure
from distrl.offline.ablation.arms import Plan
from distrl.offline.ablation.fold import Folded, Identity, Shared, checkpoint_of, fold_arm
from distrl.offline.ablation.log import RunLog, cut, read_log, update_range
from distrl.offline.ablation.persisted import ADAPTERS, FOLDER, PersistedArms
from distrl.offline.ablation.report import Ablation, Evaluated, Result, to_json, to_markdown
from distrl.plugins import OURS
from distrl.policy.recurrent_q.tokenizer import GridTokenizer
from distrl.policy.registry import package_of, policy_of, tokenizer_of
from distrl.rollout.episode import Episode
from distrl.rollout.phones import Phones
from distrl.rollout.wiring import TRUTH
from distrl.runs.settings import learning_fingerprint
from distrl.stack.locks import held
from distrl.store.folders import SCREENSHOTS
from distrl.store.objects import ObjectStore, open_store, reference
from distrl.types import ObjectRef, Outcome, Split, Trajectory, Version

LOG = logging.getLogger(__name__)
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
FILES: Final = ("report.json", "table.md", "curves.png")
LOCK: Final = ".lock"
"""Held by the ablation that is at work in the folder."""
PLAYER: Final = "ablation"
"""`worker` of the trajectories of an evaluation, which are not stored."""

LORA: Final = "policy.lora_"
SHAPING: Final = frozenset({"policy.trains", "policy.lora_rank", "policy.lora_targets"})
"""Settings that show in the names or shapes of the weights that are trained, where a policy reads them."""
JUDGED: Final = (Outcome.SUCCESS, Outcome.FAILURE)

Shapes = Mapping[str, tuple[int, ...]]
"""Of the weights that are trained, by name."""

OnProgress = Callable[[int, int, str], None]
"""Called with (updates folded, updates in all, what is done now)."""


@dataclass(frozen=True, slots=True)
class ArmEvaluation:
    """What to play under each arm's adapter."""

    tasks: int
    """How many."""
    split: Split
    required: bool = True
    """Whether it is an error that it cannot be played; if not, no arm is played then."""


@dataclass(frozen=True, slots=True)
class Request:
    """What to ablate."""

    plan: Plan
    first: int = 0
    """First update to fold."""
    to: int | None = None
    """The update to end before; None: the journal's end."""
    hold_out: int = 0
    """Last updates of the range that no arm folds."""
    evaluation: ArmEvaluation | None = None
    unplayed: str = ""
    """Why nothing is played, where `evaluation` is None."""
    out: Path = Path("out/ablations")
    name: str | None = None
    """Of the folder in `out`; None: `default_name`."""


def ablate(
    config: Config, request: Request, on_progress: OnProgress = lambda done, total, text: None
) -> tuple[Ablation, Path]:
    """Fold every arm and write the report; returns it with its folder. Raises DistrlError, as early as it can."""
    _refuse(request)
    _refuse_untrainable(request.plan)
    journal = history(config)
    chosen = update_range(len(journal.updates), request.first, request.to, request.hold_out)
    request = with_phones(config, request)
    store = open_store(config.store)
    began = time.perf_counter()
    log = read_log(config, store, journal, chosen)
    ablation = Ablation(config, request.plan, log, measured={"reading": time.perf_counter() - began})
    ablation.unplayed = request.unplayed
    warn_of_too_long(request.plan, log)
    sweep = _Sweep(ablation, request.evaluation, store, on_progress)
    folder = request.out / (request.name or default_name(config, request, log))
    refuse_foreign(folder)
    with _alone_in(folder):
        ends_in_checkpoint = checkpoint_of(store, config.run, log.range.to) is not None
        persisted = PersistedArms(folder, log, played_on(config, request.evaluation), checkpoint=ends_in_checkpoint)
        arms = request.plan.arms
        found = {arm.name: result for arm in arms if (result := persisted.find(arm)) is not None}
        clear(folder, {path for arm in arms if arm.name in found for path in persisted.files(arm)})
        ablation.reused = len(found)
        ablation.reused_played = sum(result.evaluated is not None for result in found.values())
        for number, arm in enumerate(arms):
            result = found.get(arm.name)
            if result is None:
                result = sweep.fold(number)
                persisted.save_fold(result)
            if result.evaluated is None and (evaluated := sweep.play(number, result.folded)) is not None:
                persisted.save_success(result.folded, evaluated)
                result = replace(result, evaluated=evaluated)
            ablation.measured["peak_memory_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            ablation.join(result, persisted.adapter(arm))
            write(folder / "report.json", to_json(ablation).encode())
            write(folder / "table.md", to_markdown(ablation).encode())
        write(folder / "curves.png", ablate_figure.draw(ablation.arms))
    return ablation, folder


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Raises StackError where another ablation is at work in the folder: each would delete what the other has made."""
    with ExitStack() as stack:
        try:
            stack.enter_context(held(folder / LOCK, f"distrl ablate in {folder}"))
        except OSError as error:
            raise unwritable(folder, error) from None
        yield


class _Sweep:
    """Folds and plays the arms of an ablation, one at a time; what one arm computes is shared with later ones."""

    def __init__(
        self, ablation: Ablation, evaluation: ArmEvaluation | None, store: ObjectStore, on_progress: OnProgress
    ) -> None:
        self._ablation, self._evaluation, self._store, self._on_progress = ablation, evaluation, store, on_progress
        log, arms = ablation.log, ablation.plan.arms
        self._names = [f"{arm.name} ({number + 1} of {len(arms)})" for number, arm in enumerate(arms)]
        self._updates = [len(cut(log, arm.config)) if arm.other_windows else len(log.windows) for arm in arms]
        self._shared = Shared()

    def fold(self, number: int) -> Result:
        """Fold arm `number`; compare the baseline with the run."""
        ablation, log = self._ablation, self._ablation.log
        arm, text = ablation.plan.arms[number], self._names[number]
        before, total = sum(self._updates[:number]), sum(self._updates)
        identity = None if arm.sets else Identity()
        self._on_progress(before, total, text)

        def on_update(state: LearnerState) -> None:
            self._on_progress(before + state.u - log.range.first, total, text)
            if identity is not None:
                identity.compare(state, log.versions)

        folded, state = fold_arm(arm, log, self._shared, self._store.get, on_update)
        if identity is not None:
            identity.compare_checkpoint(state, self._store, ablation.config.run)
        self._on_progress(before + self._updates[number], total, text)
        return Result(folded, identity=identity)

    def play(self, number: int, folded: Folded) -> Evaluated | None:
        """Play the policy of arm `number`; None where nothing is to be played, or the arm has diverged."""
        if self._evaluation is None or folded.diverged:
            return None
        done, total = sum(self._updates[: number + 1]), sum(self._updates)
        self._on_progress(done, total, f"{self._names[number]}: playing {self._evaluation.tasks} tasks")
        return _evaluated(folded, self._evaluation)


def asked_evaluation(
    tasks: int | None, split: Split, config: Config, *, own_phones: bool
) -> tuple[ArmEvaluation | None, str]:
    """What to play, and why nothing where nothing is.

    tasks: 0 is none; None: as many as a validation has, where a local stack's phones answer. own_phones: phones are
    configured, which are never played on without being asked for.
    """
    if tasks:
        return ArmEvaluation(tasks, split), ""
    if tasks == 0:
        return None, "as --evaluate 0 asks"
    if own_phones:
        return None, "the phones are not a local stack's; --evaluate N plays on them"
    return ArmEvaluation(config.evaluate.validation_episodes, split, required=False), ""


def default_name(config: Config, request: Request, log: RunLog) -> str:
    """A folder name determined by range and arms: the same command gives the same name.

    What is played is not part of it, so that arms folded without playing, or for fewer tasks, are found again.
    """
    updates = log.range
    asked = {
        "range": [updates.first, updates.to, updates.hold_out],
        "arms": [[arm.name, learning_fingerprint(arm.config)] for arm in request.plan.arms],
    }
    digest = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()
    return f"{config.run}-{digest[:8]}"


def played_on(config: Config, evaluation: ArmEvaluation | None) -> object:
    """What determines an arm's success besides the arm (JSON-able); None where nothing is played.

    Addresses on this machine are left out: simulated phones get other ports at each start, and `phones` describes them.
    """
    if evaluation is None:
        return None
    tasks = evaluation_tasks(config, evaluation.split, evaluation.tasks)
    devices = config.devices
    return {
        "tasks": [[task.task_id, task.suite, task.instruction, task.max_steps, task.phone_seed] for task in tasks],
        "phones": config.phones.model_dump(mode="json", exclude={"base_port"}),
        "devices": devices.model_dump(mode="json", exclude={"addresses", "directory", "emulators"}),
        "emulators": devices.emulators.model_dump(mode="json", exclude={"first_port", "token_file"}),
        "elsewhere": sorted(each for each in devices.addresses if each.rpartition(":")[0] not in LOOPBACK),
        "threads": config.worker.torch_threads,
        "gpu": "" if config.policy.server.endpoint is not None else gpu(config.worker.device, "worker.device"),
    }


def refuse_foreign(folder: Path) -> None:
    """Raises ConfigError where the folder holds files of an ablation's names that no ablation has made."""
    if not (folder / FOLDER).is_dir():
        foreign = [*(folder / name for name in FILES), *(folder / ADAPTERS).glob("*.safetensors")]
        if there := [str(each) for each in foreign if each.exists()]:
            what = f"holds {', '.join(there[:3])}, which no ablation has made"
            raise ConfigError(str(folder), what, "name another folder with --name or --out")


def clear(folder: Path, keep: Collection[Path]) -> None:
    """Make the folder, and delete an earlier ablation's files but `keep`. Other files are left alone.

    Raises ConfigError where it cannot be written.
    """
    try:
        for inner in (ADAPTERS, FOLDER):
            (folder / inner).mkdir(parents=True, exist_ok=True)
        earlier = [*(folder / ADAPTERS).glob("*.safetensors"), *(folder / FOLDER).glob("*.json")]
        for old in (*(folder / name for name in FILES), *(each for each in earlier if each not in keep)):
            old.unlink(missing_ok=True)
    except OSError as error:
        raise unwritable(folder, error) from None


def _refuse(request: Request) -> None:
    if request.name is not None and not NAME.fullmatch(request.name):
        raise ConfigError("--name", f"{request.name!r} is no folder's name", "use letters, digits, '.', '_' and '-'")
    run = request.plan.arms[0].config
    for arm in request.plan.arms if request.first else ():
        if used_up := arm.used_up(run, request.first):
            raise ConfigError(
                f"--from {request.first}",
                f"arm {arm.name} changes {', '.join(used_up)}, which the updates before the range have used already",
                "--from 0, or leave that arm out",
            )


def _refuse_untrainable(plan: Plan) -> None:
    """Raises ConfigError where an arm's algorithm cannot train its policy, or changes LoRA that its policy does not
    have; PolicyError where LoRA cannot go on the layers that it names or the policy cannot be trained whole: later it
    would end all arms."""
    tokenizers = {policy: tokenizer_of(policy) for policy in {arm.config.policy for arm in plan.arms}}
    for arm in plan.arms:
        tokenizer, policy = tokenizers[arm.config.policy], arm.config.policy
        refuse_other_policy(arm.config, tokenizer)
        lora = sorted(path for path in arm.paths if path.startswith(LORA))
        if lora and (policy.trains == "all" or isinstance(tokenizer, GridTokenizer)):
            kind = "policy.trains=all" if policy.trains == "all" else "a recurrent Q"
            raise ConfigError(
                f"arm {arm.name}",
                f"changes {', '.join(lora)}, and {kind} is trained without LoRA",
                "leave that arm out",
            )
    run, shapes = plan.arms[0].config.policy, cache(_trained)

    def trained(policy: PolicySettings) -> Shapes:
        return shapes(policy.model_copy(update={"lora_alpha": run.lora_alpha}))  # a factor: it shows in no shape

    _refuse_ignored(plan, trained)
    others = {(policy.trains, policy.lora_targets): policy for policy in tokenizers}
    del others[run.trains, run.lora_targets]
    for policy in others.values():
        trained(policy)  # which layers there are is known once the model is loaded


def _refuse_ignored(plan: Plan, trained: Callable[[PolicySettings], Shapes]) -> None:
    """Raises ConfigError where an arm changes which weights are trained, or of what shape, and another package's policy
    trains the same ones: the arm would be the baseline, folded again."""
    run = plan.arms[0].config.policy
    if package_of(run) == OURS:
        return
    for arm in plan.arms:
        for path in sorted(arm.paths & SHAPING):
            name, policy = path.rpartition(".")[2], arm.config.policy
            without = policy.model_copy(update={name: getattr(run, name)})
            if without != policy and trained(policy) == _trained_or_none(without, trained):
                raise ConfigError(
                    f"arm {arm.name}",
                    f"changes {path}, and the policy of {package_of(run)} trains the same weights without that change",
                    "leave that arm out",
                )


def _trained(policy: PolicySettings) -> Shapes:
    return {name: tuple(weight.shape) for name, weight in policy_of(policy).parameters().items()}


def _trained_or_none(policy: PolicySettings, trained: Callable[[PolicySettings], Shapes]) -> Shapes | None:
    """None where it cannot be trained so: with settings that neither the run nor an arm has together."""
    try:
        return trained(policy)
    except PolicyError:
        return None


def with_phones(config: Config, request: Request) -> Request:
    """The request as it can be met: without phones it fails now, and not after hours of folding, or plays nothing."""
    wanted = request.evaluation
    if wanted is None:
        return request
    try:
        evaluation_tasks(config, wanted.split, wanted.tasks)
        warn_left_out(config, wanted.split, wanted.tasks, "--evaluate")
        with Phones(config) as phones:
            if wanted.required or phones.answering:
                return request
            why = "no phone answers or is free"
    except (ConfigError, DeviceError) as error:
        if wanted.required:
            raise
        why = f"{error.where}: {error.what}"
    return replace(request, evaluation=None, unplayed=why)


def warn_of_too_long(plan: Plan, log: RunLog) -> None:
    """Warns of an arm that leaves out trajectories which the run learned from, as its buffer is shorter."""
    lengths = [len(logged.trajectory.steps) for logged in log.records]
    most = plan.arms[0].config.algorithm.replay.capacity
    for arm in plan.arms:
        capacity = arm.config.algorithm.replay.capacity
        if lost := sum(capacity < length <= most for length in lengths):
            LOG.warning(
                "arm %s leaves out %d of %d records: longer than its buffer's %d transitions",
                arm.name,
                lost,
                len(lengths),
                capacity,
            )


def _evaluated(folded: Folded, wanted: ArmEvaluation) -> Evaluated:
    """Success of an arm's adapter on phones. Neither screenshots nor trajectories are stored."""
    config = folded.arm.config
    name = ObjectRef(f"adapters/{folded.adapter_sha256}.safetensors", folded.adapter_sha256, len(folded.adapter))
    version = Version(0, None, folded.updates[-1][0], folded.base_sha256, name, learning_fingerprint(config), 0)
    played: list[Trajectory] = []
    greedy(
        config,
        version,
        folded.adapter,
        evaluation_tasks(config, wanted.split, wanted.tasks),
        Episode(PLAYER, lambda png: reference(SCREENSHOTS.name, png, "png", None), TRUTH),
        played.append,
        stop=threading.Event(),
        give_up=threading.Event(),
    )
    known = {each.task_id: each.outcome is Outcome.SUCCESS for each in played if each.outcome in JUDGED}
    return Evaluated(wanted.split.value, wanted.tasks, known, len(played) - len(known))
