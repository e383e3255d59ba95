"""The reliability of a judge: its verdicts against ground truth. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from distrl.types import Outcome

KNOWN = (Outcome.SUCCESS, Outcome.FAILURE)
VERDICTS = (Outcome.SUCCESS, Outcome.FAILURE, Outcome.UNKNOWN)


@dataclass(frozen=True, slots=True)
class Confusion:
    """counts: (truth, verdict) -> trajectories; truth is SUCCESS or FAILURE."""

    counts: Counter[tuple[Outcome, Outcome]]

    @classmethod
    def of(cls, pairs: Iterable[tuple[Outcome, Outcome]]) -> Confusion:
        """pairs: truth and verdict of each trajectory; those without known truth are left out."""
        return cls(Counter((truth, verdict) for truth, verdict in pairs if truth in KNOWN))

    @property
    def total(self) -> int:
        return self.counts.total()

    @property
    def judged(self) -> int:
        """Trajectories with a verdict."""
        return sum(self.counts[truth, verdict] for truth in KNOWN for verdict in KNOWN)

    @property
    def accuracy(self) -> float | None:
        """Over those with a verdict; None if there is none."""
        return self._share(sum(self.counts[each, each] for each in KNOWN), self.judged)

    @property
    def precision(self) -> float | None:
        """The share of true successes among the judge's successes."""
        return self._share(self.counts[Outcome.SUCCESS, Outcome.SUCCESS], self._called(Outcome.SUCCESS))

    @property
    def recall(self) -> float | None:
        """The share of successes, of those with a verdict, that the judge found."""
        successes = sum(self.counts[Outcome.SUCCESS, verdict] for verdict in KNOWN)
        return self._share(self.counts[Outcome.SUCCESS, Outcome.SUCCESS], successes)

    @property
    def discrepancy(self) -> float | None:
        """Success rate by the judge minus that by the truth, over those with a verdict (DistRL, figure 5)."""
        successes = sum(self.counts[Outcome.SUCCESS, verdict] for verdict in KNOWN)
        return self._share(self._called(Outcome.SUCCESS) - successes, self.judged)

    def _called(self, verdict: Outcome) -> int:
        return sum(self.counts[truth, verdict] for truth in KNOWN)

    @staticmethod
    def _share(part: int, whole: int) -> float | None:
        return part / whole if whole else None
