"""The sections of the configuration tree, with the allowed values of their settings (tree.py assembles them)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SecretStr,
    field_validator,
    model_validator,
)

from distrl.addresses import brokers, server_url
from distrl.config.effects import LOCAL, Effect, Section, When
from distrl.librdkafka import NO_PASSWORD_MECHANISMS, Value, client_settings


class KafkaSettings(Section):
    bootstrap: Annotated[str, AfterValidator(brokers), LOCAL] = Field(
        "127.0.0.1:29092", description="host:port[,host:port…] of the brokers"
    )
    security_protocol: Annotated[Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"], LOCAL] = "PLAINTEXT"
    sasl_mechanism: Annotated[Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI"], LOCAL] = (
        "SCRAM-SHA-512"
    )
    sasl_username: Annotated[str | None, LOCAL] = None
    sasl_password: Annotated[SecretStr | None, LOCAL] = None
    ssl_ca: Annotated[Path | None, LOCAL] = Field(
        None, description="PEM file with the certificate authority of the brokers"
    )
    replication_factor: int = Field(1, ge=1, le=9, description="copies of each partition; 3 on a cluster")
    task_partitions: int = Field(16, ge=1, le=10_000, description="at least the most worker processes expected")
    connect_timeout_s: Annotated[float, LOCAL] = Field(
        10.0, gt=0, description="how long a role waits for a broker before it refuses"
    )
    max_record_bytes: int = Field(1_048_576, ge=1024, description="largest record; screenshots are never in one")
    dead_letter_limit: int = Field(
        10, ge=0, description="a role ends at so many unreadable records within dead_letter_window; 0: no limit"
    )
    dead_letter_window: int = Field(
        100, ge=1, description="records of a partition in which unreadable ones are counted"
    )
    client: Annotated[dict[str, Value], BeforeValidator(client_settings), LOCAL] = Field(
        default={}, description="further settings of librdkafka, given to every client (docs/operations.md)"
    )
    framing: Annotated[Literal["none", "confluent"], LOCAL] = Field(
        "none", description="the form of written values; confluent: for clients of a schema registry (docs/wire.md)"
    )
    schema_registry_url: Annotated[str | None, Field(pattern=r"^https?://[^/?#@\s]+(/[^?#@\s]*)?$"), LOCAL] = Field(
        None,
        description="http(s)://HOST[:PORT] of the registry, which a process that writes records asks when it starts",
    )
    schema_registry_username: Annotated[str | None, LOCAL] = None
    schema_registry_password: Annotated[SecretStr | None, LOCAL] = None
    schema_registry_ca: Annotated[Path | None, LOCAL] = Field(
        None, description="PEM file with the certificate authority of an https:// registry"
    )

    @property
    def mechanism(self) -> str:
        """The SASL mechanism in force; kafka.client wins."""
        named = self.client.get("sasl.mechanism") or self.client.get("sasl.mechanisms") or self.sasl_mechanism
        return str(named)

    @property
    def user(self) -> str | None:
        """The SASL user, whose rights the brokers check; None where a certificate or a token identifies the client."""
        named = self.client.get("sasl.username")
        return self.sasl_username if named is None else str(named)

    @model_validator(mode="after")
    def _knows_its_registry(self) -> KafkaSettings:
        if self.framing == "confluent" and self.schema_registry_url is None:
            raise ValueError("kafka.framing=confluent needs kafka.schema_registry_url")
        if (self.schema_registry_username is None) != (self.schema_registry_password is None):
            raise ValueError("kafka.schema_registry_username and kafka.schema_registry_password go together")
        if ":" in (self.schema_registry_username or ""):
            raise ValueError("kafka.schema_registry_username has a colon, which ends a user's name in HTTP")
        if self.schema_registry_ca is not None and not str(self.schema_registry_url).startswith("https:"):
            raise ValueError("kafka.schema_registry_ca is for an https:// address in kafka.schema_registry_url")
        return self

    @model_validator(mode="after")
    def _can_log_in(self) -> KafkaSettings:
        if self.ssl_ca is not None and not self.security_protocol.endswith("SSL"):
            raise ValueError(
                "kafka.ssl_ca is for kafka.security_protocol SSL or SASL_SSL, and with "
                f"{self.security_protocol} nothing is encrypted"
            )
        if not self.security_protocol.startswith("SASL"):
            if self.sasl_username is not None or self.sasl_password is not None:
                raise ValueError(
                    "kafka.sasl_username and kafka.sasl_password are for kafka.security_protocol SASL_SSL or "
                    f"SASL_PLAINTEXT, and with {self.security_protocol} nobody logs in"
                )
            return self
        password = self.sasl_password or self.client.get("sasl.password")
        if self.mechanism not in NO_PASSWORD_MECHANISMS and not (self.user and password):
            raise ValueError("kafka.security_protocol with SASL needs kafka.sasl_username and kafka.sasl_password")
        if self.mechanism == "OAUTHBEARER" and not any(name.startswith("sasl.oauthbearer.") for name in self.client):
            raise ValueError(
                "OAUTHBEARER needs kafka.client, such as {sasl.oauthbearer.method: oidc, "
                "sasl.oauthbearer.token.endpoint.url: URL, sasl.oauthbearer.client.id: NAME, "
                "sasl.oauthbearer.client.secret: SECRET}"
            )
        return self


class StoreSettings(Section):
    local: ClassVar[bool] = True

    url: str = Field(
        "file://out/objects",
        pattern=r"^(s3://[^/@]+/[a-z0-9.-]{3,63}|s3s://[^/@]+/[a-z0-9.-]{3,63}|file://.+)$",
        description="s3://HOST:PORT/BUCKET (http), s3s://HOST/BUCKET (https) or file://DIRECTORY; "
        "a BUCKET is 3 to 63 of a-z, 0-9, . and -",
    )
    access_key: str | None = Field(
        None,
        description="unset: that of AWS_* or MINIO_* variables, ~/.aws/credentials, or the machine's role",
    )
    secret_key: SecretStr | None = None
    anonymous: bool = Field(False, description="without a key, sign no request: for a bucket that is open to all")
    ca: Path | None = Field(None, description="PEM file with the certificate authority of an s3s:// endpoint")
    addressing: Literal["auto", "path", "virtual"] = Field(
        "auto", description="HOST/BUCKET (path) or BUCKET.HOST (virtual); auto: virtual at AWS, else path"
    )
    region: str = "us-east-1"
    timeout_s: float = Field(10.0, gt=0, description="deadline of one request")

    _can_be_parsed = field_validator("url")(server_url)

    @model_validator(mode="after")
    def _agree(self) -> StoreSettings:
        if self.anonymous and self.access_key is not None:
            raise ValueError("store.anonymous signs no request, and store.access_key is set")
        if self.ca is not None and not self.url.startswith("s3s:"):
            raise ValueError("store.ca is for an s3s:// address in store.url: with another nothing is encrypted")
        return self


LEAST_OUTSTANDING = 24
"""Fewest outstanding tasks, for where few phones are reported, or none yet: three for each of eight phones."""
OUTSTANDING_PER_PHONE = 3
"""One that is played, one that waits at its worker, so that the phone goes on at once, and one on its way."""


class FeederSettings(Section):
    suite: Literal["home", "general", "webshop", "install", "googleapps"] = Field(
        "home", description="the built-in suite that tasks come from, demonstrations always (docs/tasks.md)"
    )
    tasks: tuple[Path, ...] = Field(
        (), description="files of tasks to feed and evaluate in place of those of feeder.suite (docs/tasks.md)"
    )
    task_steps: int = Field(20, ge=1, le=200, description="steps allowed to a task of feeder.tasks that names none")
    max_lag: int = Field(4, ge=0, description="versions a trajectory may be behind when learned; 0 is synchronous")
    outstanding: int | None = Field(
        None,
        ge=1,
        description="most tasks fed and not finished; unset: three for each phone that workers report, at least 24",
    )
    poll_s: float = Field(0.2, gt=0)
    max_retries: int = Field(3, ge=0, description="how often the task of an interrupted episode is fed again")
    curriculum: bool = Field(False, description="feed the families that succeed less more often")
    episodes_per_task: int | None = Field(
        None,
        ge=1,
        description="how often each task is fed, one episode after the other; unset: as often as the algorithm needs, "
        "which is algorithm.group_size for grpo and once for all others",
    )

    def outstanding_for(self, phones: int) -> int:
        """Most unfinished tasks where workers report `phones` answering phones."""
        return max(LEAST_OUTSTANDING, OUTSTANDING_PER_PHONE * phones) if self.outstanding is None else self.outstanding

    @field_validator("tasks", mode="before")
    @classmethod
    def _one_or_several(cls, given: Any) -> Any:
        return (given,) if isinstance(given, str | Path) else given


DEVICE = r"^(auto|cpu|cuda(:[0-9]+)?)$"
DEVICES = "cpu, cuda:N, or auto, which is the first GPU or the CPU where there is none"


class LadderSettings(Section):
    """Exploration that differs from episode to episode: ε_i = epsilon^(1 + alpha · i / (rungs − 1)), as the actors of
    Ape-X (arXiv 1803.00933, section 4) and R2D2 have it; for a recurrent Q alone (docs/algorithm.md#r2d3)."""

    rungs: int | None = Field(
        None, ge=2, le=4096, description="how many ε there are; an episode's own follows from its task's id. unset: off"
    )
    epsilon: float = Field(0.4, ge=0.0001, le=0.9999, description="ε_0, the largest")
    alpha: float = Field(7.0, ge=0, le=30, description="how far apart they are: the least is epsilon^(1 + alpha)")


class WorkerSettings(Section):
    name: Annotated[str, LOCAL] = Field("worker-0", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")
    group: str = Field("workers", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$", description="consumer group on tasks")
    temperature: float = Field(1.0, gt=0, description="of the behaviour policy")
    top_p: float = Field(
        1.0,
        gt=0,
        le=1,
        description="it draws among the fewest likeliest tokens with this total probability; 1: all",
    )
    top_k: int | None = Field(None, ge=1, description="it draws among so many of the likeliest tokens; unset: all")
    ladder: LadderSettings = LadderSettings()
    batch_wait_ms: float = Field(3.0, ge=0, description="how long a decision waits for others to share a batch with")
    torch_threads: Annotated[int, LOCAL] = Field(1, ge=1)
    device: Annotated[str, LOCAL] = Field("auto", pattern=DEVICE, description=f"where the policy acts: {DEVICES}")
    heartbeat_s: float = Field(
        2.0, gt=0, le=5, description="between two; a worker that is silent for 15 s is taken to be gone"
    )
    drain_timeout_s: float = Field(60.0, ge=0, description="at a stop, how long running episodes may take to finish")


NO_RESULT = "changes no result"


class ServerSettings(Section):
    """A server that decides in place of the process, by adapters that are loaded at run time: docs/serving.md."""

    local: ClassVar[bool] = True
    effect: ClassVar[Effect | None] = Effect(When.START, fixed=NO_RESULT, learned=False)
    """Each step names the weights that chose it, wherever they were."""

    endpoint: str | None = Field(
        None,
        pattern=r"^https?://[^/?#@]+(/[^?#]*)?$",
        description="base URL of an OpenAI-compatible server that loads adapters at run time (vLLM), such as "
        "http://HOST:8000/v1; each process has the weights itself unless set",
    )
    api_key: SecretStr | None = None
    adapters: Path | None = Field(
        None, description="folder that every worker writes and the server reads: adapters are handed over in it"
    )
    adapters_there: str | None = Field(
        None,
        pattern=r"^/.*[^/]$",
        description="absolute path of that folder where the server runs; unset: the same",
    )

    _can_be_parsed = field_validator("endpoint")(server_url)
    timeout_s: float = Field(60.0, gt=0, description="deadline of one answer, and of loading an adapter")
    wait_s: float = Field(
        600.0, gt=0, description="how long a decision waits for a server that is away or starts again"
    )


RECORDED = "is what the recorded token ids and probabilities belong to"


class PolicySettings(Section):
    effect: ClassVar[Effect | None] = Effect(When.START)

    base_model: Annotated[Path | None, Effect(When.START, fixed=RECORDED)] = Field(
        None,
        description="directory of the base model, or its name on the Hugging Face Hub with a revision "
        "(organisation/model@revision); the shipped tiny one unless named",
    )
    lora_rank: int = Field(16, ge=1)
    lora_alpha: int = Field(32, ge=1)
    lora_targets: tuple[str, ...] | None = Field(
        None,
        min_length=1,
        description="last names of the layers that LoRA goes on; unset: those of the base model's kind",
    )
    trains: Annotated[Literal["lora", "all"], Effect(When.START, before="lora")] = Field(
        "lora", description="lora, or all weights of the language part (AutoUI's T5) except its token embeddings"
    )
    dialect: Annotated[str | None, Effect(When.START, fixed=RECORDED, before=None)] = Field(
        None,
        pattern=r"^[a-z0-9][a-z0-9.-]*$",
        description="how a vision-language model writes actions (docs/policies.md); unset: as its kind was trained to",
    )
    system_prompt: Annotated[str | None, Effect(When.START, fixed=RECORDED, before=None)] = Field(
        None, description="system prompt of a vision-language model; unset: the dialect's instructions"
    )
    chat_template: Annotated[str | None, Effect(When.START, fixed=RECORDED, before=None)] = Field(
        None,
        min_length=1,
        max_length=65_536,
        description="text of the chat template that a vision-language model is prompted by; unset: the model's own",
    )
    history: Annotated[int, Effect(When.START, fixed=RECORDED, before=4)] = Field(
        4, ge=0, le=100, description="last actions in the prompt; the tiny base model has always two"
    )
    history_screens: Annotated[int, Effect(When.START, fixed=RECORDED, before=0)] = Field(
        0,
        ge=0,
        le=16,
        description="last screenshots that are read beside the present one, by a vision-language model or the paper's "
        "AutoUI",
    )
    max_pixels: Annotated[int, Effect(When.START, fixed=RECORDED, before=1_000_000)] = Field(
        1_000_000, ge=1024, description="a vision-language model sees larger screenshots scaled down to this"
    )
    action_tokens: Annotated[int, Effect(When.START, fixed=RECORDED, before=128)] = Field(
        128,
        ge=2,
        le=4096,
        description="most tokens of an action, thoughts and end included; the tiny base model has its own number",
    )
    precision: Annotated[Literal["float32", "bfloat16"], Effect(When.START, fixed=RECORDED, before="float32")] = Field(
        "float32",
        description="of the frozen weights and what is computed with them; LoRA, its moments and critics are float32",
    )
    image_precision: Annotated[
        Literal["float32", "float16"], Effect(When.START, fixed="decides what the recorded probabilities were made of")
    ] = Field(
        "float32",
        description="of the features of screens, for workers and learner alike; float16 takes half the room",
    )
    server: ServerSettings = ServerSettings()

    @model_validator(mode="after")
    def _servable(self) -> PolicySettings:
        if self.server.endpoint is None:
            return self
        if self.server.adapters is None:
            raise ValueError("policy.server.endpoint needs policy.server.adapters, a folder that the server reads")
        if self.base_model is None:
            raise ValueError("policy.server.endpoint needs policy.base_model: no server runs the shipped policy")
        if self.chat_template is not None:
            raise ValueError(
                "policy.server prompts by the chat template of the files that it serves, and policy.chat_template is "
                "another one: unset it, and put the template into the files of policy.base_model"
            )
        if self.trains != "lora":
            raise ValueError(f"policy.server takes adapters, and policy.trains={self.trains} makes whole weights")
        return self


class LearnerSettings(Section):
    seed: Annotated[int, Effect(When.ALWAYS)] = 0
    torch_threads: Annotated[
        int, Effect(When.ALWAYS, fixed="decides how sums are split, and arms are compared by the bit")
    ] = Field(1, ge=1)
    shards: Annotated[int, Effect(When.ALWAYS)] = Field(
        1, ge=1, le=64, description="pieces of a minibatch whose gradients are summed in their order"
    )
    microbatch: Annotated[
        int | None,
        Effect(When.ALWAYS, fixed="decides how sums are split, and arms are compared by the bit", before=None),
    ] = Field(
        None,
        ge=1,
        description="most rows in one pass of the model; gradients are summed in their order; unset: a whole shard",
    )
    device: Annotated[str, LOCAL, Effect(When.ALWAYS, fixed=NO_RESULT, learned=False)] = Field(
        "auto", pattern=DEVICE, description=f"where it computes: {DEVICES}; a run stays on one kind of them"
    )
    gradient_checkpointing: Annotated[bool, LOCAL, Effect(When.ALWAYS, fixed=NO_RESULT, learned=False)] = Field(
        False, description="compute layers again for their gradients instead of keeping what they made"
    )
    ranks: Annotated[int, LOCAL, Effect(When.ALWAYS, fixed=NO_RESULT, learned=False)] = Field(
        1, ge=1, le=64, description="processes on this machine that compute together, at most learner.shards"
    )
    trajectories_per_update: Annotated[int, Effect(When.ALWAYS, windows=True)] = Field(16, ge=1)
    publish_every: Annotated[
        int, Effect(When.ALWAYS, fixed="decides when versions are published, and an ablation publishes none")
    ] = Field(1, ge=1, description="updates between two versions")
    checkpoint_every: Annotated[int, Effect(When.ALWAYS, fixed=NO_RESULT, learned=False)] = Field(
        10, ge=1, description="updates between two checkpoints"
    )
    keep_checkpoints: Annotated[int, Effect(When.ALWAYS, fixed=NO_RESULT, learned=False)] = Field(3, ge=1)
    keep_adapters: Annotated[int | None, Effect(When.ALWAYS, fixed=NO_RESULT, learned=False)] = Field(
        None,
        ge=1,
        description="newest versions whose adapters are kept, and those that a trajectory names; unset: all",
    )
    keep_adapters_every: Annotated[int | None, Effect(When.ALWAYS, fixed=NO_RESULT, learned=False)] = Field(
        None, ge=1, description="of older versions, those whose number this divides keep their adapters too"
    )
    rebuild_window: Annotated[int, Effect(When.ALWAYS, fixed=NO_RESULT, learned=False)] = Field(
        20_000, ge=1, description="records that a restart may read back to refill the buffer"
    )
    record_draws: Annotated[bool, Effect(When.ALWAYS, fixed=NO_RESULT, learned=False)] = Field(
        True,
        description="publish what each update drew, with V(s), advantage and priority of each step, for `distrl view`",
    )
    features_mb: Annotated[int, LOCAL, Effect(When.ALWAYS, fixed=NO_RESULT, learned=False)] = Field(
        512, ge=0, description="MiB of features of screens held in memory; the others lie in files"
    )
    features_directory: Annotated[Path | None, LOCAL, Effect(When.ALWAYS, fixed=NO_RESULT, learned=False)] = Field(
        None,
        description="folder of those that are not kept, deleted as the process ends; unset: a temporary one",
    )
    features_kept: Annotated[Path | None, LOCAL, Effect(When.ALWAYS, fixed=NO_RESULT, learned=False)] = Field(
        None, description="folder that keeps the features of the buffer's screens for the next start; unset: none"
    )


class EvaluateSettings(Section):
    episodes: int = Field(128, ge=1)
    validation_episodes: int = Field(48, ge=1)
    every_s: float = Field(120.0, gt=0, description="pause between two validations while following a run")
    name: Annotated[str, LOCAL] = Field("evaluator-0", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")


class ChatSettings(Section):
    """A vision-language model behind an OpenAI-compatible chat endpoint."""

    local: ClassVar[bool] = True  # each record names the judge or the agent that made it

    endpoint: str | None = Field(
        None,
        pattern=r"^https?://[^/?#@]+(/[^?#]*)?$",
        description="base URL of an OpenAI-compatible chat endpoint, such as https://HOST/v1; none is asked unless set",
    )
    model: str = Field("", description="as the endpoint names it")
    api_key: SecretStr | None = None
    temperature: float | None = Field(
        0.0, ge=0, description="of the answers; null: none is sent, for models that refuse one and have their own"
    )
    timeout_s: float = Field(60.0, gt=0, description="total deadline of one answer, retries included")
    requests_per_minute: float = Field(60.0, gt=0, description="most requests of one process, evenly spread")
    price_in: float = Field(0.0, ge=0, description="of a million tokens read, to count what answers cost")
    price_out: float = Field(0.0, ge=0, description="of a million tokens written")

    _can_be_parsed = field_validator("endpoint")(server_url)


class JudgeSettings(ChatSettings):
    """A vision-language model that judges whether a task was done, on phones that do not offer their state, and whether
    its actions could be done.
    """

    validity: Literal["none", "vlm"] = Field(
        "none", description="vlm: a worker asks for each action of an episode whether it could be done (P_invalid)"
    )
    validity_actions: int = Field(
        20, ge=1, le=200, description="with judge.validity, most actions of one episode that are asked about"
    )


class AppAgentSettings(ChatSettings):
    """A vision-language model that is prompted to act, after AppAgent: docs/appagent.md."""

    mode: Literal["elements", "grid"] = Field(
        "elements",
        description="what it points at: numbered elements of `uiautomator dump` (the grid where there are none), or "
        "cells of a grid alone",
    )
    notes: Path | None = Field(None, description="JSON file of notes: exploration adds to it, an evaluation reads it")
    rounds: int = Field(20, ge=1, le=200, description="steps of one exploration")
    dump_timeout_s: float = Field(
        10.0, gt=0, description="total deadline of `uiautomator dump`, which waits for a screen that rests"
    )
    most_elements: int = Field(60, ge=1, le=200, description="elements of one screen that are numbered and named")


class MonitoringSettings(Section):
    """The HTTP endpoint of one process, for Prometheus and for probes: docs/monitoring.md."""

    local: ClassVar[bool] = True

    port: int | None = Field(
        None, ge=1, le=65535, description="where /metrics, /livez and /readyz are served; unset: nowhere"
    )
    host: str = Field("127.0.0.1", min_length=1, description="address to listen on; 0.0.0.0 or :: for every one")
    stuck_s: float = Field(
        600.0,
        gt=0,
        description="a process whose loop makes no progress for longer is not alive; more than the learner's longest "
        "update",
    )


class LoggingSettings(Section):
    local: ClassVar[bool] = True

    format: Literal["text", "json"] = Field("text", description="of the log: lines for people, or a JSON object a line")


class TracingSettings(Section):
    """Traces of tasks, for OpenTelemetry: docs/monitoring.md."""

    local: ClassVar[bool] = True

    endpoint: str | None = Field(
        None,
        pattern=r"^https?://[^/?#@]+(/[^?#]*)?$",
        description="base URL of a collector that takes OTLP over HTTP, such as http://HOST:4318; nothing is traced "
        "unless set",
    )
    sample: float = Field(
        1.0, ge=0, le=1, description="of tasks that are traced; the feeder's decides for the roles that follow it"
    )

    _can_be_parsed = field_validator("endpoint")(server_url)


class StackSettings(Section):
    local: ClassVar[bool] = True

    directory: Path = Field(Path("out/stack"), description="where the local servers keep their data and logs")
    cache: Path = Field(Path("~/.cache/distrl"), description="what is downloaded or built once per user")
    kafka_port: int = Field(29092, ge=20000, le=65000)
    kafka_heap_mb: int = Field(512, ge=256)
    s3_port: int = Field(29000, ge=20000, le=65000)
    object_store: Literal["auto", "minio", "s3proxy", "directory"] = Field(
        "auto",
        description="auto: MinIO where a `minio` or Docker is there, else S3Proxy, else a directory; minio: also built "
        "with Go",
    )

    @field_validator("directory", "cache")
    @classmethod
    def _has_a_home(cls, value: Path) -> Path:
        try:
            value.expanduser()
        except RuntimeError:
            raise ValueError(f"{value} begins with the home of a user that this machine does not have") from None
        return value
