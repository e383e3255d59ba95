"""The client of a server that loads adapters at run time: vLLM's interface, one request a call, no retries.

Errors are of four kinds. ServerError is temporary: the server is busy or restarting. RefusedError: the server will
refuse this request again. AdapterLostError: it has no adapter of that name, or no longer. ConfigError: no request will
succeed until whoever runs the server changes something.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from distrl.chat.endpoint import redirected
from distrl.chat.http import HttpAnswer, HttpClient, UnansweredError
from distrl.config import ServerSettings
from distrl.errors import ChatError, ConfigError
from distrl.policy.vlm.chat import Written
from distrl.rollout.served.answers import adapters_of, reason_of, written_of

SETTING: Final = "policy.server"
OK, NOT_FOUND = 200, 404
LATER: Final = frozenset({408, 425, 429})
"""The statuses from 400 to 499 that are temporary."""
REFUSED_KEY: Final = frozenset({401, 403})
WRONG_SET_UP: Final = (
    (r"lora is not enabled", "start it with --enable-lora"),
    (
        r"greater than max_lora_rank",
        "start it with a --max-lora-rank of at least policy.lora_rank, or begin a run with a lower policy.lora_rank",
    ),
    (r"expected target modules|unexpected modules", "serve policy.base_model, or choose other policy.lora_targets"),
)
"""(message of vLLM 0.33 where no adapter of this run can be loaded, hint)."""
LOADED_ALREADY: Final = re.compile("already been loaded", re.IGNORECASE)
NOTHING_THERE: Final = re.compile("no adapter found", re.IGNORECASE)
EVICTED: Final = re.compile("failed to remove lora adapter", re.IGNORECASE)
"""Message of later versions of vLLM for an adapter that is still listed but no longer in the engine's cache."""


class ServerError(ChatError):
    """The model server did not answer, or not as expected. It may later."""


class RefusedError(ServerError):
    """The server refuses this request, or its answer must not be recorded: repeating it is unlikely to help."""


class OtherInterfaceError(ServerError):
    """The server answers, but without what a decision needs."""


class UnseenAdapterError(ConfigError):
    """The server finds no adapter at the path that it was given."""


class AdapterLostError(ServerError):
    """The server has no adapter of that name: it was restarted, or another process has unloaded the adapter."""


class ModelServer:
    """Thread-safe. Raises ConfigError where no server is configured."""

    def __init__(self, settings: ServerSettings) -> None:
        if settings.endpoint is None:
            raise ConfigError(f"{SETTING}.endpoint", "is not set", "set it to the base URL of a model server")
        self._url = settings.endpoint.rstrip("/")
        self._timeout_s = settings.timeout_s
        self._headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if settings.api_key is not None:
            self._headers["Authorization"] = f"Bearer {settings.api_key.get_secret_value()}"
        self._http = HttpClient()

    def adapters(self) -> dict[str, str]:
        """Name -> path, on the server's machine, of each adapter that it has. Raises ServerError, ConfigError."""
        answer = self._answered(lambda: self._http.get(f"{self._url}/models", self._headers, self._timeout_s))
        if answer.status != OK:
            raise _failed("listing its models", answer)
        try:
            return adapters_of(answer.body)
        except ValueError:
            raise _no_such_interface("lists no models", answer) from None

    def load(self, name: str, path: str) -> None:
        """Load the adapter at `path` on the server's machine. Does nothing where `name` is loaded already, from
        wherever: check `adapters` afterwards. Raises ServerError, UnseenAdapterError, ConfigError."""
        answer = self._post("load_lora_adapter", {"lora_name": name, "lora_path": path})
        reason = reason_of(answer.body)
        if answer.status == OK or LOADED_ALREADY.search(reason):
            return
        if NOTHING_THERE.search(reason):
            raise UnseenAdapterError(
                SETTING,
                f"the server cannot load {name}: {reason}",
                "mount the folder policy.server.adapters on the server's machine, and name its place there in "
                "policy.server.adapters_there",
            )
        for pattern, hint in WRONG_SET_UP:
            if re.search(pattern, reason, re.IGNORECASE):
                raise ConfigError(SETTING, f"the server cannot load {name}: {reason}", hint)
        if answer.status == NOT_FOUND:
            raise ConfigError(
                SETTING,
                f"the server has no {self._url}/load_lora_adapter",
                "start vLLM with VLLM_ALLOW_RUNTIME_LORA_UPDATING=True (docs/serving.md)",
            )
        raise _failed(f"loading {name}", answer)

    def unload(self, name: str, timeout_s: float | None = None) -> None:
        """Unload an adapter. Does nothing where the server has no such adapter. Raises ServerError, ConfigError."""
        answer = self._post("unload_lora_adapter", {"lora_name": name}, timeout_s)
        if answer.status not in (OK, NOT_FOUND) and not EVICTED.search(reason_of(answer.body)):
            raise _failed(f"unloading {name}", answer)

    def write(self, body: Mapping[str, Any]) -> Written:
        """The completion by the model that `body` names. Raises AdapterLostError, RefusedError, ServerError,
        ConfigError."""
        answer = self._post("chat/completions", body)
        if answer.status == NOT_FOUND:
            raise AdapterLostError(SETTING, f"has no {body['model']} ({reason_of(answer.body)})", "it is loaded again")
        if 400 <= answer.status < 500 and answer.status not in LATER:
            raise RefusedError(
                SETTING,
                f"refuses a decision ({answer.status}): {reason_of(answer.body)}",
                "serve by a vLLM of docs/serving.md, with a --max-model-len that leaves room for prompt and "
                "action, and a --limit-mm-per-prompt of 1 + policy.history_screens images",
            )
        if answer.status != OK:
            raise _failed("a decision", answer)
        try:
            return written_of(answer.body)
        except ValueError:
            raise _no_such_interface("answers without token ids or log-probabilities", answer) from None

    def _post(self, path: str, body: Mapping[str, Any], timeout_s: float | None = None) -> HttpAnswer:
        within = self._timeout_s if timeout_s is None else min(timeout_s, self._timeout_s)
        return self._answered(lambda: self._http.post(f"{self._url}/{path}", self._headers, body, within))

    def _answered(self, request: Callable[[], HttpAnswer]) -> HttpAnswer:
        try:
            answer = request()
        except UnansweredError as error:
            raise ServerError(
                SETTING,
                f"{self._url} does not answer: {error}",
                "see whether it runs; where it is slow, raise policy.server.timeout_s",
            ) from None
        if 300 <= answer.status < 400:
            raise ConfigError(f"{SETTING}.endpoint", *redirected(self._url, answer, f"{SETTING}.endpoint"))
        if answer.status in REFUSED_KEY:
            raise ConfigError(
                f"{SETTING}.api_key", f"{self._url} refuses it ({answer.status})", "set it to the server's --api-key"
            )
        return answer


def _failed(doing: str, answer: HttpAnswer) -> ServerError:
    return ServerError(
        SETTING,
        f"{doing} failed ({answer.status}): {reason_of(answer.body)}",
        "see the server's log; where it is full, start it with more --max-loras and --max-cpu-loras",
    )


def _no_such_interface(what: str, answer: HttpAnswer) -> OtherInterfaceError:
    return OtherInterfaceError(SETTING, f"{what}: {answer.body[:100]!r}", "serve by a vLLM that docs/serving.md names")
