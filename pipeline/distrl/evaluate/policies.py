"""Success by policy: trained versions and agents without weights in one table. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

from distrl.evaluate.curves import Score, score
from distrl.types import Evaluation, Split, Trajectory


@dataclass(frozen=True, slots=True)
class Acted:
    """Whose success a row is: a published version's, or (version PROMPTED) that of the agent that sha256 names."""

    version: int
    sha256: str

    @property
    def place(self) -> tuple[bool, int, str]:
        """In a table: published versions first, ascending."""
        return self.version < 0, self.version, self.sha256

    @property
    def label(self) -> str:
        """The number of a version, the beginning of an agent's sha256."""
        return str(self.version) if self.version >= 0 else self.sha256[:12]


Scores = Mapping[Acted, Score]


def by_policy(evaluations: Iterable[Evaluation]) -> dict[tuple[str, Split], Scores]:
    """Suite and split -> everybody who was evaluated on it -> success, the first record of each task counted."""
    found: dict[tuple[str, Split], dict[Acted, dict[str, Trajectory]]] = {}
    for evaluation in evaluations:
        task = evaluation.trajectory.task
        group = found.setdefault((task.suite, task.split), {})
        tasks = group.setdefault(Acted(evaluation.version, evaluation.version_sha256), {})
        tasks.setdefault(task.task_id, evaluation.trajectory)
    return {
        place: {acted: score(group[acted].values()) for acted in sorted(group, key=lambda each: each.place)}
        for place, group in sorted(found.items())
    }


def held_out(evaluations: Iterable[Evaluation], suite: str | None) -> Scores:
    """Those on the test tasks of `suite`; None: of the first suite by name that has any."""
    found = {each: scores for (each, split), scores in by_policy(evaluations).items() if split is Split.TEST}
    return found.get(min(found, default="") if suite is None else suite, {})


def name_of(acted: Acted, agents: Mapping[str, str]) -> str:
    """For people. agents: names of those without weights, by sha256."""
    return f"version {acted.label}" if acted.version >= 0 else agents.get(acted.sha256, f"agent {acted.label}")


def as_json(scores: Scores, agents: Mapping[str, str]) -> list[dict[str, Any]]:
    """Success is in [0, 1] and null where no outcome is known; others: tasks without one."""
    return [
        {
            "policy": name_of(acted, agents),
            "version": acted.version,
            "version_sha256": acted.sha256,
            "success": each.success if each.episodes else None,
            "low": each.interval[0],
            "high": each.interval[1],
            "episodes": each.episodes,
            "others": each.others,
        }
        for acted, each in scores.items()
    ]


def as_html(scores: Scores, agents: Mapping[str, str]) -> str:
    rows = "".join(
        f"<tr><td>{escape(name_of(acted, agents))}</td>{''.join(f'<td>{told}</td>' for told in each.told())}"
        f"<td>{each.successes} of {each.episodes}</td><td>{each.others}</td></tr>"
        for acted, each in scores.items()
    )
    heads = "".join(f"<th>{name}</th>" for name in ("policy", "success", "95 %", "tasks", "without an outcome"))
    return f"<table><tr>{heads}</tr>{rows}</table>" if rows else "<p>No held-out evaluation yet.</p>"
