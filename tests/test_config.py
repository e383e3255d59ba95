import shutil
from pathlib import Path
from typing import Any

import distrl
import pytest
from distrl.config import Config, UnsoundHereError, load, may_hold_secret
from distrl.config.refusals import explain
from distrl.errors import ConfigError, PolicyError
from distrl.policy.registry import SHIPPED
from distrl.runs.settings import learning_fingerprint, run_settings
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from pydantic_core import InitErrorDetails


def refused(**arguments: object) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load(**{"environ": {}, **arguments})  # type: ignore[arg-type]
    return caught.value


def test_the_later_source_wins(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("run: from-file\nfeeder: {max_lag: 1, outstanding: 5}\n")
    environ = {"DISTRL_FEEDER__MAX_LAG": "2", "DISTRL_RUN": "from-environment", "HOME": "x"}
    config = load(file, ["feeder.max_lag=3"], environ)
    assert (config.run, config.feeder.max_lag, config.feeder.outstanding) == ("from-environment", 3, 5)


def test_an_unknown_setting_is_refused_with_its_path_and_the_allowed_names() -> None:
    error = refused(sets=["kafka.bootstrp=x:1"])
    assert error.where == "kafka.bootstrp"
    assert "bootstrap" in error.hint


def test_only_a_name_that_no_setting_has_is_said_to_lack_underscores() -> None:
    """And no value, whatever the words of its refusal."""
    problem = InitErrorDetails(
        type="value_error", loc=("feeder", "max_lag"), input=1, ctx={"error": ValueError("no such setting of 1")}
    )
    error = explain(ValidationError.from_exception_data("Config", [problem]), {"feeder.max_lag": "DISTRL_FEEDER_1"})
    assert (error.where, error.what) == ("feeder.max_lag (DISTRL_FEEDER_1)", "no such setting of 1 (it is 1)")
    assert "DISTRL_KAFKA__BOOTSTRAP" not in error.hint
    assert "DISTRL_KAFKA__BOOTSTRAP" in refused(environ={"DISTRL_JUDGE_ENDPOINT": "http://j"}).hint


@pytest.mark.parametrize(
    ("sets", "may_be_sound"),
    [
        (["algorithm.clip=0.3"], True),  # GRPO's
        (["learner.rebuild_window=900"], True),  # below the capacity of replay, which a run may have smaller
        (["algorithm.clip=0.3", "learner.rebuild_window=900"], True),
        (["algorithm.type=aride", "algorithm.clip=0.3"], False),
        (["algorithm.clip=wide"], False),
        (["algorithm.no_such=1"], False),
        (["algorithm.clip=0.3", "feder.max_lag=1"], False),
        (["feeder.max_lag=-1"], False),
        (["algorithm=grpo"], False),
    ],
)
def test_what_may_be_sound_over_the_settings_of_some_run_is_told_from_what_is_wrong_over_any(
    sets: list[str], may_be_sound: bool
) -> None:
    assert isinstance(refused(sets=sets), UnsoundHereError) == may_be_sound


@pytest.mark.parametrize(
    ("item", "where", "said"),
    [
        ("feeder.max_lag=-1", "feeder.max_lag", "a whole number of at least 0; the default is 4"),
        ("kafka.bootstrap=localhost", "kafka.bootstrap", "'localhost' names no port; write HOST:PORT, several with"),
        ("kafka.bootstrap=a:1,b", "kafka.bootstrap", "'b' names no port"),
        ("kafka.bootstrap=a:1,", "kafka.bootstrap", "'' names no port"),
        ("kafka.bootstrap=a:0", "kafka.bootstrap", "'a:0' names no port from 1 to 65535"),
        ("kafka.bootstrap=a:x", "kafka.bootstrap", "'a:x' names no port"),
        ("kafka.bootstrap=:9092", "kafka.bootstrap", "':9092' names no host"),
        ("kafka.bootstrap=::1:9092", "kafka.bootstrap", "IPv6 in brackets"),
        ("kafka.bootstrap=kafka://a:9092", "kafka.bootstrap", "names no host"),
        ("kafka.security_protocol=TLS", "kafka.security_protocol", "SASL_SSL"),
        ("run=Not A Run", "run", "1 to 63"),
        ("store.url=ftp://x", "store.url", "s3"),
        ("phones.base_port=5555", "phones.base_port", "20000"),
        ("algorithm.batch_size=many", "algorithm.batch_size", "a whole number of at least 1"),
        ("judge.endpoint=https://h/v1", "config", "needs judge.model"),
        ("appagent.endpoint=https://h/v1", "config", "needs appagent.model"),
        ("appagent.endpoint=h/v1", "appagent.endpoint", "https?"),
        ("appagent.mode=pixels", "appagent.mode", "elements"),
        ("appagent.rounds=0", "appagent.rounds", "a whole number from 1 to 200"),
        ("devices.emulators.avd=-wipe-data", "devices.emulators.avd", "pattern"),
        ("devices.emulators.avd=a b", "devices.emulators.avd", "pattern"),
        ("devices.emulators.snapshot=-x", "devices.emulators.snapshot", "pattern"),
        ("devices.emulators.first_port=5555", "devices.emulators.first_port", "in steps of 2; the default is 5554"),
        ("devices.emulators.first_port=5684", "devices.emulators.first_port", "5682"),
        ("devices.emulators.count=65", "devices.emulators.count", "64"),
        ("devices.emulators.count=1", "devices.emulators", "needs devices.emulators.avd"),
        ("devices.emulators.arguments=[-port, '5554']", "devices.emulators", "cannot hold -port"),
        ("devices.emulators.arguments=['@other']", "devices.emulators", "cannot hold @other"),
        ("judge.validity=vlm", "config", "needs judge.endpoint"),
        ("judge.validity=truth", "judge.validity", "'none' or 'vlm'"),
        (
            "algorithm.advantage=gae",
            "algorithm.advantage",
            "hint: one of paper, retrace, td; the default is 'retrace'",
        ),
        ("store.timeout_s=-1", "store.timeout_s", "(it is -1)\n  hint: a number above 0; the default is 10.0"),
        (
            "algorithm.type=magic",
            "algorithm.type",
            "no such type (it is 'magic')\n  hint: one of: aride, ",
        ),
        ("algorithm.gama=1", "algorithm.gama", "no such setting of algorithm.type aride"),
        ("algorithm=fast", "algorithm", "a section, with settings of its own"),
        ("algorithm.retrace=maybe", "algorithm.retrace", "hint: yes or no; the default is yes"),
        ("algorithm={type: grpo, clip: 1}", "algorithm.clip", "hint: a number above 0 and below 1; the default is 0.2"),
        ("run=null", "run", "(it is null)\n  hint: text; the default is 'demo'"),
        ("devices.serials=5", "devices.serials", "should be a list (it is 5)\n  hint: a list, each entry text"),
        ("phones.profiles=[odd]", "phones.profiles.0", "hint: a list, each entry one of plain, moving, steady"),
        ("kafka=5", "kafka", "should be a section, with settings of its own (it is 5)"),
    ],
)
def test_an_impossible_value_is_refused_with_what_is_allowed(item: str, where: str, said: str) -> None:
    error = refused(sets=[item])
    assert error.where == where
    assert said in str(error)
    for python in ("<class", "typing.", "Value error", "tuple", "dictionary", "None", "Path("):
        assert python not in str(error)


def test_each_of_several_wrong_settings_is_reported_with_what_fixes_it() -> None:
    error = refused(sets=["feeder.max_lag=-1", "run=Not A Run", "policy.lora_rnk=2", "algorithm.gamma=2"])
    told = str(error).splitlines()
    assert [line.partition(":")[0] for line in told[::2]] == [
        "run",
        "feeder.max_lag",
        "policy.lora_rnk",
        "algorithm.gamma",
    ]
    assert [line.removeprefix("  hint: ") for line in told[1::2]] == [
        "text; the default is 'demo'",
        "a whole number of at least 0; the default is 4",
        "one of: action_tokens, base_model, chat_template, dialect, history, history_screens, image_precision, "
        "lora_alpha, lora_rank, lora_targets, max_pixels, precision, server, system_prompt, trains",
        "a number from 0 to 1; the default is 0.97",
    ]


@pytest.mark.parametrize(
    "where", ["kafka:9092", "k-1.example.org:9092, k_2:9093", "[::1]:9092,[::2]:9092", "10.0.0.1:1"]
)
def test_brokers_are_named_by_host_and_port(where: str) -> None:
    assert load(sets=[f"kafka.bootstrap={where}"], environ={}).kafka.bootstrap == where


def test_emulators_are_named_by_their_console_ports_up_to_the_last_that_there_is() -> None:
    sets = ["devices.emulators.avd=pixel", "devices.emulators.count=2", "devices.emulators.first_port=5680"]
    devices = load(sets=[*sets, "devices.addresses=['127.0.0.1:5555-5556']", "devices.serials=[s]"], environ={}).devices
    assert devices.emulators.serials == ("emulator-5680", "emulator-5682")
    assert devices.named == ("127.0.0.1:5555", "127.0.0.1:5556", "s", "emulator-5680", "emulator-5682")
    error = refused(sets=[*sets[:2], "devices.emulators.first_port=5682"])
    assert "pass 5682" in error.what


def test_settings_that_contradict_each_other_are_refused() -> None:
    assert "sasl_password" in str(refused(sets=["kafka.security_protocol=SASL_SSL"]))


def test_a_file_that_is_missing_or_no_yaml_is_refused(tmp_path: Path) -> None:
    assert "cannot be read" in str(refused(file=tmp_path / "none.yaml"))
    bad = tmp_path / "bad.yaml"
    bad.write_text("a: [1")
    assert "no YAML" in str(refused(file=bad))
    bad.write_text("- 1")
    assert "no mapping" in str(refused(file=bad))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"learner: {seed: 1}\nkafka: {}\nlearner: {ranks: 2}\n", "has a name twice in line 3, column 1"),
        (b"learner:\n  seed: 1\n  seed: 2\n", "has a name twice in line 3, column 3"),
        ("run: café".encode("latin-1"), "is no text in UTF-8"),
        (b"run: 2024-13-45\n", "has an impossible value: month must be in 1..12"),
    ],
)
def test_a_file_that_says_two_things_or_none_is_refused(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "settings.yaml").write_bytes(content)
    with pytest.raises(ConfigError) as refused:
        load(tmp_path / "settings.yaml", environ={})
    assert refused.value.what == said


@pytest.mark.parametrize(
    ("given", "where"),
    [
        ({"sets": ["learner={seed: 1, seed: 2}"]}, "--set learner"),
        ({"environ": {"DISTRL_LEARNER": "{seed: 1, seed: 2}"}}, "DISTRL_LEARNER"),
    ],
)
def test_a_section_of_a_flag_or_variable_that_says_two_things_is_refused(given: dict[str, Any], where: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load(**{"environ": {}, **given})
    assert (refused.value.where, refused.value.what) == (where, "has a name twice in line 1, column 11")


def test_text_that_looks_like_an_impossible_date_is_text() -> None:
    assert load(sets=["feeder.tasks=2024-13-45"], environ={}).feeder.tasks == (Path("2024-13-45"),)


@pytest.mark.parametrize(
    "item",
    [
        "kafka.bootstrap=kafka://ada:hunter2@host:9092",
        "kafka.bootstrap=ada:hunter2@host",
        "kafka.bootstrap=one:9092,ada:hunter2@two:9092",
        "kafka.bootstrap=ada:hunter2@host:9092,kafka://two:9092",
        "kafka.bootstrap=ada:x://hunter2@host:9092",
        "kafka.bootstrap=ada:hunter2://@host:9092",
        "devices.addresses=ada:hunter2@host:5555",
        "devices.addresses=[ada:hunter2@host]",
    ],
)
def test_a_password_in_an_address_is_not_printed(item: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load(sets=[item], environ={})
    assert "host" in str(refused.value) or "two" in str(refused.value)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    "item",
    [
        "judge.endpoint=https://host/v1?key=hunter2",
        "judge.endpoint=host/v1?key=hunter2",
        "judge.endpoint=host?key=hunter2",
        "judge.endpoint=host?key=it's \"hunter2",
        "appagent.endpoint=https://host/v1#hunter2",
        "policy.server.endpoint=https://host?key=a@hunter2:b",
        "tracing.endpoint=https://me:too?hunter2@host",
        "kafka.schema_registry_url=https://host/?apikey=hunter2",
        "kafka.schema_registry_url=https://host#hunter2",
        "kafka.bootstrap=https://host:9092?key=hunter2",
        "devices.addresses=[one:5555, 'https://host/?key=hunter2']",
    ],
)
def test_a_key_in_the_query_of_an_address_is_refused_and_not_printed(item: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load(sets=[item], environ={})
    assert refused.value.where in item
    assert "hunter2" not in str(refused.value)


def test_an_address_with_a_query_is_printed_up_to_it() -> None:
    assert "(it is 'https://host/v1?…')" in str(refused(sets=["judge.endpoint=https://host/v1?key=hunter2"]))
    assert "(it is 'https://…@host/v1?…')" in str(refused(sets=["judge.endpoint=https://me:it@host/v1?key=hunter2"]))
    assert "'b1:9092#…' names no port" in str(refused(sets=["kafka.bootstrap=b1:9092#old"])), "what is wrong, too"
    assert "'com.shop?' is no package: write" in str(refused(sets=["devices.allowed_packages=['com.shop?']"]))


@pytest.mark.parametrize("value", ["[" * 5_000, "&a [*a]", "&a {b: *a}"])
def test_what_is_nested_without_end_is_refused(tmp_path: Path, value: str) -> None:
    for where in ("learner.seed", "devices.addresses", "kafka"):
        assert refused(sets=[f"{where}={value}"]).where == where
        assert refused(environ={f"DISTRL_{where.upper().replace('.', '__')}": value}).where.startswith(where)
    file = tmp_path / "run.yaml"
    file.write_text(f"kafka: {value}\n")
    assert refused(file=file).where == str(file)


@pytest.mark.parametrize("word", ["yes", "no", "on", "off", "true", "false"])
@pytest.mark.parametrize("where", ["feeder.max_lag", "learner.seed", "judge.timeout_s", "feeder.outstanding"])
def test_a_word_that_yaml_reads_as_true_or_false_is_no_number(tmp_path: Path, where: str, word: str) -> None:
    section, _, name = where.partition(".")
    file = tmp_path / "run.yaml"
    file.write_text(f"{section}: {{{name}: {word}}}\n")
    for error in (refused(sets=[f"{where}={word}"]), refused(file=file)):
        assert error.where == where
        assert error.what.startswith("Input should be a valid ")
        assert "number" in error.hint


@pytest.mark.parametrize("section", ["kafka", "policy.server", "algorithm"])
def test_a_section_whose_lines_are_all_commented_out_has_its_defaults(tmp_path: Path, section: str) -> None:
    file, above = tmp_path / "run.yaml", section.split(".")[:-1]
    file.write_text(
        "".join(f"{name}:\n" for name in above) + f"{'  ' * len(above)}{section.split('.')[-1]}:\n#   a: b\n"
    )
    assert load(file, environ={}) == load(environ={})
    assert "section" in str(refused(sets=["kafka=null"])), "a flag that says nothing is a mistake"


def test_a_section_that_is_empty_takes_what_a_variable_or_a_flag_puts_into_it(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("kafka:\n  # bootstrap: one:9092\n  client:\n    # linger.ms: 1\n")
    config = load(file, ["kafka.client.linger.ms=9"], {"DISTRL_KAFKA__BOOTSTRAP": "two:9092"})
    assert (config.kafka.bootstrap, config.kafka.client) == ("two:9092", {"linger.ms": "9"})
    empty = {"DISTRL_KAFKA": "", "DISTRL_KAFKA__BOOTSTRAP": "two:9092"}
    assert load(environ=empty).kafka.bootstrap == "two:9092"


def test_a_flag_without_a_value_is_refused() -> None:
    assert "has no '='" in str(refused(sets=["run"]))


def test_a_path_through_a_value_is_refused() -> None:
    assert "is a setting" in str(refused(sets=["run=a", "run.b=c"]))


def test_the_fingerprint_names_the_base_model_by_what_it_is_and_not_by_where_it_lies(tmp_path: Path) -> None:
    plain = load(environ={})
    moved = tmp_path / "moved"
    shutil.copytree(SHIPPED, moved)
    elsewhere = load(sets=[f"policy.base_model={moved}"], environ={})
    assert learning_fingerprint(elsewhere) == learning_fingerprint(plain)
    described = moved / "config.json"
    described.write_text(described.read_text() + "\n")
    assert learning_fingerprint(elsewhere) != learning_fingerprint(plain), "another model at the same place"
    (moved / "model.safetensors").unlink()
    with pytest.raises(PolicyError, match="cannot be read") as refused:
        learning_fingerprint(elsewhere)
    assert "policy.base_model" in refused.value.hint
    assert refused.value.where.endswith("model.safetensors")


def test_a_window_that_cannot_refill_the_buffer_is_refused_at_the_start() -> None:
    with pytest.raises(
        ConfigError, match=r"learner\.rebuild_window \(900 records\) must be at least algorithm\.replay\.capacity"
    ):
        load(sets=["learner.rebuild_window=900", "algorithm.replay.capacity=1000"], environ={})


def test_the_fingerprint_follows_what_the_fold_reads_and_nothing_else() -> None:
    plain = load(environ={})

    def fingerprint_with(change: str) -> str:
        return learning_fingerprint(load(sets=[change], environ={}))

    assert fingerprint_with("algorithm.gamma=0.5") != learning_fingerprint(plain)
    assert fingerprint_with("algorithm.truncation=bootstrap") != learning_fingerprint(plain)
    assert fingerprint_with("worker.temperature=2") == learning_fingerprint(plain)


def test_secrets_are_not_printed() -> None:
    config = load(sets=["store.secret_key=hunter2"], environ={})
    assert "hunter2" not in repr(config)
    assert "hunter2" not in config.model_dump_json()


def test_a_secret_that_is_refused_is_not_printed(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("kafka: {security_protocol: SASL_SSL, sasl_password: hunter2}")
    assert "hunter2" not in str(refused(file=file))
    file.write_text("store: {secret_key: 20251}")
    assert "20251" not in str(refused(file=file))


@pytest.mark.parametrize("secret", ["0012", "a #b", "x: y", "null", "'quoted'", "[1", "yes"])
def test_a_secret_is_taken_as_it_stands(secret: str) -> None:
    config = load(
        sets=[f"store.access_key={secret}"] if secret not in ("null", "'quoted'") else (),
        environ={"DISTRL_STORE__SECRET_KEY": secret},
    )
    assert config.store.secret_key is not None
    assert config.store.secret_key.get_secret_value() == secret
    assert config.store.access_key in (secret, None)


def test_a_name_may_look_like_a_number() -> None:
    assert load(sets=["run=7"], environ={}).run == "7"
    assert load(sets=["run='8'", "kafka.sasl_username=null"], environ={}).run == "8"


@pytest.mark.parametrize("folder", ["/data/run #1", "/data/a: b", "2025-01-31", "0123", "/data/[x]", "yes"])
def test_a_path_is_taken_as_it_stands(folder: str) -> None:
    environ = {"DISTRL_STACK__CACHE": folder}
    config = load(sets=[f"stack.directory={folder}", f"policy.base_model={folder}"], environ=environ)
    assert (config.stack.directory, config.stack.cache, config.policy.base_model) == (Path(folder),) * 3
    assert load(sets=["policy.base_model=null", "stack.directory='quoted'"], environ={}).policy.base_model is None


@pytest.mark.parametrize(
    ("text", "where", "said"),
    [
        ("stack: {directory: [a]}", "stack.directory", "hint: a path: where the local servers keep"),
        ("kafka: {ssl_ca: [a]}", "kafka.ssl_ca", "hint: a path or null: PEM file"),
    ],
)
def test_a_list_in_place_of_a_path_is_refused_with_what_is_allowed(
    text: str, where: str, said: str, tmp_path: Path
) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(text)
    error = refused(file=file)
    assert error.where.endswith(where)
    assert said in str(error)


@pytest.mark.parametrize(
    ("setting", "address"),
    [
        ("judge.endpoint", "http://HOST:PORT/v1"),
        ("appagent.endpoint", "http://host:80800/v1"),
        ("tracing.endpoint", "http://[::1/v1"),
        ("policy.server.endpoint", "http://host:x/v1"),
        ("store.url", "s3://minio:99999/distrl"),
        ("store.url", "s3://[x/bucket"),
    ],
)
def test_an_address_that_no_client_could_parse_is_refused(setting: str, address: str) -> None:
    error = refused(sets=[f"{setting}={address}"])
    assert error.where == setting
    assert f"{address} is no address of a server" in str(error)


def test_a_home_that_is_not_there_is_refused_with_its_setting() -> None:
    for name in ("directory", "cache"):
        assert "~nosuchuser/x begins with the home of a user" in str(refused(sets=[f"stack.{name}=~nosuchuser/x"]))
    assert load(sets=["stack.directory=~/x"], environ={}).stack.directory == Path("~/x")


@given(st.text(min_size=1, max_size=20), st.text(max_size=20))
def test_any_flag_gives_a_config_or_an_explained_refusal(path: str, value: str) -> None:
    try:
        outcome: Config | ConfigError = load(sets=[f"{path}={value}"], environ={})
    except ConfigError as error:
        outcome = error
    assert isinstance(outcome, Config) or (outcome.where and outcome.hint)


def test_a_notebook_names_a_run_as_the_setting_does() -> None:
    for config in (Config(), None):
        with pytest.raises(ConfigError, match="1 to 63 of a-z, 0-9 and '-'") as told:
            distrl.open_run("Not_A_Run", config)
        assert told.value.where == "run"


# kafka.client


def test_settings_of_librdkafka_come_from_a_file_variables_and_flags(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("kafka: {client: {ssl.key.location: /file, linger.ms: 7, socket.keepalive.enable: true}}")
    environ = {"DISTRL_KAFKA__CLIENT__SSL__KEY__LOCATION": "/variable", "DISTRL_KAFKA__CLIENT__CLIENT__RACK": "0012"}
    client = load(file, ["kafka.client.linger.ms=9"], environ).kafka.client
    assert client == {
        "ssl.key.location": "/variable",
        "linger.ms": "9",
        "socket.keepalive.enable": "true",
        "client.rack": "0012",
    }
    whole = {"DISTRL_KAFKA__CLIENT": '{"client.rack": "b"}'}
    assert load(file, (), whole).kafka.client == {"client.rack": "b"}
    assert load(file, ["kafka.client={client.rack: c}"], whole).kafka.client == {"client.rack": "c"}


@pytest.mark.parametrize(
    "name",
    ["bootstrap.servers", "enable.idempotence", "acks", "transactional.id", "group.id", "enable.auto.commit",
     "isolation.level", "message.timeout.ms", "delivery.timeout.ms", "security.protocol", "error_cb", "on_delivery"],
)  # fmt: skip
def test_what_a_guarantee_rests_on_cannot_be_set_and_the_reason_is_reported(name: str) -> None:
    error = refused(sets=[f"kafka.client.{name}=1"])
    assert error.where == f"kafka.client.{name}"
    assert error.what.startswith("cannot be set: ")
    assert error.hint == "leave it out of kafka.client"


@pytest.mark.parametrize(
    ("item", "where", "said"),
    [
        ("kafka.client=5", "kafka.client", "should be a mapping"),
        ("kafka.client=[a]", "kafka.client", "should be a mapping"),
        ("kafka.client={ssl: {key.location: x}}", "kafka.client.ssl", "write its whole name with dots"),
        ("kafka.client={linger.ms: [1]}", "kafka.client.linger.ms", "should be text, a number, true or false"),
        ("kafka.client={sasl.password: 20251}", "kafka.client.sasl.password", "put it in quotes"),
    ],
)
def test_settings_of_librdkafka_are_text(item: str, where: str, said: str) -> None:
    error = refused(sets=[item])
    assert error.where == where
    assert said in str(error)
    assert "20251" not in str(error)


def test_a_file_that_its_reader_mistakes_shows_no_secret_of_kafka_client() -> None:
    for text in ('{"ssl.key.password": "hunter2"', "ssl.key.password=hunter2"):
        assert "hunter2" not in str(refused(environ={"DISTRL_KAFKA__CLIENT": text}))
    assert "hunter2" not in str(refused(sets=["kafka.client={sasl.password: hunter2, acks: 0}"]))


SECRETS = ("ssl.key.password", "ssl.key.pem", "ssl.keystore.password", "sasl.password", "sasl.oauthbearer.config",
           "sasl.oauthbearer.client.secret", "sasl.oauthbearer.assertion.private.key.passphrase")  # fmt: skip


@pytest.mark.parametrize("name", SECRETS)
@pytest.mark.parametrize("value", ["hunter2", "0012", "a #b", "null"])
def test_secrets_of_librdkafka_are_taken_as_they_stand_and_not_printed(name: str, value: str) -> None:
    variable = "DISTRL_KAFKA__CLIENT__" + name.upper().replace(".", "__")
    for config in (load(environ={variable: value}), load(sets=[f"kafka.client.{name}={value}"], environ={})):
        secret = config.secrets()[f"kafka.client.{name}"]
        assert secret.get_secret_value() == value
        assert value not in repr(config.kafka.client)
        assert name not in config.tree(with_secrets=False)["kafka"]["client"]
        assert config.tree(with_secrets=True)["kafka"]["client"] == {name: value}


def test_a_log_in_without_a_user_needs_none() -> None:
    oidc = "kafka.client={sasl.oauthbearer.method: oidc, sasl.mechanism: OAUTHBEARER}"
    for sets in (
        ["kafka.client.sasl.mechanism=GSSAPI"],
        ["kafka.sasl_mechanism=GSSAPI"],
        [oidc],
        ["kafka.client={sasl.username: u, sasl.password: p}"],
    ):
        load(sets=["kafka.security_protocol=SASL_SSL", *sets], environ={})
    error = refused(sets=["kafka.security_protocol=SASL_SSL", "kafka.sasl_mechanism=OAUTHBEARER"])
    assert "sasl.oauthbearer.method" in error.what
    assert "kafka.sasl_username" in str(
        refused(sets=["kafka.security_protocol=SASL_SSL", "kafka.client.client.rack=a"])
    )


# What ends with a colon is the name of a setting to YAML, and names are printed.
PRINTABLE = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=8, max_size=30)
ANY_SECRET = PRINTABLE.filter(lambda text: not text.endswith(":")).map("zq".__add__)
MISPLACED = (
    "{}", "kafka={}", "store=[{}]", "kafka.sasl_password.x={}", "store.secret_key.x.y={}", "judge={{api_key: {}",
    "judge={{api_key: '{}', x: 1}}", "kafka.sasl_pasword={}", "judge.endpoint=http://me:{}@host/v1",
    "judge.endpoint=https://host/v1?key={}", "kafka.schema_registry_url=https://host/#{}",
    "store.url=s3://me:{}@host/bucket", "kafka.bootstrap=me:{}@host:9092", "devices.addresses=me:{}@host",
    "kafka={{security_protocol: SASL_SSL, sasl_password: '{}'}}",
)  # fmt: skip


@given(ANY_SECRET, st.sampled_from(MISPLACED))
def test_no_mistake_prints_a_secret(secret: str, mistake: str) -> None:
    """Whatever a person writes instead of the right setting."""
    item = mistake.format(secret)
    path, equals, value = item.partition("=")
    assert secret not in _said([item], {})
    if equals and "=" not in secret:
        assert secret not in _said([], {"DISTRL_" + path.upper().replace(".", "__"): value})


def _said(sets: list[str], environ: dict[str, str], file: Path | None = None) -> str:
    try:
        return repr(load(file, sets, environ))
    except ConfigError as error:
        return str(error)


BROKEN = (
    "kafka: {{sasl_password: {}\nrun: {{", "store:\n  secret_key: '{}\n", "{}: [", "- {}", "judge:\n  api_key: !{}\n",
    "judge:\n  api_key: !{}!x\n", "judge:\n  api_key: *{}\n", "%{}\n", "kafka:\n  sasl_password: @{}\n",
)  # fmt: skip


@given(ANY_SECRET, st.sampled_from(BROKEN))
def test_no_broken_file_is_quoted(tmp_path_factory: pytest.TempPathFactory, secret: str, text: str) -> None:
    file = tmp_path_factory.getbasetemp() / "broken.yaml"
    file.write_text(text.format(secret))
    assert secret not in _said([], {}, file)


REGISTRY = "kafka.schema_registry_url=http://127.0.0.1:8081"


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        (["kafka.framing=confluent"], "needs kafka.schema_registry_url"),
        ([REGISTRY, "kafka.schema_registry_username=me"], "go together"),
        ([REGISTRY, "kafka.schema_registry_password=hunter2"], "go together"),
        (["kafka.schema_registry_url=http://me:hunter2@127.0.0.1:8081"], "kafka.schema_registry_url"),
        (["kafka.schema_registry_url=127.0.0.1:8081"], "kafka.schema_registry_url"),
        (["kafka.framing=other", REGISTRY], "kafka.framing"),
    ],
)
def test_a_registry_that_cannot_be_asked_is_refused(sets: list[str], said: str) -> None:
    error = str(refused(sets=sets))
    assert said in error
    assert "hunter2" not in error


def test_every_secret_stays_out_of_what_is_shown_and_of_what_the_log_of_a_run_records() -> None:
    values = {path: f"hunter2-{path}" for path in ("kafka.sasl_password", "kafka.schema_registry_password",
              "store.secret_key", "judge.api_key", "appagent.api_key", "kafka.client.ssl.key.password")}  # fmt: skip
    sets = ["kafka.security_protocol=SASL_SSL", "kafka.sasl_username=me"]
    sets += ["kafka.schema_registry_username=me", *(f"{path}={value}" for path, value in values.items())]
    config = load(sets=sets, environ={})
    assert {path: secret.get_secret_value() for path, secret in config.secrets().items()} == values
    shown = [config.tree(with_secrets=False), run_settings(config), config, config.secrets()]
    assert not [each for each in shown if "hunter2" in f"{each!r} {each}"]


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        (["kafka.sasl_username=ada", "kafka.sasl_password=x"], r"with PLAINTEXT nobody logs in"),
        (["kafka.security_protocol=SSL", "kafka.sasl_password=x"], r"with SSL nobody logs in"),
        (["kafka.ssl_ca=/ca.pem"], r"kafka\.ssl_ca is for .* with PLAINTEXT nothing is encrypted"),
        (
            ["store.url=s3://127.0.0.1:9000/data", "store.ca=/ca.pem"],
            r"store\.ca is for an s3s:// address in store\.url",
        ),
        (["devices.operation_timeout_s=11"], r"devices\.lease_ttl_s \(30\) must be at least 3 times"),
        (["devices.lease_ttl_s=3601"], r"devices\.lease_ttl_s: .*3600"),
        (["worker.heartbeat_s=60"], r"worker\.heartbeat_s: .*5"),
    ],
)
def test_settings_that_are_half_right_are_refused_with_what_would_come_of_them(sets: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load(sets=sets, environ={})


def test_settings_that_are_right_to_the_end_are_taken() -> None:
    log_in = ["kafka.sasl_username=ada", "kafka.sasl_password=x", "kafka.ssl_ca=/ca.pem"]
    store = ["store.url=s3s://minio:9000/data", "store.ca=/ca.pem"]
    devices = ["devices.operation_timeout_s=1200", "devices.lease_ttl_s=3600", "worker.heartbeat_s=5"]
    assert load(sets=["kafka.security_protocol=SASL_SSL", *log_in, *store, *devices], environ={}).devices.lease_ttl_s


@pytest.mark.parametrize(
    ("name", "may"),
    [
        ("store.secret_key", True),
        ("policy.server.api_key", True),
        ("judge.api_key", True),
        ("kafka.sasl_password", True),
        ("kafka.client.ssl.key.password", True),
        ("kafka.client", True),
        ("policy.server", True),
        ("policy", True),
        (" judge ", True),
        ("kafka.client.linger.ms", False),
        ("kafka.bootstrap", False),
        ("algorithm.replay.capacity", False),
        ("algorithm", False),
        ("worker", False),
        ("no.such.setting", False),
    ],
)
def test_what_may_hold_a_secret_is_known_by_its_name(name: str, may: bool) -> None:
    assert may_hold_secret(name) is may
