"""R2D3 as an algorithm: what it learns from a few demonstrations, what it draws, and what its settings make of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from distrl.algorithms.r2d3.memory import PRETRAINING, R2D3, R2d3Memory
from distrl.algorithms.registry import cloning_updates
from distrl.algorithms.returns import Array
from distrl.config import Config, load
from distrl.errors import ConfigError
from distrl.learner.state import LearnerState
from distrl.offline.lineage.trace import trace
from distrl.policy.autoui.tokenizer import END
from distrl.policy.protocol import TrajectoryStep, trajectory_steps
from distrl.policy.recurrent_q.policy import RecurrentQPolicy
from distrl.policy.recurrent_q.tokenizer import GridTokenizer, parts
from distrl.policy.registry import tokenizer_of
from distrl.replay.sequences import windows as windows_of
from distrl.runs.settings import learning_fingerprint
from distrl.types import Action, ActionKind, LoggedTrajectory, Outcome, Point, ScreenSize
from learner.world import (
    Screens,
    folded,
    learning,
    logged,
    q_base,
    read_by,
    save_tiny_base,
    trajectory,
    update_of,
    windows,
)

SCREEN = ScreenSize(64, 128)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    eyes = tmp_path_factory.mktemp("base")
    save_tiny_base(eyes)
    return q_base(tmp_path_factory.mktemp("bases") / "q", eyes)


@pytest.fixture
def screens() -> Screens:
    return Screens()


def settings(base: Path, *sets: str) -> Config:
    """Of the algorithm alone what `sets` say; the rest small."""
    rest = learning(base, warmup_updates=3)
    chosen = load(
        sets=("algorithm.type=r2d3", "algorithm.replay.capacity=60", "algorithm.minibatches=2", *sets), environ={}
    )
    return load(environ={}, base={**rest, "algorithm": {}, "run": "r2d3"}).model_copy(
        update={"algorithm": chosen.algorithm}
    )


def played(
    config: Config, screens: Screens, seeds: range, *, expert: bool, steps: int | None = None
) -> list[LoggedTrajectory]:
    tokenizer = tokenizer_of(config.policy)
    assert isinstance(tokenizer, GridTokenizer)
    made = [trajectory(screens, seed, expert=expert, outcome=Outcome.SUCCESS, steps=steps) for seed in seeds]
    return [read_by(tokenizer, each) for each in logged(made, 0 if expert else 100)]


def q_ahead(state: LearnerState, steps: list[TrajectoryStep]) -> Array:
    """(B,) by how much the demonstrated action's Q is ahead of the best other one's."""
    policy = state.policy
    assert isinstance(policy, RecurrentQPolicy)
    found = []
    with torch.no_grad():
        for each, screen in zip(steps, state.features.of(steps, policy.earlier_screens), strict=True):
            q, number = policy.q(policy.seen(each.step.prompt_ids, screen)), policy.number(each.step)
            others = q.clone()
            others[number] = -torch.inf
            found.append(float(q[number] - others.max()))
    return np.array(found)


def test_pre_training_makes_the_demonstrated_actions_the_best(base: Path, screens: Screens, tmp_path: Path) -> None:
    """After the warm-up, which is its own and on demonstrations alone, greedy decisions repeat what was shown."""
    config = settings(q_base(tmp_path / "q", base / "autoui", width=32), "algorithm.target_updates=2")
    warm = config.warmup.model_copy(update={"updates": 8, "minibatches": 25, "lr": 3e-3})
    config = config.model_copy(update={"warmup": warm})
    demonstrations = played(config, screens, range(4), expert=True, steps=4)
    steps = [step for each in demonstrations for step in trajectory_steps(each.trajectory)]
    state = LearnerState(config)
    assert state.warmup is None
    state.features.load(state.screens(demonstrations), screens)
    before = q_ahead(state, steps)
    folded(state, [demonstrations, *([] for _ in range(7))], screens, config)
    after = q_ahead(state, steps)
    assert (before < 0).mean() > 0.8
    assert (after > 0).mean() > 0.9
    pngs = [screens(each.step.screenshot) for each in steps]
    earlier = [[screens(ref) for ref in each.earlier_screens(state.policy.earlier_screens)] for each in steps]
    decided = state.policy.decide(pngs, [each.step.prompt_ids for each in steps], None, [0] * len(steps), earlier)
    assert np.mean([a.action_ids == s.step.action_ids for a, s in zip(decided, steps, strict=True)]) > 0.9
    values = state.algorithm.values(steps)
    assert values is not None
    assert values.mean() > 0.3, "the demonstrations succeed, three steps later at most"


@pytest.mark.parametrize(("recurrent", "exact"), [(True, True), (False, False)])
def test_it_remembers_what_only_the_first_screen_told(
    base: Path, screens: Screens, tmp_path: Path, recurrent: bool, exact: bool
) -> None:
    """Demonstrations of two steps. The second screen is the same in all of them, and so is the first action: what is to
    be done on it was on the first screen. DQfD, without a memory, decides alike for all."""
    acts = q_base(tmp_path / "q", base / "autoui", width=32, recurrent=recurrent)
    config = settings(acts, "algorithm.target_updates=2")
    warm = config.warmup.model_copy(update={"updates": 10, "minibatches": 25, "lr": 3e-3})
    config = config.model_copy(update={"warmup": warm})
    tokenizer, shown = tokenizer_of(config.policy), played(config, screens, range(4), expert=True, steps=2)
    home = tokenizer.encode_action(Action(ActionKind.HOME), SCREEN)
    cells = [tokenizer.encode_action(Action(ActionKind.TAP, touch=Point(0.1 * n, 0.1 * n)), SCREEN) for n in range(4)]

    def told(number: int, each: LoggedTrajectory) -> LoggedTrajectory:
        ids = (home, cells[number])
        shots = (screens.plain(80 * number), screens.plain(255))
        steps = tuple(
            replace(step, screenshot=shot, action_ids=written, action=tokenizer.decode_action(written, SCREEN))
            for step, shot, written in zip(each.trajectory.steps, shots, ids, strict=True)
        )
        assert isinstance(tokenizer, GridTokenizer)
        return read_by(tokenizer, replace(each, trajectory=replace(each.trajectory, steps=steps)))

    demonstrations = [told(number, each) for number, each in enumerate(shown)]
    state = folded(LearnerState(config), [demonstrations, *([] for _ in range(9))], screens, config)
    prompts = [each.trajectory.steps[1].prompt_ids for each in demonstrations]
    earlier = [[screens(each.trajectory.steps[0].screenshot)] for each in demonstrations]
    second = screens(demonstrations[0].trajectory.steps[1].screenshot)
    decided = state.policy.decide([second] * 4, prompts, None, [0] * 4, earlier)
    right = sum(each.action_ids == cell for each, cell in zip(decided, cells, strict=True))
    assert (right == 4) if exact else (right <= 1), right


def test_a_stored_state_is_that_of_the_network_that_admitted_the_episode(base: Path, screens: Screens) -> None:
    config = settings(base)
    state = LearnerState(config)
    (demonstration,) = played(config, screens, range(1), expert=True, steps=5)
    network = state.policy
    assert isinstance(network, RecurrentQPolicy)
    state.features.load(state.screens([demonstration]), screens)
    steps = trajectory_steps(demonstration.trajectory)
    (screen,) = state.features.of(steps[-1:], network.earlier_screens)
    inputs = network.seen(steps[-1].step.prompt_ids, screen).inputs
    with torch.no_grad():
        after = [
            network.network(inputs[None, :t], network.network.start(1), torch.ones(1, t).bool())[1] for t in (1, 4)
        ]
    folded(state, [[demonstration], []], screens, config)
    buffer = state.algorithm.memory.buffers["demonstrations"]
    stored = buffer.columns["state"][buffer.slots(buffer.entries[0])]
    assert not stored[0].any()
    assert np.allclose(stored[1], after[0][0].numpy(), atol=1e-5)
    assert np.allclose(stored[4], after[1][0].numpy(), atol=1e-5), "two updates have not changed it"


@pytest.mark.parametrize(
    ("ratio", "u", "own", "shown"),
    [
        (0.25, 3, True, True),
        (0.0, 3, True, False),
        (1.0, 3, False, True),
        (0.25, 2, False, True),
        (0.0, 0, False, True),
    ],
)
def test_it_uses_the_buffers_that_it_draws_from(
    base: Path, screens: Screens, ratio: float, u: int, own: bool, shown: bool
) -> None:
    """R2D2 is a ratio of 0; the warm-up, updates 0 to 2, is of demonstrations alone."""
    config = settings(base, f"algorithm.demo_ratio={ratio}", "algorithm.length=2", "algorithm.stride=1")
    memory = R2d3Memory(config)
    everything = [*played(config, screens, range(3), expert=True), *played(config, screens, range(9, 12), expert=False)]
    for each in everything:
        memory.admit(each)
    for buffer, entry in memory.unscored():
        memory.score(buffer, entry)
    assert not memory.unscored()
    used = memory.uses(u)
    assert {each.logged.trajectory.is_expert for each in used} == {
        *([False] if own else []),
        *([True] if shown else []),
    }
    drawn, draws = memory.drawn(np.random.default_rng(0), u, 200)
    assert {id(each.entry) for each in drawn} == {id(each) for each in used}
    assert all(each.entry.logged.trajectory.is_expert == e for each, e in zip(drawn, draws.is_expert, strict=True))
    assert all(each.window in windows_of(len(each.entry), memory.shape) for each in drawn)
    assert memory.phase(u) is (PRETRAINING if u < 3 else R2D3)


def test_a_priority_is_that_of_its_own_sequence(base: Path, screens: Screens) -> None:
    config = settings(base, "algorithm.length=2", "algorithm.stride=1", "algorithm.alpha=1")
    memory = R2d3Memory(config)
    for each in played(config, screens, range(3), expert=True, steps=6):
        memory.admit(each)
    for buffer, entry in memory.unscored():
        memory.score(buffer, entry)
    drawn, _ = memory.drawn(np.random.default_rng(0), 0, 200)
    slots = {(id(each.entry), each.window.start): each.slot for each in drawn}
    assert len(slots) == len(set(slots.values())) == 3 * 5
    memory.update_priorities(drawn, np.zeros(len(drawn)))
    memory.update_priorities(drawn[:1], np.array([1e6]))
    again, _ = memory.drawn(np.random.default_rng(1), 0, 200)
    assert {each.slot for each in again} == {drawn[0].slot}


def test_what_is_no_part_of_the_instruction_is_skipped(base: Path, screens: Screens) -> None:
    """A demonstration whose text the instruction does not have is skipped, and counted as such."""
    config = settings(base)
    (shown,) = played(config, screens, range(1), expert=True, steps=3)
    words = tokenizer_of(config.policy)
    assert isinstance(words, GridTokenizer)
    typed = tuple(words.words.tokens.index(token) for token in ("<type>", "lamp", "</s>"))
    last = replace(shown.trajectory.steps[-1], action_ids=typed)
    other = replace(shown, trajectory=replace(shown.trajectory, steps=(*shown.trajectory.steps[:-1], last)))
    state = folded(LearnerState(config), [[other]], screens, config)
    assert not state.held()
    assert folded(LearnerState(config), [[shown]], screens, config).held()


@pytest.mark.parametrize("wrong", ["goal", "action", "no prompt"])
def test_prompts_that_do_not_say_what_was_done_are_refused(base: Path, screens: Screens, wrong: str) -> None:
    """What is possible is read from the last prompt: an action of another goal would have a Q of −1000 for ever."""
    config = settings(base)
    (shown,) = played(config, screens, range(1), expert=True, steps=3)
    *steps, last = shown.trajectory.steps
    read, words = parts(last.prompt_ids), tokenizer_of(config.policy)
    assert read is not None
    assert isinstance(words, GridTokenizer)
    goal, first, *others = read.goal, *read.actions
    prompts = {
        "goal": (*goal[:-1], END, *(token for action in read.actions for token in action)),
        "action": (*goal, END, words.words.tokens.index("<back>"), END, *(token for each in others for token in each)),
        "no prompt": last.prompt_ids[:-1],
    }
    assert first != (words.words.tokens.index("<back>"), END)
    changed = replace(shown.trajectory, steps=(*steps, replace(last, prompt_ids=prompts[wrong])))
    memory = R2d3Memory(config)
    assert memory.refuses(shown.trajectory) is None
    assert "do not say what its steps did" in str(memory.refuses(changed))
    assert not folded(LearnerState(config), [[replace(shown, trajectory=changed)]], screens, config).held()


def test_the_lineage_has_no_cloning(base: Path, screens: Screens) -> None:
    config = settings(base)
    assert (cloning_updates(config), config.warmup.updates) == (0, 3)
    window = played(config, screens, range(3), expert=True)
    found = trace([(update_of(0, window, (), config), window)], config, lambda record: None)
    assert [each.phase for each in found.updates] == ["pretraining"]
    assert all(each.cloned is None and each.in_policy_since == 0 for each in found.trajectories)


def test_without_a_memory_nothing_is_handed_on(base: Path, screens: Screens, tmp_path: Path) -> None:
    """DQfD's form: the state stays what it was, and the fold goes on."""
    flat = q_base(tmp_path / "flat", base / "autoui", recurrent=False)
    config = settings(flat, "algorithm.burn_in=0", "algorithm.length=1", "algorithm.stride=1")
    window = played(config, screens, range(3), expert=True)
    state = folded(LearnerState(config), [window, []], screens, config)
    assert not state.algorithm.memory.buffers["demonstrations"].columns["state"].any()
    assert state.digests()["adapter"] != LearnerState(config).digests()["adapter"]


def test_a_policy_without_values_is_refused_with_what_makes_one(base: Path) -> None:
    config = settings(base / "autoui")
    with pytest.raises(ConfigError, match="this policy has none") as refused:
        LearnerState(config)
    assert "distrl base-model recurrent-q" in refused.value.hint


def test_strides_that_leave_steps_out_are_refused(base: Path) -> None:
    with pytest.raises(ConfigError, match=r"algorithm\.stride must be at most"):
        settings(base, "algorithm.length=4", "algorithm.stride=5")


def test_a_ladder_changes_nothing_that_is_learned_from_a_log(base: Path) -> None:
    """It is the workers' alone: the same log gives the same bits, and a run goes on where another one is set."""
    plain, screens, found = settings(base, "algorithm.batch_size=4"), Screens(), []
    ladder = plain.model_copy(update={"worker": load(sets=["worker.ladder.rungs=8"], environ={}).worker})
    for each in (plain, ladder):
        state = folded(LearnerState(each), windows(screens, each, 5), screens, each)
        assert state.u == 5
        found.append((state.digests(), learning_fingerprint(each)))
    assert plain != ladder
    assert found[0] == found[1]
