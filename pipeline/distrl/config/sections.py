"""The sections of the configuration tree, and what each of their settings may be (tree.py puts them together)."""

from __future__ import annotations

import re
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
from simphone.fleet import PhoneProfile

from distrl import names
from distrl.addresses import brokers, expanded
from distrl.config.effects import Effect, Section, When
from distrl.librdkafka import NO_PASSWORD_MECHANISMS, Value, client_settings

NAME_OR_NONE = rf"^({names.DEVICE.pattern})?$"
LAST_CONSOLE_PORT = 5682
"""Emulators take two ports each from 5554 on, 64 at most (developer.android.com/studio/run/emulator-commandline)."""
OWN_ARGUMENTS = frozenset(
    ("-avd", "-port", "-ports", "-snapshot", "-read-only", "-no-snapshot", "-no-snapshot-load", "-no-snapshot-save")
)
PACKAGES = re.compile(r"[A-Za-z]\w*(\.[A-Za-z]\w*)*(\.\*)?", re.ASCII)
"""A package, or all whose names begin with what stands before the final `.*`."""


def _packages(values: tuple[str, ...]) -> tuple[str, ...]:
    for value in values:
        if not PACKAGES.fullmatch(value):
            raise ValueError(f"{value!r} is no package: write com.example.shop, or com.example.* for all below it")
    return values


class Kafka(Section):
    bootstrap: Annotated[str, AfterValidator(brokers)] = Field(
        "127.0.0.1:29092", description="host:port[,host:port…] of the brokers"
    )
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI"] = "SCRAM-SHA-512"
    sasl_username: str | None = None
    sasl_password: SecretStr | None = None
    ssl_ca: Path | None = Field(None, description="PEM file with the certificate authority of the brokers")
    replication_factor: int = Field(1, ge=1, le=9, description="copies of each partition; 3 on a cluster")
    task_partitions: int = Field(16, ge=1, le=10_000, description="at least the most worker processes expected")
    connect_timeout_s: float = Field(10.0, gt=0, description="how long a role waits for a broker before it refuses")
    max_record_bytes: int = Field(1_048_576, ge=1024, description="largest record; screenshots are never in one")
    dead_letter_limit: int = Field(
        10, ge=0, description="so many unreadable records in a window end the role that reads them; 0 is no limit"
    )
    dead_letter_window: int = Field(100, ge=1, description="records of a partition that are such a window")
    client: Annotated[dict[str, Value], BeforeValidator(client_settings)] = Field(
        default={}, description="further settings of librdkafka, given to every client (docs/operations.md)"
    )

    @property
    def mechanism(self) -> str:
        """The SASL mechanism in force; kafka.client wins."""
        named = self.client.get("sasl.mechanism") or self.client.get("sasl.mechanisms") or self.sasl_mechanism
        return str(named)

    @property
    def user(self) -> str | None:
        """Who the brokers are told to ask the rights of; None where a certificate or a token says it."""
        named = self.client.get("sasl.username")
        return self.sasl_username if named is None else str(named)

    @model_validator(mode="after")
    def _can_log_in(self) -> Kafka:
        if not self.security_protocol.startswith("SASL"):
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


class Store(Section):
    url: str = Field(
        "file://out/objects",
        pattern=r"^(s3://[^/]+/[a-z0-9.-]{3,63}|s3s://[^/]+/[a-z0-9.-]{3,63}|file://.+)$",
        description="s3://HOST:PORT/BUCKET (http), s3s://HOST/BUCKET (https) or file://DIRECTORY",
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

    @model_validator(mode="after")
    def _one_identity(self) -> Store:
        if self.anonymous and self.access_key is not None:
            raise ValueError("store.anonymous signs no request, and store.access_key is set")
        return self


class Adb(Section):
    host: str = "127.0.0.1"
    port: int = Field(25037, ge=1, le=65535, description="the adb server's port; never the user's 5037 by default")
    binary: Path | None = Field(None, description="the adb program; the one in adbutils' wheel unless named")


class Emulators(Section):
    """Emulators that a role with phones starts itself, waits for, drives and ends: docs/emulators.md."""

    avd: str = Field("", pattern=NAME_OR_NONE, description="the Android virtual device that all of them are made from")
    count: int = Field(0, ge=0, le=64, description="how many to start; 0 starts none")
    first_port: int = Field(
        5554,
        ge=5554,
        le=LAST_CONSOLE_PORT,
        multiple_of=2,
        description="console port of the first; each takes two ports, adb's beside the console's",
    )
    snapshot: str = Field(
        "", pattern=NAME_OR_NONE, description="loaded at the start and before each task; without one each boots cold"
    )
    binary: Path | None = Field(
        None, description="the emulator program; unless named, $ANDROID_HOME/emulator/emulator, else the PATH's"
    )
    arguments: tuple[str, ...] = Field((), description="further arguments of the emulator, such as -gpu and its value")
    boot_timeout_s: float = Field(240.0, gt=0, description="from the start of an emulator to a phone that has booted")
    snapshot_timeout_s: float = Field(60.0, gt=0, description="total deadline of saving or loading a snapshot")
    token_file: Path = Field(
        Path("~/.emulator_console_auth_token"), description="where the emulator keeps the token of its console"
    )

    @property
    def serials(self) -> tuple[str, ...]:
        """As adb names them: emulator-PORT, PORT being the console's."""
        return tuple(f"emulator-{self.first_port + 2 * number}" for number in range(self.count))

    @model_validator(mode="after")
    def _agree(self) -> Emulators:
        if self.count and not self.avd:
            raise ValueError("devices.emulators.count needs devices.emulators.avd, the name of a virtual device")
        if self.first_port + 2 * (self.count - 1) > LAST_CONSOLE_PORT:
            raise ValueError(f"{self.count} emulators from devices.emulators.first_port on pass {LAST_CONSOLE_PORT}")
        taken = next((word for word in self.arguments if word in OWN_ARGUMENTS or word.startswith("@")), None)
        if taken is not None:
            raise ValueError(f"devices.emulators.arguments cannot hold {taken}, which other settings decide")
        return self


class Devices(Section):
    addresses: Annotated[tuple[str, ...], AfterValidator(expanded)] = Field(
        (), description="host:port of phones to connect to, also 10.0.0.1-10.0.0.20:5555 and 127.0.0.1:5555-5562"
    )
    serials: tuple[str, ...] = Field((), description="serials that the adb server already knows")
    emulators: Emulators = Emulators()
    directory: Path = Field(
        Path("~/.cache/distrl/devices"),
        description="where the processes of this machine say which phones they hold; the same for all of them",
    )
    lease_ttl_s: float = Field(
        30.0,
        ge=1,
        description="how long a phone stays leased, to other hosts, once its holder renews the lease no more",
    )
    operation_timeout_s: float = Field(5.0, gt=0, description="total deadline of one operation on a phone")
    settle_timeout_s: float = Field(3.0, gt=0, description="longest wait for two equal frames after an action")
    settle_poll_s: float = Field(0.02, gt=0, description="pause between two frames while settling")
    settle_unchanged_s: float = Field(
        0.25, ge=0, description="how long a screen that an action did not change must stay so; its app may be slow"
    )
    keyboard: Literal["auto", "input", "service"] = Field(
        "auto",
        description="what types: input (`input text`, printable ASCII), service (ADBKeyBoard on the phone, any text), "
        "or auto: the first where it can, else the second",
    )
    allowed_packages: Annotated[tuple[str, ...], AfterValidator(_packages)] = Field(
        (), description="apps that may be acted in, as names or com.example.*; all if empty; the launcher always"
    )

    @property
    def named(self) -> tuple[str, ...]:
        """Every phone that is configured, by its serial."""
        return tuple(dict.fromkeys((*self.addresses, *self.serials, *self.emulators.serials)))


class Phones(Section):
    """Simulated phones."""

    count: int = Field(8, ge=0, le=512)
    evaluation_count: int = Field(4, ge=0, le=512, description="further phones, for the evaluator alone")
    base_port: int = Field(26000, ge=20000, le=60000, description="adb servers probe 5555-5585, so never those")
    seed: int = 0
    popup_probability: float = Field(0.1, ge=0, le=1, description="chance of a pop-up after an action")
    generation: int = Field(
        0, ge=0, le=4, description="of the apps' look: 1 recoloured, 2 moved, 3 renamed, 4 outlined"
    )
    keyboard_service: bool = Field(False, description="whether they have ADBKeyBoard, which types any Unicode")
    latency_median_ms: float = Field(60.0, ge=0)
    latency_sigma: float = Field(0.8, ge=0, le=3, description="of the log-normal latency; larger is heavier-tailed")
    latency_max_ms: float = Field(5_000.0, ge=0)
    profiles: tuple[PhoneProfile, ...] = Field(
        (), description="kinds of phones, dealt out in turn (docs/phones.md); all plain if empty"
    )


LEAST_OUTSTANDING = 24
"""Outstanding tasks where few phones are reported, or none yet: three for each of eight phones."""
OUTSTANDING_PER_PHONE = 3
"""One that is played, one that lies with its worker, so that the phone goes on at once, and one on its way."""


class Feeder(Section):
    suite: str = Field(
        "home",
        description="the built-in suite that tasks come from, demonstrations always: home, general, webshop, install, "
        "googleapps (docs/tasks.md)",
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

    def outstanding_for(self, phones: int) -> int:
        """Most tasks fed and not finished where workers report so many phones that answer."""
        return max(LEAST_OUTSTANDING, OUTSTANDING_PER_PHONE * phones) if self.outstanding is None else self.outstanding

    @field_validator("tasks", mode="before")
    @classmethod
    def _one_or_several(cls, given: Any) -> Any:
        return (given,) if isinstance(given, str | Path) else given


class Worker(Section):
    name: str = Field("worker-0", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")
    group: str = Field("workers", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$", description="consumer group on tasks")
    temperature: float = Field(1.0, gt=0, description="of the behaviour policy")
    batch_wait_ms: float = Field(3.0, ge=0, description="how long a decision waits for others to share a batch with")
    torch_threads: int = Field(1, ge=1)
    heartbeat_s: float = Field(2.0, gt=0)
    drain_timeout_s: float = Field(60.0, ge=0, description="at a stop, how long running episodes may take to finish")


class Policy(Section):
    effect: ClassVar[Effect | None] = Effect(When.START)

    base_model: Annotated[
        Path | None, Effect(When.START, fixed="is what the recorded token ids and probabilities belong to")
    ] = Field(None, description="directory of the base model; the shipped tiny one unless named")
    lora_rank: int = Field(16, ge=1)
    lora_alpha: int = Field(32, ge=1)
    lora_targets: tuple[str, ...] = ("q", "v")


NO_RESULT = "changes no result"


class Learner(Section):
    seed: Annotated[int, Effect(When.ALWAYS)] = 0
    torch_threads: Annotated[
        int, Effect(When.ALWAYS, fixed="decides how sums are split, and arms are compared by the bit")
    ] = Field(1, ge=1)
    shards: Annotated[int, Effect(When.ALWAYS)] = Field(
        1, ge=1, le=64, description="pieces of a minibatch whose gradients are summed in their order"
    )
    trajectories_per_update: Annotated[int, Effect(When.ALWAYS, windows=True)] = Field(16, ge=1)
    publish_every: Annotated[
        int, Effect(When.ALWAYS, fixed="decides when versions are published, and an ablation publishes none")
    ] = Field(1, ge=1, description="updates between two versions")
    checkpoint_every: Annotated[int, Effect(When.ALWAYS, fixed=NO_RESULT, learned=False)] = Field(
        10, ge=1, description="updates between two checkpoints"
    )
    keep_checkpoints: Annotated[int, Effect(When.ALWAYS, fixed=NO_RESULT, learned=False)] = Field(3, ge=1)
    rebuild_window: Annotated[int, Effect(When.ALWAYS, fixed=NO_RESULT, learned=False)] = Field(
        20_000, ge=1, description="records that a restart may read back to refill the buffer"
    )


class Evaluate(Section):
    episodes: int = Field(128, ge=1)
    validation_episodes: int = Field(48, ge=1)
    every_s: float = Field(120.0, gt=0, description="pause between two validations while following a run")
    name: str = Field("evaluator-0", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")


class Chat(Section):
    """A vision-language model behind an OpenAI-compatible chat endpoint."""

    endpoint: str | None = Field(
        None,
        pattern=r"^https?://[^/?#]+(/[^?#]*)?$",
        description="base URL of an OpenAI-compatible chat endpoint, such as https://HOST/v1; none is asked unless set",
    )
    model: str = Field("", description="as the endpoint names it")
    api_key: SecretStr | None = None
    timeout_s: float = Field(60.0, gt=0, description="total deadline of one answer, retries included")
    requests_per_minute: float = Field(60.0, gt=0, description="most requests of one process, evenly spread")
    price_in: float = Field(0.0, ge=0, description="of a million tokens read, to count what answers cost")
    price_out: float = Field(0.0, ge=0, description="of a million tokens written")


class Judge(Chat):
    """A vision-language model that says whether a task was done, for phones that do not say themselves, and whether its
    actions could be done.
    """

    validity: Literal["none", "vlm"] = Field(
        "none", description="vlm: a worker asks for each action of an episode whether it could be done (P_invalid)"
    )
    validity_actions: int = Field(
        20, ge=1, le=200, description="with judge.validity, most actions of one episode that are asked about"
    )


class AppAgent(Chat):
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


class Stack(Section):
    directory: Path = Field(Path("out/stack"), description="where the local servers keep their data and logs")
    cache: Path = Field(Path("~/.cache/distrl"), description="what is downloaded or built once per user")
    kafka_port: int = Field(29092, ge=20000, le=65000)
    kafka_heap_mb: int = Field(512, ge=256)
    s3_port: int = Field(29000, ge=20000, le=65000)
    object_store: Literal["auto", "minio", "directory"] = Field(
        "auto", description="auto: MinIO where a binary, Docker or Go is there, else a directory"
    )
