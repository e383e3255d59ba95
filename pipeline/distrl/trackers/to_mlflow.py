"""MLflow, at the server or the database that MLFLOW_TRACKING_URI names."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from typing import Final, TypeVar

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunStatus

from distrl.errors import ConfigError
from distrl.trackers.protocol import Point, TrackedRun

T = TypeVar("T")

URI: Final = "MLFLOW_TRACKING_URI"
REQUEST_LIMITS: Final = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "3", "MLFLOW_HTTP_REQUEST_TIMEOUT": "10"}
"""Used unless they are set: with MLflow's own values, a request to a server that does not answer waits for minutes, and
no stop ends it."""
TAG: Final = "distrl.id"
"""The tag with our run's id, by which a later start finds the run in MLflow."""
MOST_METRICS: Final = 1_000
MOST_PARAMS: Final = 100
"""Most of each in one request, as MLflow's REST API allows."""
LONGEST_PARAM: Final = 500
"""Characters, which every version of MLflow takes."""


class MLflow:
    """A figure is a metric with step and time. One that is there is not sent again: a database would keep it once, and
    a folder (file:) twice."""

    def __init__(self, project: str) -> None:
        """project: the name of the experiment. Raises ConfigError where no server is named."""
        if not os.environ.get(URI):
            raise ConfigError(
                URI,
                "is not set, so MLflow has no place to write to",
                f"set {URI} to your server, as http://HOST:5000 (`pip install mlflow && mlflow server` starts one)",
            )
        for name, value in REQUEST_LIMITS.items():
            os.environ.setdefault(name, value)
        self._client, self._project = MlflowClient(os.environ[URI]), project
        self._run_id: str | None = None
        self._goes_on = False
        """Whether an earlier start has created the run in MLflow."""
        self._there: dict[str, set[int]] = {}
        """Figure -> its steps in MLflow before this start, once they have been asked for."""

    def start(self, run: TrackedRun, logged: int) -> None:
        found = self._client.get_experiment_by_name(self._project)
        tagged = f"tags.`{TAG}` = '{run.id}'"
        before = self._client.search_runs([found.experiment_id], tagged, max_results=1) if found is not None else []
        if logged and not before:
            raise ConfigError(
                URI,
                f"project {self._project!r} has no run {run.name}, of which {logged} points were logged before",
                f"name the same {URI} and --project as then, or another --out to log all of them again",
            )
        experiment = found.experiment_id if found is not None else self._client.create_experiment(self._project)
        there: Collection[str] = ()  # MLflow refuses to change one; and a kill may have come before some
        if before:
            self._run_id, self._goes_on, there = before[0].info.run_id, True, before[0].data.params
            self._client.update_run(self._run_id, RunStatus.to_string(RunStatus.RUNNING))
        else:
            made = self._client.create_run(experiment, start_time=run.began, tags={TAG: run.id}, run_name=run.name)
            self._run_id = made.info.run_id
        texts = [
            Param(path, (value if isinstance(value, str) else json.dumps(value))[:LONGEST_PARAM])
            for path, value in sorted(run.settings.items())
            if path not in there
        ]
        for part in _parts(texts, MOST_PARAMS):
            self._client.log_batch(self._run_id, params=part)

    def log(self, points: Sequence[Point]) -> None:
        assert self._run_id is not None, "it was started"
        metrics = [
            Metric(name, value, each.at, each.step)
            for each in points
            for name, value in each.values.items()
            if each.step not in self._steps(self._run_id, name)
        ]
        for part in _parts(metrics, MOST_METRICS):
            self._client.log_batch(self._run_id, metrics=part)

    def _steps(self, run_id: str, name: str) -> set[int]:
        """The steps of a figure that an earlier start has logged: a kill may have come before they were counted."""
        if self._goes_on and name not in self._there:
            self._there[name] = {each.step for each in self._client.get_metric_history(run_id, name)}
        return self._there.get(name, set())

    def finish(self) -> None:
        if self._run_id is not None:
            self._client.set_terminated(self._run_id)


def _parts(items: Sequence[T], most: int) -> Iterator[list[T]]:
    left = iter(items)
    while part := list(islice(left, most)):
        yield part
