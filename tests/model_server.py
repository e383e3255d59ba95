"""A server with vLLM's interface on loopback, as far as it is used: it runs a vision-language model by the library's
own means (processor, chat template, pixels, PEFT), none of ours, and misbehaves as it is told.

What it answers, and the words of its refusals, are those of vLLM 0.33 (vllm.entrypoints.openai.models.serving,
vllm.entrypoints.serve.lora.api_router, vllm.entrypoints.openai.chat_completion, vllm.lora.peft_helper).
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from PIL import Image
from transformers import (
    AutoImageProcessor,
    AutoModelForImageTextToText,
    AutoProcessor,
)

Json = dict[str, Any]


class RefusalError(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(status, message)
        self.status, self.message = status, message


class Sampler:
    """Draws as vLLM's sampler: allowed tokens, biases, temperature, top-k, top-p; then the log-probability of what was
    drawn."""

    def __init__(self, asked: Json, processed: bool) -> None:
        self.asked, self.processed = asked, processed
        self.rule = torch.Generator().manual_seed(asked.get("seed") or 0)
        self.ids: list[int] = []
        self.logprobs: list[float] = []

    def draw(self, raw: torch.Tensor) -> int:
        logits = raw.clone()
        if allowed := self.asked.get("allowed_token_ids"):
            logits = torch.full_like(raw, float("-inf")).index_copy(0, torch.tensor(allowed), raw[allowed])
        for token, bias in (self.asked.get("logit_bias") or {}).items():
            logits[int(token)] += bias
        temperature = self.asked["temperature"]
        logits = logits / (temperature or 1.0)
        ordered, places = logits.sort()
        if most := self.asked["top_k"]:
            ordered[:-most] = float("-inf")
        if self.asked["top_p"] < 1:
            ordered[:-1][ordered.softmax(-1).cumsum(-1)[:-1] <= 1 - self.asked["top_p"]] = float("-inf")
        logp = torch.empty_like(logits).index_copy(0, places, ordered).log_softmax(-1)
        token = int(logp.argmax()) if not temperature else int(torch.multinomial(logp.exp(), 1, generator=self.rule))
        self.ids.append(token)
        self.logprobs.append(float((logp if self.processed else raw.log_softmax(-1))[token]))
        return token


@dataclass
class ModelServer:
    """url: its base URL. adapters: those loaded, name -> path. Set what is to go wrong; an answer uses up its fault."""

    directory: Path
    url: str = ""
    lora: bool = True
    runtime_updates: bool = True
    max_rank: int = 16
    max_adapters: int = 8
    processed: bool = True
    key: str | None = None
    adapters: dict[str, str] = field(default_factory=dict)
    bytes_of: dict[str, str] = field(default_factory=dict)
    """Name -> sha256 of the weights that were first loaded under it; it outlives restarts, as a prefix cache may."""
    events: list[tuple[str, str]] = field(default_factory=list)
    """load, unload and answer, each with the adapter's name, in order."""
    written: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)
    """Of each answer the adapter's name and the token ids, in order."""
    wrong_names: int = 0
    other_prompts: int = 0
    without_ids: int = 0
    """Answers as of servers that do not know return_token_ids."""
    misreported: dict[int, float] = field(default_factory=dict)
    """Seed of a request -> nats by which the log-probability of its first token is reported too low."""
    failures: int = 0
    """Answers that are a 503."""
    most_tokens: int | None = None
    """Longest answer that may be asked for; a 400 else, as where prompt and answer exceed --max-model-len."""
    most_pictures: int | None = None
    """In one request; a 400 else, as of --limit-mm-per-prompt."""
    evicted: bool = False
    """Adapters have left the engine's cache and are still listed; later versions of vLLM cannot unload such ones."""
    away: bool = False
    """Connections are closed without a word, those too that wait for an answer."""
    hangs: threading.Event | None = None
    """Unloading waits for it."""
    hold: threading.Event | None = None
    """Answers wait for it."""
    asked: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._processor: Any = AutoProcessor.from_pretrained(self.directory, local_files_only=True)
        self._processor.image_processor = AutoImageProcessor.from_pretrained(self.directory, backend="pil")
        self._base: Any = AutoModelForImageTextToText.from_pretrained(self.directory, dtype=torch.float32).eval()
        self._model: Any = None

    def reset(self) -> None:
        """In order, and as after a start."""
        for waited in (self.hold, self.hangs):
            if waited is not None:
                waited.set()
        self.hangs = None
        self.lora = self.runtime_updates = self.processed = True
        self.max_rank, self.max_adapters, self.key, self.hold, self.away = 16, 8, None, None, False
        self.wrong_names = self.other_prompts = self.without_ids = self.failures = 0
        self.most_tokens, self.evicted = None, False
        self.asked.clear()
        self.events.clear()
        self.written.clear()
        self.misreported.clear()
        self.restart()

    def restart(self) -> None:
        """The adapters are gone, as after a start."""
        with self._lock:
            self.adapters.clear()

    def models(self) -> Json:
        with self._lock:
            lora = [{"id": name, "root": path, "parent": "base"} for name, path in self.adapters.items()]
        return {"object": "list", "data": [{"id": "base", "root": str(self.directory), "parent": None}, *lora]}

    def load(self, name: str, path: str) -> str:
        with self._lock:
            if name in self.adapters:
                raise RefusalError(
                    400,
                    f"The lora adapter '{name}' has already been loaded. If you want to load the adapter in place, set "
                    "'load_inplace' to True.",
                )
            if not self.lora:
                raise RefusalError(500, "LoRA is not enabled. Use --enable-lora to enable LoRA.")
            config = Path(path) / "adapter_config.json"
            if not config.is_file():
                raise RefusalError(404, f"Loading lora {name} failed: No adapter found for {path}")
            rank = json.loads(config.read_text())["r"]
            if rank > self.max_rank:
                raise RefusalError(
                    500,
                    "Call to add_lora method failed: Worker failed with error 'LoRA rank "
                    f"{rank} is greater than max_lora_rank {self.max_rank}.', please check the stack trace above for "
                    "the root cause",
                )
            if len(self.adapters) >= self.max_adapters:
                raise RefusalError(500, "No free lora slots")
            found = hashlib.sha256((Path(path) / "adapter_model.safetensors").read_bytes()).hexdigest()
            assert self.bytes_of.setdefault(name, found) == found, "a name was used again for other weights"
            if self._model is None:
                self._model = PeftModel.from_pretrained(self._base, path, adapter_name=name)
            elif name not in self._model.peft_config:
                self._model.load_adapter(path, adapter_name=name)
            self.adapters[name] = path
            self.events.append(("load", name))
        return f"Success: LoRA adapter '{name}' added successfully."

    def unload(self, name: str) -> str:
        if self.hangs is not None:
            self.hangs.wait(30)
        with self._lock:
            if name not in self.adapters:
                raise RefusalError(404, f"The lora adapter '{name}' cannot be found.")
            if self.evicted:
                raise RefusalError(500, f"Failed to remove lora adapter '{name}' from the engine.")
            del self.adapters[name]
            self.events.append(("unload", name))
        return f"Success: LoRA adapter '{name}' removed successfully."

    def chat(self, asked: Json) -> Json:
        self.asked.set()
        if self.hold is not None:
            self.hold.wait(30)
        with self._lock:
            if self.failures:
                self.failures -= 1
                raise RefusalError(503, "the engine is busy")
            name = asked["model"]
            if name not in self.adapters:
                raise RefusalError(404, f"The model `{name}` does not exist.")
            if self.most_tokens is not None and asked["max_completion_tokens"] > self.most_tokens:
                raise RefusalError(400, "This model's maximum context length is too short.")
            assert all(asked[name] for name in ("logprobs", "return_token_ids", "return_tokens_as_token_ids"))
            parts = [part["type"] for message in asked["messages"] for part in message["content"]]
            if self.most_pictures is not None and parts.count("image_url") > self.most_pictures:
                raise RefusalError(400, f"At most {self.most_pictures} image(s) may be provided in one prompt.")
            given = self._given(asked)
            sampler = Sampler(asked, self.processed)
            self._model.set_adapter(name)
            self._write(given, sampler, asked["max_completion_tokens"], asked.get("stop_token_ids", ()))
            sampler.logprobs[0] -= self.misreported.get(asked.get("seed"), 0.0)
            self.events.append(("answer", name))
            self.written.append((name, tuple(sampler.ids)))
            if self.wrong_names:
                self.wrong_names -= 1
                name = "base"
            read = given["input_ids"][0].tolist()
            if self.other_prompts:
                self.other_prompts -= 1
                read = read[1:]
        stopped = sampler.ids[-1] in asked.get("stop_token_ids", ())
        tokens = [
            {"token": f"token_id:{token}", "logprob": logprob, "bytes": [], "top_logprobs": []}
            for token, logprob in zip(sampler.ids, sampler.logprobs, strict=True)
        ]
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": ""},
            "logprobs": {"content": tokens},
            "finish_reason": "stop" if stopped else "length",
            "token_ids": sampler.ids,
        }
        if self.without_ids:
            self.without_ids -= 1
            del choice["token_ids"]
        return {"object": "chat.completion", "model": name, "choices": [choice], "prompt_token_ids": read}

    def _write(self, given: Json, sampler: Sampler, most: int, stops: Sequence[int]) -> None:
        """Token by token, each from a pass over all before it: nothing is cached that could be wrong."""
        while len(sampler.ids) < most and not (sampler.ids and sampler.ids[-1] in stops):
            more = torch.tensor([sampler.ids], dtype=torch.long)
            whole = dict(given)
            for name, filled in (("input_ids", more), *((name, more * 0) for name in given if "type_ids" in name)):
                whole[name] = torch.cat([given[name], filled], dim=1)
            whole["attention_mask"] = torch.ones_like(whole["input_ids"])
            with torch.no_grad():
                sampler.draw(self._model(**whole).logits[0, -1].float())

    def _given(self, asked: Json) -> Json:
        """What the library's processor makes of the conversation and its picture."""
        pictures = []
        for message in asked["messages"]:
            for part in message["content"]:
                if part["type"] == "image_url":
                    data = part["image_url"]["url"].removeprefix("data:image/png;base64,")
                    pictures.append(Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB"))
                    part.clear()
                    part["type"] = "image"
        text = self._processor.apply_chat_template(asked["messages"], add_generation_prompt=True, tokenize=False)
        return dict(
            self._processor(
                text=[text], images=pictures, return_tensors="pt", add_special_tokens=asked["add_special_tokens"]
            )
        )


@contextmanager
def model_server(directory: Path, **settings: Any) -> Iterator[ModelServer]:
    told = ModelServer(directory, **settings)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.answer({"/v1/models": lambda asked: told.models()})

        def do_POST(self) -> None:
            routes: dict[str, Callable[[Json], Any]] = {"/v1/chat/completions": told.chat}
            if told.runtime_updates:
                routes["/v1/load_lora_adapter"] = lambda asked: told.load(asked["lora_name"], asked["lora_path"])
                routes["/v1/unload_lora_adapter"] = lambda asked: told.unload(asked["lora_name"])
            self.answer(routes)

        def answer(self, routes: dict[str, Callable[[Json], Any]]) -> None:
            content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if told.away:
                self.close_connection = True
                return
            try:
                if told.key is not None and self.headers.get("Authorization") != f"Bearer {told.key}":
                    raise RefusalError(401, "Unauthorized")
                if self.path not in routes:
                    self.send(404, {"detail": "Not Found"})
                else:
                    self.send(200, routes[self.path](json.loads(content or b"{}")))
            except RefusalError as refusal:
                self.send(
                    refusal.status, {"error": {"message": refusal.message, "type": "Error", "code": refusal.status}}
                )

        def send(self, status: int, said: Any) -> None:
            if told.away:
                self.close_connection = True
                return
            data = (said if isinstance(said, str) else json.dumps(said)).encode()
            try:
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)
            except OSError:  # whoever asked has gone
                self.close_connection = True

        def log_message(self, format: str, *args: Any) -> None:
            """Not to standard error."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        told.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield told
        finally:
            if told.hold is not None:
                told.hold.set()
            server.shutdown()
            thread.join()
