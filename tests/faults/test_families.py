"""A vision-language model of each family, and the paper's AutoUI, in the whole loop: it clones demonstrations of the
simulated phone, A-RIDE goes on with it, and its learner is killed on the way. The models are random and small, so
nothing is known but what the run itself has learned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

import pytest
from distrl.broker.reader import decoded
from distrl.demonstrations.scripted import demonstration_tasks
from distrl.types import Figures, Trajectory
from policy.autoui_t5.parts import base_model
from policy.vlm.models import FAMILIES

from faults.live import WARMUP, Json, LiveRun

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]

UPDATES: Final = 20
"""Of A-RIDE."""
CRITICS: Final = 2
"""The first of them, which train the critics alone."""
WAITING: Final = {"timeout_s": 600.0, "poll_s": 0.5}
"""For a state of the run to come: only a run that hangs is ended by it."""
LIKELIEST: Final = "worker.temperature=0.001"
"""A token that is likelier than another by 0.02 nats is written then: the worker's actions are the greedy ones."""


@dataclass(frozen=True)
class Cloning:
    """What is cloned, and how: minibatches of each of the warm-up's two updates."""

    minibatches: int
    batch_size: int = 16
    lr: float = 0.008
    demonstrations: int = 8


PAPERS: Final = "autoui_t5"
"""The paper's own. It writes AutoUI's four fields, three times the tokens of the others' JSON, and clones half as many
demonstrations."""
CLONING: Final = {
    "qwen25": Cloning(130),
    "smolvlm": Cloning(160),
    "gemma3": Cloning(200),
    "internvl": Cloning(180),
    PAPERS: Cloning(550, batch_size=8, lr=0.003, demonstrations=4),
}
"""With the seeds tried, every demonstrated action then has a probability above 0.85 (SmolVLM's above 0.98). With fewer
minibatches some are left near a half, and one processor's rounding clones what another's does not."""
IN_EACH_RUN: Final = ("qwen25", "smolvlm", PAPERS)
"""Of the tests. They differ most: in how they place an image in a prompt, in what they remember, in what they write."""
_JSON: Final = {"dialect": "json", "system_prompt": "Act.", "action_tokens": 48}
SETTINGS: Final[dict[str, Json]] = {
    "qwen25": _JSON,
    "smolvlm": {**_JSON, "history_screens": 1},
    "gemma3": _JSON,
    "internvl": _JSON,
    PAPERS: {"action_tokens": 128},
}
"""Settings of the policy. SmolVLM alone reads an earlier screenshot."""


def learning(family: str, base: Path) -> Json:
    """Short prompts and small batches; one trajectory is an update. Under a random model LoRA learns too slowly."""
    return {
        "policy": {"base_model": str(base), "trains": "all", "history": 1, **SETTINGS[family]},
        "warmup": asdict(CLONING[family]),
        "learner": {"trajectories_per_update": 1},
        "algorithm": {"critic_warmup_updates": CRITICS},
        "devices": {"lease_ttl_s": 360.0, "operation_timeout_s": 120.0, "settle_timeout_s": 120.0},
    }


def make(family: str, directory: Path) -> Path:
    """A base model of `family` in a folder of `directory`."""
    if family == PAPERS:
        return base_model(directory, d_model=64, d_kv=16, d_ff=128, dropout_rate=0.0)
    FAMILIES[family](made := directory / "base")
    return made


def test_every_family_is_here() -> None:
    assert CLONING.keys() == SETTINGS.keys() == {*FAMILIES, PAPERS}


@pytest.mark.parametrize(
    "family", [pytest.param(each, marks=() if each in IN_EACH_RUN else pytest.mark.faults_long) for each in CLONING]
)
def test_it_clones_by_the_letter_and_then_learns_with_its_learner_killed(
    family: str, new_run: Callable[..., LiveRun], tmp_path: Path
) -> None:
    run = new_run(learning(family, make(family, tmp_path)))
    demonstrations = CLONING[family].demonstrations

    run.start("demonstrate", "demonstrate")
    run.learner()
    run.worker(sets=[LIKELIEST])
    run.until("version 0", lambda: bool(run.versions()), **WAITING)
    run.stop("learner")  # it would learn from what is played now, and the worker would play on with later weights
    demonstrated = play_again(run)
    run.stop("worker-0")
    again = compared(run, demonstrated)
    assert again.exact >= 0.95 * again.met, again
    assert again.met >= 0.85 * sum(len(each.steps) for each in demonstrated), again

    run.learner()
    run.worker()
    run.feed(tasks=6)
    run.until("updates of A-RIDE", lambda: len(run.updates()) >= WARMUP + demonstrations + 2, **WAITING)
    run.roles["learner"].kill()
    run.learner()
    run.until_learned(WARMUP + demonstrations + 6, **WAITING)
    run.feed(tasks=UPDATES - demonstrations - 6, version=demonstrations + 6)
    run.until_learned(WARMUP + UPDATES, **WAITING)
    run.stop("worker-0")
    lived = run.end_learning()  # equal to a fresh fold of the log
    assert len(set(lived.adapters.values())) == 1 + UPDATES - CRITICS, "each of the other updates changed the policy"
    acted = {step.version for played in run.counted().values() for step in played.steps}
    assert max(acted) >= demonstrations + 6, "what A-RIDE had learned acted"


def play_again(run: LiveRun) -> list[Trajectory]:
    """Have the worker do the tasks of the demonstrations. Returns the demonstrations."""
    tasks = demonstration_tasks(run.config, run.config.warmup.demonstrations)
    for task in tasks:
        run.publish("tasks", again_id(task.task_id), replace(task, task_id=again_id(task.task_id)))
    run.until("the tasks to be played", lambda: len(run.counted()) == len(tasks), **WAITING)
    found = [decoded(raw, Trajectory) for raw in run.raw("demonstrations")]
    assert [each.task_id for each in found] == [task.task_id for task in tasks]
    return found


@dataclass(frozen=True)
class Compared:
    """What the worker did in the tasks of the demonstrations."""

    met: int
    """Demonstrated screens and prompts that it met. After an action that is another one it meets none that follow."""
    exact: int
    """Of these, on which it took the demonstrated action, to the token."""
    others: list[str]
    losses: list[float]
    """Of the updates that cloned, in nats."""


def compared(run: LiveRun, demonstrated: list[Trajectory]) -> Compared:
    played, met, exact, others = run.counted(), 0, 0, list[str]()
    (cloned,) = run.versions()
    for each in demonstrated:
        attempt = played[again_id(each.task_id)]
        assert {step.version_sha256 for step in attempt.steps} == {cloned.adapter.sha256}
        for number, (wanted, found) in enumerate(zip(each.steps, attempt.steps, strict=False)):
            is_screen = wanted.screenshot.sha256 == found.screenshot.sha256
            is_prompt, is_action = wanted.prompt_ids == found.prompt_ids, wanted.action_ids == found.action_ids
            met += is_screen and is_prompt
            exact += is_screen and is_prompt and is_action
            if not (is_screen and is_prompt and is_action):
                same = f"same screen {is_screen}, same prompt {is_prompt}, restless {wanted.restless}, {found.restless}"
                others.append(f"{each.task_id} step {number}: {found.action_text!r} for {wanted.action_text!r}, {same}")
        if attempt.note:
            others.append(f"{each.task_id}: {attempt.note}")
    return Compared(met, exact, others, [decoded(raw, Figures).metrics["clone_loss"] for raw in run.raw("figures")])


def again_id(task_id: str) -> str:
    return f"again-{task_id}"
