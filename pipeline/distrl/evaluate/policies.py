"""Success by policy: trained versions and agents without weights in one table. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from distrl.broker.duplicates import first_evaluations
from distrl.evaluate.curves import SuccessRate, score
from distrl.evaluate.markup import visible
from distrl.types import Evaluation, Split, Trajectory


@dataclass(frozen=True, slots=True)
class PolicyId:
    """Identifies an evaluated policy: a published version or an agent without weights."""

    version: int
    """PROMPTED for an agent."""
    sha256: str
    """Of the version's weights, or of the agent's description."""

    @property
    def place(self) -> tuple[bool, int, str]:
        """Sort key: published versions first, ascending."""
        return self.version < 0, self.version, self.sha256

    @property
    def label(self) -> str:
        """The number of a version, the beginning of an agent's sha256."""
        return str(self.version) if self.version >= 0 else self.sha256[:12]


Scores = Mapping[PolicyId, SuccessRate]


def by_policy(evaluations: Iterable[Evaluation]) -> dict[tuple[str, Split], Scores]:
    """Suite and split -> policy -> success. The first record of each task counts."""
    found: dict[tuple[str, Split], dict[PolicyId, list[Trajectory]]] = {}
    for evaluation in first_evaluations(evaluations):
        task = evaluation.trajectory.task
        group = found.setdefault((task.suite, task.split), {})
        group.setdefault(PolicyId(evaluation.version, evaluation.version_sha256), []).append(evaluation.trajectory)
    return {
        place: {policy_id: score(group[policy_id]) for policy_id in sorted(group, key=lambda each: each.place)}
        for place, group in sorted(found.items())
    }


def held_out(evaluations: Iterable[Evaluation], suite: str | None) -> Scores:
    """Scores on the test tasks of `suite`; None: of the first suite by name that has any."""
    found = {each: scores for (each, split), scores in by_policy(evaluations).items() if split is Split.TEST}
    return found.get(min(found, default="") if suite is None else suite, {})


def name_of(policy_id: PolicyId, agents: Mapping[str, str]) -> str:
    """The policy's name, for people. agents: sha256 -> name of agents without weights."""
    return (
        f"version {policy_id.label}"
        if policy_id.version >= 0
        else agents.get(policy_id.sha256, f"agent {policy_id.label}")
    )


def as_json(scores: Scores, agents: Mapping[str, str]) -> list[dict[str, Any]]:
    """JSON-able. success: in [0, 1], null where no outcome is known. others: tasks without an outcome."""
    return [
        {
            "policy": name_of(policy_id, agents),
            "version": policy_id.version,
            "version_sha256": policy_id.sha256,
            "success": each.known,
            "low": each.interval[0],
            "high": each.interval[1],
            "episodes": each.episodes,
            "others": each.others,
        }
        for policy_id, each in scores.items()
    ]


def as_html(scores: Scores, agents: Mapping[str, str]) -> str:
    rows = "".join(
        f"<tr><td>{visible(name_of(policy_id, agents))}</td>{''.join(f'<td>{cell}</td>' for cell in each.as_text())}"
        f"<td>{each.successes} of {each.episodes}</td><td>{each.others}</td></tr>"
        for policy_id, each in scores.items()
    )
    heads = "".join(f"<th>{name}</th>" for name in ("policy", "success", "95 %", "tasks", "without an outcome"))
    return f"<table><tr>{heads}</tr>{rows}</table>" if rows else "<p>No held-out evaluation yet.</p>"
