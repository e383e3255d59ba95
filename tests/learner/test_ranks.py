"""Ranks: any number of them gives the same bits, and what ends one of them ends all and loses nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import brought
import brought_algorithm
import byte_policy
import pytest
import torch
from distrl.compute import Compute, refuse_idle_ranks
from distrl.config import Config, load
from distrl.errors import ConfigError, DistrlError, PolicyError, StoreError
from distrl.learner.fold import fold
from distrl.learner.ranks import Begin, End, Forget, Leader, follow, keep_features, refuse_other_settings
from distrl.learner.state import LearnerState
from distrl.ranks.group import ALONE, RankError, Ranks
from distrl.runs.settings import learning_fingerprint
from distrl.telemetry.monitor import Monitor
from distrl.types import LoggedTrajectory, ObjectRef
from policy.vlm.models import FAMILIES
from waiting import until

from learner.test_vision_language import in_its_words
from learner.together import Group, results
from learner.world import Screens, config, folded, q_base, save_tiny_base, update_of, windows

TESTS = Path(__file__).parents[1]
UPDATES = 6
"""Three of cloning, one of the critics alone, two of A-RIDE."""
EPISODES_PER_TASK = 4
Digests = list[dict[str, str]]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("ranks") / "base"
    save_tiny_base(directory)
    return directory


def of(base: Path, *sets: str) -> Config:
    return config(base, "learner.device=cpu", "learner.shards=8", "algorithm.truncation=bootstrap", *sets)


class Failing(Screens):
    """A store that has every screenshot but the third that is asked for, until the file `away` is gone."""

    def __init__(self, away: Path) -> None:
        super().__init__()
        self._away, self._asked = away, list[ObjectRef]()

    def __call__(self, ref: ObjectRef) -> bytes:
        self._asked.append(ref)
        if ref in self._asked[2:3] and self._away.exists():
            raise StoreError(ref.key, "is not there yet", "wait")
        return super().__call__(ref)


class Noting(Screens):
    """A store that notes in a folder which rank has asked for what, and how often."""

    def __init__(self, folder: Path, rank: int) -> None:
        super().__init__()
        self._folder, self._rank = folder, rank

    def __call__(self, ref: ObjectRef) -> bytes:
        with (self._folder / f"{self._rank} {ref.sha256}").open("a") as file:
            file.write("asked\n")
        return super().__call__(ref)


def recorded(settings: Config, screens: Screens) -> list[list[LoggedTrajectory]]:
    """The windows of the updates, in the words of the settings' policy."""
    if settings.policy.dialect is None:
        return windows(screens, settings, UPDATES, EPISODES_PER_TASK)
    return in_its_words(settings, screens, UPDATES, EPISODES_PER_TASK)


def shown(window: Sequence[LoggedTrajectory]) -> list[ObjectRef]:
    return [step.screenshot for logged in window for step in logged.trajectory.steps]


def learned(ranks: Ranks, settings: Config, away: Path | None = None) -> Digests:
    """Rank 0: the digests after each update, each window's screenshots loaded as they come. away: a file; as long as it
    is there, the store of rank 1 fails."""
    screens = Failing(away) if away is not None and ranks.rank == 1 else Screens()
    stop = threading.Event()
    made = recorded(settings, screens)
    if ranks.rank > 0:
        follow(settings, ranks, screens, stop, Monitor())
        return []
    state, leader = LearnerState(settings), Leader(settings, ranks, screens, stop)
    leader.begin(state)
    found, failures = [], 0
    for u, window in enumerate(made):
        try:
            leader.want(shown(window))
            until(lambda: not leader.load_arrived() and not leader._coming)
        except StoreError:  # as the learner: the fold asks again
            failures += 1
            assert away is not None
            away.unlink()
        leader.fold(window, update_of(u, window, state.watermarks, settings))
        leader.forget(())
        leader.call()
        found.append(state.digests())
    leader.end()
    assert failures == (away is not None)
    return found


@pytest.fixture(scope="module")
def alone(base: Path) -> Digests:
    return learned_alone(of(base))


@pytest.mark.parametrize("kept", [False, True], ids=["computed", "read from a folder"])
def test_a_start_that_loads_the_whole_buffer_is_seen_at_work_with_each_screenshot(
    base: Path, tmp_path: Path, kept: bool
) -> None:
    """Its first fold may take longer than a process may stand still."""
    settings = of(base, f"learner.features_kept={tmp_path}") if kept else of(base)
    screens, turns = Screens(), list[int]()
    made = recorded(settings, screens)
    for _ in range(2):
        state = LearnerState(settings)
        keep_features(state, settings)
        leader = Leader(settings, ALONE, screens, threading.Event(), lambda: turns.append(len(turns)))
        leader.begin(state)
        turns.clear()
        leader.fold(made[0], update_of(0, made[0], state.watermarks, settings))
        leader.close()
        assert len(turns) == len({each.sha256 for each in shown(made[0])})


def test_weights_that_are_not_finite_end_the_learner_before_they_are_published(base: Path) -> None:
    settings = of(base, "algorithm.lr=1e30", "algorithm.grad_norm=1e30")
    screens = Screens()
    state, leader = LearnerState(settings), Leader(settings, ALONE, screens, threading.Event())
    leader.begin(state)

    def learn() -> None:
        for u, window in enumerate(recorded(settings, screens)):
            leader.fold(window, update_of(u, window, state.watermarks, settings))
            assert state.is_finite

    with closing(leader), pytest.raises(PolicyError, match=r"^update \d: has made weights that are not finite"):
        learn()


def learned_alone(settings: Config) -> Digests:
    """What one process learns that knows of no ranks."""
    screens, found = Screens(), list[dict[str, str]]()
    state = LearnerState(settings)
    for u, window in enumerate(recorded(settings, screens)):
        fold(state, window, update_of(u, window, state.watermarks, settings), screens, settings)
        found.append(state.digests())
    return found


@pytest.mark.parametrize("world", [2, 3, 4, 8])
def test_any_number_of_ranks_learns_the_same_bits(world: int, base: Path, alone: Digests) -> None:
    assert results(world, learned, of(base))[0] == alone


def test_a_vision_language_model_learns_the_same_bits_on_two_ranks(tmp_path: Path) -> None:
    FAMILIES["qwen25"](tmp_path)
    settings = of(tmp_path, "policy.dialect=json", "policy.system_prompt=Act.", "policy.action_tokens=48")
    alone = learned_alone(settings)
    assert len({each["adapter"] for each in alone[-2:]}) == 2
    assert results(2, learned, settings)[0] == alone


@pytest.mark.gpus
def test_ranks_on_gpus_of_one_kind_learn_what_one_gpu_learns(base: Path) -> None:
    alone = learned_alone(of(base, "learner.device=cuda:0"))
    assert results(2, learned, of(base, "learner.device=auto"))[0] == alone


def fetched_ahead(ranks: Ranks, settings: Config, folder: Path) -> list[dict[str, str]]:
    """Rank 0: the digests after each update, where the screenshots of the next window are fetched beside it."""
    screens, stop = Noting(folder, ranks.rank), threading.Event()
    made = recorded(settings, screens)
    if ranks.rank > 0:
        follow(settings, ranks, screens, stop, Monitor())
        return []
    state, leader = LearnerState(settings), Leader(settings, ranks, screens, stop)
    leader.begin(state)
    found = []
    for u, window in enumerate(made):
        later = made[u + 1] if u + 1 < len(made) else []
        leader.want(shown(later))
        leader.fold(window, update_of(u, window, state.watermarks, settings))
        until(lambda due=later: {each.sha256 for each in shown(due)} <= asked_for(folder).keys())
        leader.forget(later)
        found.append(state.digests())
    leader.end()
    return found


def asked_for(folder: Path) -> dict[str, list[int]]:
    """By sha256: the ranks that have asked for it."""
    found: dict[str, list[int]] = {}
    for file in sorted(folder.iterdir()):
        rank, name = file.name.split()
        found.setdefault(name, []).extend([int(rank)] * file.read_text().count("asked"))
    return found


def test_each_rank_fetches_its_screenshots_beside_the_update_before_and_no_other_rank_does(
    base: Path, alone: Digests, tmp_path: Path
) -> None:
    assert results(2, fetched_ahead, of(base), tmp_path)[0] == alone
    asked = asked_for(tmp_path)
    assert all(len(ranks) == 1 for ranks in asked.values()), "each once, by one rank"
    shares = Counter(rank for (rank,) in asked.values())
    assert abs(shares[0] - shares[1]) <= 1


@pytest.mark.parametrize(
    ("kind", "small"),
    [
        ("vtrace", "critic_warmup_updates=1"),
        ("digirl", "critic_warmup_updates=1"),
        ("grpo", "group_size=4"),
        ("r2d3", "target_updates=2"),
    ],
)
def test_others_learn_the_same_bits_on_two_ranks(kind: str, small: str, base: Path, tmp_path: Path) -> None:
    sets = [f"algorithm.type={kind}", "algorithm.minibatches=2", f"algorithm.{small}"]
    settings = of(q_base(tmp_path / "q", base) if kind == "r2d3" else base).model_copy(
        update={"algorithm": load(sets=sets, environ={}).algorithm}
    )
    alone = learned_alone(settings)
    assert len({each["adapter"] for each in alone[-2:]}) == 2
    assert results(2, learned, settings)[0] == alone


def test_a_store_that_fails_one_rank_is_asked_again_by_all(base: Path, alone: Digests, tmp_path: Path) -> None:
    away = tmp_path / "away"
    away.touch()
    assert results(2, learned, of(base), away)[0] == alone


def test_who_is_closed_ends_although_the_store_hangs(base: Path) -> None:
    """Python waits for threads before it ends: a learner that failed would first make every request of its queue."""
    script = (
        "import sys, threading, time; from pathlib import Path;"
        "from distrl.learner.ranks import Leader; from distrl.learner.state import LearnerState;"
        "from distrl.ranks.group import ALONE; from distrl.types import ObjectRef; from learner.world import config;"
        "settings, begun = config(Path(sys.argv[1])), threading.Event();"
        "refs = [ObjectRef(f'screenshots/{n:064x}.png', f'{n:064x}', 10) for n in range(160)];"
        "leader = Leader(settings, ALONE, lambda ref: (begun.set(), time.sleep(4.0)), threading.Event());"
        "leader.begin(LearnerState(settings)); leader.want(refs); assert begun.wait(30);"
        "leader.close(); print(time.time(), flush=True)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(base)], capture_output=True, text=True, check=True, cwd=TESTS
    )
    assert time.time() - float(done.stdout.split()[-1]) < 20, "one round of requests takes 4 seconds, all of them 40"


def goes_on_from(ranks: Ranks, settings: Config, done: int, upto: int, before: tuple[object, ...] | None) -> object:
    """Updates `done` to `upto` from a checkpoint of another number of ranks; rank 0's digests and its checkpoint."""
    screens, stop = Screens(), threading.Event()
    made = windows(screens, settings, upto, EPISODES_PER_TASK)
    if ranks.rank > 0:
        follow(settings, ranks, screens, stop, Monitor())
        return None
    held = [logged for window in made[:done] for logged in window]
    state = LearnerState.restore(settings, *before, held) if before else LearnerState(settings)  # type: ignore[arg-type]
    leader = Leader(settings, ranks, screens, stop)
    leader.begin(state)
    for u, window in enumerate(made[done:], done):
        leader.fold(window, update_of(u, window, state.watermarks, settings))
    leader.end()
    return state.digests(), (state.meta(), state.tensors())


def test_a_checkpoint_is_continued_by_another_number_of_ranks(base: Path, alone: Digests) -> None:
    settings, saved = of(base), None
    for world, done, upto in ((1, 0, 2), (2, 2, 5), (1, 5, UPDATES)):
        digests, saved = results(world, goes_on_from, settings, done, upto, saved)[0]
        assert digests == alone[upto - 1]


def killed_in_the_middle(ranks: Ranks, settings: Config) -> str:
    """What ends this rank, where rank 1 is killed within update 2."""
    screens, stop = Screens(), threading.Event()
    made = windows(screens, settings, 3)
    if ranks.rank > 0:
        if ranks.rank == 1:
            _kill_at_gradient(5)
        try:
            follow(settings, ranks, screens, stop, Monitor())
        except RankError as error:
            return str(error)
    state, leader = LearnerState(settings), Leader(settings, ranks, screens, stop)
    leader.begin(state)
    for u, window in enumerate(made):
        try:
            leader.fold(window, update_of(u, window, state.watermarks, settings))
        except RankError as error:
            return f"update {u}: {error}"
    return "nothing"


def _kill_at_gradient(nth: int) -> None:
    original, left = Compute.gradients, nth

    def gradients(self: Compute, *arguments: object) -> object:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(self, *arguments)  # type: ignore[arg-type]

    Compute.gradients = gradients  # type: ignore[assignment, method-assign]


def test_a_killed_rank_ends_the_others_with_an_error(base: Path) -> None:
    first, second, third = Group(3, killed_in_the_middle, of(base)).results()
    assert first.startswith("update 2: rank 0 of 3: another rank has ended")
    assert "start the learner again" in first
    assert second is None, "it was killed"
    assert "rank 2 of 3: another rank has ended" in third


def diverging(ranks: Ranks, settings: Config) -> str:
    """What ends this rank, where one number of the weights of rank 1 is another after update 0, as on another
    processor."""
    screens, stop = Screens(), threading.Event()
    made = windows(screens, settings, 2)
    if ranks.rank > 0:
        _spoil_weights()
    try:
        if ranks.rank > 0:
            follow(settings, ranks, screens, stop, Monitor())
        state, leader = LearnerState(settings), Leader(settings, ranks, screens, stop)
        leader.begin(state)
        leader.fold(made[0], update_of(0, made[0], state.watermarks, settings))
    except PolicyError as error:
        return str(error)
    return "nothing"


def _spoil_weights() -> None:
    original = LearnerState.learn

    def learn(self: LearnerState, new: list[LoggedTrajectory]) -> object:
        metrics = original(self, new)
        with torch.no_grad():
            weight = next(iter(self.policy.parameters().values())).flatten()
            weight[0] = torch.nextafter(weight[0], torch.tensor(2.0))
        return metrics

    LearnerState.learn = learn  # type: ignore[assignment, method-assign]


def test_a_rank_with_other_weights_ends_all_before_anything_is_published(base: Path) -> None:
    for said in results(2, diverging, of(base)):
        assert "rank 1 of 2: has other weights than rank 0 after the same update" in said
        assert "none of them were published" in said


def stopped(ranks: Ranks, settings: Config) -> bool:
    """Whether rank 0 hears that rank 1 was asked to stop."""
    stop = threading.Event()
    if ranks.rank > 0:
        stop.set()
        follow(settings, ranks, Screens(), stop, Monitor())
        return True
    leader = Leader(settings, ranks, Screens(), stop)
    leader.begin(LearnerState(settings))
    leader.end()
    return stop.is_set()


def other_settings(ranks: Ranks, settings: Config) -> str:
    own = settings.learner.model_copy(update={"seed": ranks.rank})
    with pytest.raises(ConfigError) as refused:
        refuse_other_settings(settings.model_copy(update={"learner": own}), ranks)
    return str(refused.value)


def both(ranks: Ranks, settings: Config) -> tuple[bool, str]:
    return stopped(ranks, settings), other_settings(ranks, settings)


class Orders:
    """What a rank hears from one that verifies the log, which keeps no features."""

    rank, world = 1, 2

    def __init__(self, *orders: object) -> None:
        self._orders = list(orders)

    def receive(self) -> object:
        return self._orders.pop(0)

    def gather(self, value: object) -> list[object]:
        return [value]


def test_a_rank_that_verifies_removes_no_feature_of_a_learner_that_is_at_work(base: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    settings = of(base, f"learner.features_kept={kept}", "learner.features_mb=0")
    screens, live = Screens(), LearnerState(settings)
    keep_features(live, settings)
    folded(live, windows(screens, settings, 5), screens, settings)
    live.forget_screens()
    files = {file: file.stat().st_mtime_ns for file in kept.rglob("*") if file.is_file()}
    assert files
    fresh = LearnerState(settings)
    orders = Begin(fresh.meta(), fresh.tensors(), [], fresh.features.is_kept), Forget(()), End()
    follow(settings, Orders(*orders), screens, threading.Event(), Monitor())  # type: ignore[arg-type]
    assert {file: file.stat().st_mtime_ns for file in kept.rglob("*") if file.is_file()} == files
    assert live.features.is_kept


def test_a_stop_of_any_rank_reaches_rank_0_and_other_settings_are_refused_on_all(base: Path) -> None:
    for heard, said in results(2, both, of(base)):
        assert heard
        assert "those of rank 1 are not those of rank 0" in said


def other_plugin(ranks: Ranks, settings: Config, sites: Sequence[Path]) -> str:
    """What is raised where each rank has the package that is installed in its own one of `sites`."""
    sys.path.insert(0, str(sites[ranks.rank]))
    try:
        refuse_other_settings(settings, ranks)
    except ConfigError as error:
        return str(error)
    return ""


def test_other_code_of_the_package_that_brings_the_policy_is_refused_on_all(tmp_path: Path) -> None:
    settings = of(byte_policy.save(tmp_path / "base"))
    first, same, other = (brought.install(tmp_path / name) for name in ("first", "same", "other"))
    assert results(2, other_plugin, settings, (first, same)) == ["", ""]
    brought.edit(other)
    for raised in results(2, other_plugin, settings, (first, other)):
        assert "its policy is of users_family 1 (files " in raised
        assert "on rank 1, and of users_family 1 (files " in raised
        assert " on rank 0; the first file that differs is users_family/family.py" in raised
        assert "install the same package on the host of every rank; every file of the package counts" in raised


def other_algorithm(ranks: Ranks, base: Path, sites: Sequence[Path]) -> str:
    """As `other_plugin`, with the algorithm of the package, whose settings each rank reads itself."""
    sys.path.insert(0, str(sites[ranks.rank]))
    return other_plugin(ranks, config(base, f"algorithm.type={brought_algorithm.TYPE}"), sites)


def test_other_code_of_the_package_that_brings_the_algorithm_is_refused_on_all(base: Path, tmp_path: Path) -> None:
    first, same, other = (brought_algorithm.install(tmp_path / name) for name in ("first", "same", "other"))
    brought_algorithm.edit(other, "np.minimum", "np.fmin")
    assert results(2, other_algorithm, base, (first, same)) == ["", ""]
    for raised in results(2, other_algorithm, base, (first, other)):
        assert raised.startswith("algorithm.type: its algorithm is of users_awr 1 (files ")
        assert " on rank 0; the first file that differs is users_awr/algorithm.py" in raised


def assigned(ranks: Ranks, settings: Config) -> tuple[list[int], list[int], str]:
    """What this rank worked on and took, and the error of an item on another rank."""
    compute, worked, taken = Compute(settings), list[int](), list[int]()
    compute.split_among(ranks)

    def work(item: int) -> int:
        worked.append(item)
        if item == 90:
            raise StoreError("item 90", "is gone", "bring it back")
        return item * item

    with pytest.raises(DistrlError) as failed:
        compute.each(range(100), work, lambda item, made: taken.append(made))
    assert compute.lacking([3, 1] if ranks.rank else [1, 2]) == [1, 2, 3]
    return worked, taken, str(failed.value)


def assigned_to_who_has_it(ranks: Ranks, settings: Config) -> tuple[list[int], list[int]]:
    compute, worked, taken = Compute(settings), list[int](), list[int]()
    compute.split_among(ranks)
    has = {0: (3, 4), 1: (0, 1, 2, 4)}[ranks.rank]

    def work(item: int) -> int:
        worked.append(item)
        return -item

    compute.each(range(8), work, lambda item, made: taken.append(made), has.__contains__)
    return worked, taken


def test_items_are_assigned_to_the_rank_that_has_them_at_hand_and_the_others_in_turn(base: Path) -> None:
    first, second = results(2, assigned_to_who_has_it, of(base))
    assert first[0] == [3, 4, 5, 7]
    assert second[0] == [0, 1, 2, 6]
    assert first[1] == second[1] == [-item for item in range(8)]


def test_items_are_assigned_and_an_error_of_one_rank_is_raised_on_all(base: Path) -> None:
    first, second = results(2, assigned, of(base))
    assert first[0] == list(range(0, 92, 2)), "the one that fails is the last of its rank"
    assert second[0] == list(range(1, 96, 2)), "and its block is the last that anybody begins"
    assert first[1:] == second[1:]
    assert first[1] == [item * item for item in range(96) if item < 90 or item % 2]
    assert "item 90: is gone" in first[2]


def test_more_ranks_than_shards_are_refused_with_the_setting(base: Path) -> None:
    refuse_idle_ranks(of(base), 8)
    with pytest.raises(ConfigError, match=r"learner\.shards=9 or more"):
        Compute(of(base)).split_among(Ranks(0, 9))


def test_the_number_of_ranks_is_no_part_of_a_run(base: Path) -> None:
    more = of(base, "learner.ranks=8")
    assert learning_fingerprint(more) == learning_fingerprint(of(base))
    assert "learner.ranks" not in more.shared()
