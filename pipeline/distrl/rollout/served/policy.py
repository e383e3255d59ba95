"""The policy of a process at a model server.

Every actor that calls `decide` sends its own request; the server makes the batches. The reloader calls `swap` from its
own thread: verify the bytes, load them, test them, switch, drain, unload. A decision belongs to the version under whose
name the server answered. An answer under another name, or to another prompt than would be recorded, is refused and
requested again.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Final

from tenacity import wait_random_exponential

from distrl.config import PolicySettings
from distrl.errors import ConfigError, PolicyError
from distrl.policy.adapters import check
from distrl.policy.protocol import SampledAction
from distrl.policy.sampling import Sampling
from distrl.policy.vlm.chat import ChatForm, Question
from distrl.retry import StoppedError, retry
from distrl.rollout.decider import PolicyClosedError, PolicyEndedError
from distrl.rollout.episode import Decision, Observation, sampling_seed
from distrl.rollout.served.folder import AdapterFolder, Hold
from distrl.rollout.served.names import name_of
from distrl.rollout.served.probe import try_out
from distrl.rollout.served.server import (
    SETTING,
    AdapterLostError,
    ModelServer,
    RefusedError,
    ServerError,
    UnseenAdapterError,
)
from distrl.types import Version

log = logging.getLogger(__name__)

FIRST_PAUSE_S: Final = 0.5
LONGEST_PAUSE_S: Final = 10.0
MOST_REFUSED: Final = 3
"""How often one decision may be refused, by the server or here, before the episode is interrupted: a server that reads
another prompt would be asked for ever."""
COLDEST: Final = 0.01
"""vLLM silently raises lower temperatures to this one (vllm.sampling_params), and the learner would not know."""
DRAIN_S: Final = 5.0
"""How long an ending process waits for its last decisions before it unloads adapters."""
LEAVE_S: Final = 5.0
"""How long an ending process waits for an unload request: a server that hangs must not keep it past its grace period.
"""


@dataclass
class _Loaded:
    """An adapter at the server. answering: requests under its name that are not answered yet."""

    version: Version
    hold: Hold
    answering: int = 0
    restored: int = 0
    """How often it was loaded again after the server had lost it."""
    failed_at: float = -math.inf
    """When loading it again last failed; `failure` says why."""
    failure: ServerError | None = None

    @property
    def name(self) -> str:
        return self.hold.name


def refuse_colder(sampling: Sampling | None) -> None:
    """Raises ConfigError for a temperature that a server would raise."""
    if sampling is not None and sampling.temperature < COLDEST:
        raise ConfigError(
            "worker.temperature",
            f"is {sampling.temperature:g}, and a server draws at no less than {COLDEST:g}",
            "raise it",
        )


class ServedPolicy:
    """`distrl.rollout.decider.VersionedDecider`. sampling: None is greedy."""

    def __init__(
        self,
        form: ChatForm,
        settings: PolicySettings,
        base_sha256: str,
        run: str,
        *,
        sampling: Sampling | None,
        ticks: Callable[[], float] = time.perf_counter,
    ) -> None:
        if settings.server.adapters is None:
            raise ConfigError(
                f"{SETTING}.adapters", "is not set", "set it to a folder that every worker and the server share"
            )
        refuse_colder(sampling)
        self._form, self._settings, self._base, self._run = form, settings, base_sha256, run
        self._server = ModelServer(settings.server)
        self._folder = AdapterFolder(settings.server.adapters, run)
        self._there = settings.server.adapters_there or str(settings.server.adapters.expanduser().absolute())
        self._sampling = sampling
        self._ticks = ticks
        self._changed = threading.Condition()
        self._restoring = threading.Lock()
        self._current: _Loaded | None = None
        self._closed = threading.Event()
        self._failure: ConfigError | None = None

    @property
    def earlier_screens(self) -> int:
        return self._form.tokenizer.earlier_screens

    @property
    def loaded(self) -> Version | None:
        return None if self._current is None else self._current.version

    def wait_loaded(self, version: int, timeout_s: float) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._closed.is_set() or self._has(version), timeout_s)
            return self._has(version)

    def refuse_unable(self) -> None:
        """Raises ConfigError for a server that cannot load adapters, even before there is one. A server that does not
        answer yet is checked by the first `swap`."""
        try:
            self._server.load(f"{self._run}-none", f"{self._there}/.none")
        except UnseenAdapterError:
            return
        except ServerError as error:
            log.warning("the model server is not ready yet: %s", error)

    def episode(self) -> AbstractContextManager[None]:
        return nullcontext()

    def check(self) -> None:
        if self._failure is not None:
            raise self._ended()

    def swap(self, version: Version, adapter: bytes) -> None:
        """Raises PolicyError for an adapter that does not belong here, ServerError where the server cannot take it now,
        ConfigError where it never will, PolicyClosedError or PolicyEndedError once closed; the old version stays in use
        then."""
        self._refuse_closed()
        check(adapter, self._settings, self._base)
        hold = self._folder.place(name_of(self._run, version), adapter, self._refuse_closed)
        try:
            self._tidy()  # adapters that a killed process has left may take the server's room for this one
            self._load(hold.name)
        except BaseException:
            hold.release()
            raise
        with self._changed:
            old, self._current = self._current, _Loaded(version, hold)
            self._changed.notify_all()
            if old is not None:
                self._changed.wait_for(lambda: self._closed.is_set() or not old.answering)
                old.hold.release()
        self._tidy()

    def decide(self, observation: Observation) -> Decision:
        """Raises PolicyClosedError once closed, PolicyError for what is no screenshot, ServerError where the server
        gives no answer within policy.server.wait_s, PolicyEndedError where it never will."""
        began, refused = self._ticks(), 0
        question = self._form.question(
            observation.png, observation.task.instruction, observation.previous, observation.earlier
        )
        seed = sampling_seed(observation.task.task_id, observation.attempt_id, observation.step)

        def attempt() -> tuple[SampledAction, Version]:
            with self._answering() as used:
                return self._sampled(used, question, seed), used.version

        def failed(error: ServerError, pause_s: float) -> None:
            nonlocal refused
            refused += isinstance(error, RefusedError)
            if refused == MOST_REFUSED or self._ticks() - began + pause_s > self._settings.server.wait_s:
                raise error
            log.warning("step %d is asked for again in %.1f s: %s", observation.step, pause_s, error.what)

        pauses = wait_random_exponential(multiplier=FIRST_PAUSE_S, max=LONGEST_PAUSE_S)
        try:
            row, version = retry(attempt, self._closed, ServerError, pauses, failed)
        except StoppedError:
            raise self._ended() from None
        except ConfigError as error:
            self._failure = error
            self.close()
            raise self._ended() from error
        return Decision(
            row.action,
            row.action_text,
            question.prompt_ids,
            row.action_ids,
            row.logprob,
            version.version,
            version.adapter.sha256,
            self._ticks() - began,
        )

    def close(self) -> None:
        """Callers that still wait get a PolicyClosedError, once the request that is under way for them is answered."""
        with self._changed:
            self._closed.set()
            self._changed.notify_all()

    def leave(self) -> None:
        """Close, and unload what no process needs any more, if the server answers."""
        self.close()
        with self._changed:
            used = self._current
            if used is not None:
                self._changed.wait_for(lambda: not used.answering, DRAIN_S)
                used.hold.release()
        self._tidy(LEAVE_S)

    def _sampled(self, used: _Loaded, question: Question, seed: int) -> SampledAction:
        body = self._form.body(used.name, question, self._sampling, seed)
        restored = used.restored
        try:
            written = self._server.write(body)
        except AdapterLostError:
            asked = self._ticks()
            with self._restoring:
                if (failure := used.failure) is not None and used.failed_at >= asked:
                    # Another actor has just tried and failed. If each actor tried, they would wait for one another.
                    raise type(failure)(failure.where, failure.what, failure.hint) from None
                if used.restored == restored:  # else another actor has loaded it meanwhile
                    log.warning("the server has lost %s: it is loaded again", used.name)
                    self._restore(used)
            written = self._server.write(body)
        try:
            return self._form.sampled(used.name, question, written)
        except PolicyError as error:
            log.error("an answer to %s is refused: %s", used.name, error.what)
            raise RefusedError(error.where, error.what, error.hint) from None

    def _restore(self, used: _Loaded) -> None:
        try:
            self._load(used.name)
        except ServerError as error:
            used.failed_at, used.failure = self._ticks(), error
            raise
        used.restored += 1

    def _load(self, name: str) -> None:
        """Ensure that the server has the files of `name` loaded under that name, and test its answers."""
        path = f"{self._there}/{name}"
        self._refuse_closed()
        if name not in self._server.adapters():
            self._refuse_closed()
            self._server.load(name, path)
        self._refuse_closed()
        found = self._server.adapters().get(name)
        if found is None:
            raise ServerError(SETTING, f"says that it has loaded {name}, and does not list it", "see the server's log")
        if found != path:
            raise ConfigError(
                f"{SETTING}.adapters_there",
                f"the server has {name} from {found!r:.300}, and not from {path}",
                "give all workers of one server the same folder, or unload it",
            )
        try_out(self._server, self._form, name, self._refuse_closed)
        self._refuse_closed()

    def _refuse_closed(self) -> None:
        """Raises PolicyClosedError once closed, or PolicyEndedError if closed by a failure. Called between requests, so
        that loading ends with the running one."""
        if self._closed.is_set():
            raise self._ended()

    def _unload_unneeded(self, timeout_s: float | None) -> None:
        """Unload the adapters of this run that no process holds. A process that needs one later loads it again."""
        for name in self._folder.names():
            if self._closed.is_set() and timeout_s is None:
                return  # `leave` continues, with a shorter timeout
            with self._folder.alone(name) as mine:
                if mine:
                    self._server.unload(name, timeout_s)

    def _tidy(self, timeout_s: float | None = None) -> None:
        """`_unload_unneeded`; errors are only logged, as a later call or process does it. timeout_s: of a request."""
        try:
            self._unload_unneeded(timeout_s)
        except (ServerError, ConfigError) as error:
            log.warning("an adapter that nobody needs stays loaded: %s", error.what)

    @contextmanager
    def _answering(self) -> Iterator[_Loaded]:
        with self._changed:
            self._changed.wait_for(lambda: self._closed.is_set() or self._current is not None)
            used = self._current
            if used is None or self._closed.is_set():
                raise self._ended()
            used.answering += 1
        try:
            yield used
        finally:
            with self._changed:
                used.answering -= 1
                self._changed.notify_all()

    def _has(self, version: int) -> bool:
        return self._current is not None and self._current.version.version >= version

    def _ended(self) -> PolicyError:
        if self._failure is None:
            return PolicyClosedError("worker", "the policy has stopped", "start the worker again")
        return PolicyEndedError(self._failure.where, self._failure.what, self._failure.hint)
