"""The learner killed, starved and misled: its end state is compared, bit for bit, with that of one left in peace."""

from __future__ import annotations

import random
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from distrl.broker.journal import history, in_force
from distrl.broker.reader import decoded
from distrl.broker.versions import lineage
from distrl.evaluate.gather import final_digests
from distrl.learner.verify import verify
from distrl.offline.lineage.read import follow
from distrl.runs.recorded import change
from distrl.store.adapters import read_adapter
from distrl.store.checkpoints import checkpoints, latest_checkpoint
from distrl.store.objects import MissingObjectError
from distrl.types import SCRIPTED, Figures, Outcome
from distrl.wire.codec import encode

from faults.live import WARMUP, Learned, LiveRun, Servers, noise, reference, trajectory
from faults.roles import KILLED, Role

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

PER_UPDATE = 3


def wait_restored(run: LiveRun, learner: Role) -> None:
    run.until("the learner to be where one before it was", lambda: "restored the checkpoint" in learner.said())


def wait_saved(run: LiveRun, updates: int) -> None:
    """A checkpoint is uploaded beside what the learner does next."""
    run.until("the checkpoint", lambda: recovered(run) == updates)


def left_in_peace(run: LiveRun, updates: int) -> Learned:
    """What an undisturbed learner makes of the same log: journal, versions and checkpoints are taken away before."""
    run.forget_learning()
    run.learner()
    run.until_learned(updates)
    return run.end_learning()


def at_random_instants(run: LiveRun, rule: random.Random, kills: int) -> None:
    """Every fourth kill falls into the start of a learner, the others into the four updates after it."""
    updates = WARMUP + 5 + 2 * kills
    run.record(demonstrations=6, trajectories=PER_UPDATE)
    run.learner()
    run.until_learned(WARMUP + 1)
    wait_saved(run, WARMUP + 1)
    run.roles["learner"].kill()
    run.record(trajectories=4 * PER_UPDATE)
    began = time.monotonic()
    learner = run.learner()
    wait_restored(run, learner)
    start_s, began = time.monotonic() - began, time.monotonic()
    run.until_learned(WARMUP + 5)
    work_s = time.monotonic() - began
    learner.kill()
    run.record(trajectories=2 * kills * PER_UPDATE)
    for kill in range(1, kills + 1):
        learner = run.learner()
        if kill % 4 == 0:
            threading.Event().wait(rule.uniform(0.0, start_s))
        else:
            wait_restored(run, learner)
            threading.Event().wait(rule.uniform(0.0, work_s))
        learner.kill()
        print(f"kill {kill}: {len(run.updates())} updates journalled, {len(run.versions())} versions, of {updates}")
    run.learner()
    run.until_learned(updates)
    lived = run.end_learning()
    assert lived.updates == updates
    assert lived == left_in_peace(run, updates)


def test_a_learner_killed_at_3_random_instants_ends_like_one_left_in_peace(run: LiveRun, rule: random.Random) -> None:
    at_random_instants(run, rule, 3)


@pytest.mark.faults_long
def test_a_learner_killed_at_20_random_instants_ends_like_one_left_in_peace(run: LiveRun, rule: random.Random) -> None:
    at_random_instants(run, rule, 20)


UPDATES = WARMUP + 8


@pytest.fixture(scope="module")
def peace(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LiveRun, Learned]]:
    """A log of ten updates, and what a learner that nothing happens to makes of it."""
    run = LiveRun(servers, tmp_path_factory.mktemp("peace"))
    run.record(demonstrations=6, trajectories=8 * PER_UPDATE)
    yield run, left_in_peace(run, UPDATES)
    run.close()


@pytest.mark.parametrize(
    ("point", "nth"),
    [
        ("update_journalled", 4),
        ("adapter_stored", 3),
        ("version_published", 3),
        ("tensors_stored", 2),
        ("manifest_stored", 2),
        ("pruned_one", 1),
        ("half_an_upload", 2),
        ("uploading_beside_an_update", 2),
        ("checkpoint_before_its_version", 3),
    ],
)
def test_a_learner_killed_between_two_writes_ends_like_one_left_in_peace(
    peace: tuple[LiveRun, Learned], point: str, nth: int
) -> None:
    run, undisturbed = peace
    if point == "half_an_upload" and not run.servers.store_is_s3():
        pytest.skip("no S3 endpoint can be had here, so nothing is uploaded")
    run.forget_learning()
    killed = run.learner(point=point, nth=nth)
    run.until(f"the learner to die: {point}", lambda: killed.code is not None)
    assert killed.code == KILLED
    assert len(run.versions()) < UPDATES - WARMUP + 1, "it died before it was done"
    run.learner()
    run.until_learned(UPDATES)
    assert run.end_learning() == undisturbed
    recorded = {(each.u, each.journalled_at) for each in (decoded(raw, Figures) for raw in run.raw("figures"))}
    assert recorded >= {(line.u, line.journalled_at) for line in run.updates()}, "figures of every update last"


def test_a_learner_killed_while_it_prunes_adapters_goes_on_and_says_of_each_that_is_gone_that_it_was_pruned(
    run: LiveRun,
) -> None:
    keep = ["learner.keep_adapters=2", "learner.keep_adapters_every=4"]
    run.record(demonstrations=6)
    for number in range(8 * PER_UPDATE):
        made = trajectory(run.store, number, expert=False)
        made = replace(made, steps=tuple(replace(step, version=SCRIPTED) for step in made.steps))
        run.publish("trajectories", made.task_id, made)
    killed = run.learner(point="adapter_pruned", nth=2, sets=keep)
    run.until("the learner to die", lambda: killed.code is not None)
    assert killed.code == KILLED, killed.said()
    run.learner(sets=keep)
    run.until_learned(UPDATES)
    run.stop("learner")
    versions = run.versions()
    there = set(run.store.list(f"adapters/{run.config.run}/"))
    kept = {version.adapter.key for version in versions if version.version in (0, 4, 7, 8)}
    assert {key for key in there if not key.endswith(".json")} == kept, "another version may have the same weights"
    gone = [version for version in versions if version.adapter.key not in there]
    assert {version.version for version in gone} >= {2, 3, 5, 6}
    for version in gone:
        with pytest.raises(
            MissingObjectError, match=r"was pruned by learner\.keep_adapters=2 and keep_adapters_every=4"
        ):
            read_adapter(run.store, run.config.run, version)


def test_of_two_learners_the_older_is_fenced_and_publishes_nothing_more(run: LiveRun, tmp_path: Path) -> None:
    """Who has taken over is told though the older one's clock is wrong."""
    run.record(demonstrations=6, trajectories=PER_UPDATE)
    clock = tmp_path / "ahead"
    clock.write_text("7200")
    older = run.start("learner", "learner", clock=clock)
    run.until_learned(WARMUP + 1)
    wait_saved(run, WARMUP + 1)
    newer = run.start("newer", "learner")
    wait_restored(run, newer)  # which comes after it has opened the journal
    run.record(trajectories=2 * PER_UPDATE)
    assert run.roles.pop("learner").wait() == 1
    run.roles["learner"] = newer
    assert f"another learner has taken over run {run.config.run}" in older.said()
    assert f"It is process {newer.pid} on {socket.gethostname()}" in " ".join(older.said().split())
    run.until_learned(WARMUP + 3)
    published = [line.split("version ")[1].split()[0] for role in (older, newer) for line in said_versions(role)]
    assert published == [str(number) for number in range(4)], "the older published 0 and 1, the newer the others"
    run.end_learning()


def test_a_full_disk_at_a_checkpoint_leaves_the_old_one_and_the_learner_goes_on_once_there_is_room(
    new_run: Callable[..., LiveRun], tmp_path: Path
) -> None:
    """The kernel refuses every byte of a file past RLIMIT_FSIZE, as it does on a disk that is full."""
    run = new_run({"store": {"url": f"file://{tmp_path / 'objects'}"}})
    run.record(demonstrations=6, trajectories=PER_UPDATE)
    learner = run.learner()
    run.until_learned(WARMUP + 1)
    wait_saved(run, WARMUP + 1)
    adapter = run.versions()[0].adapter.size
    tensors = max(file.stat().st_size for file in (tmp_path / "objects" / "runs").rglob("*.safetensors"))
    assert adapter < tensors // 2
    resource.prlimit(learner.pid, resource.RLIMIT_FSIZE, (tensors // 2, resource.RLIM_INFINITY))
    run.record(trajectories=4 * PER_UPDATE)
    run.until("the learner to say so", lambda: "waiting for the store" in learner.said())
    assert "cannot be written: File too large" in learner.said()
    run.record(trajectories=2 * PER_UPDATE)
    run.until("it to read on", lambda: run.beats("learner", learner)[-1].metrics["pending"] >= PER_UPDATE)
    assert recovered(run) == 3
    assert len(run.updates()) <= 9, "updates go on beside an upload, and none beyond the next checkpoint"
    resource.prlimit(learner.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    run.until_learned(WARMUP + 7)
    run.until("the checkpoint after the one that was refused", lambda: recovered(run) == 9)
    assert not list((tmp_path / "objects").rglob(".part-*")), "what could not be written is gone"
    run.end_learning()


def test_records_deleted_before_they_were_learned_are_refused_with_the_command_that_goes_on(run: LiveRun) -> None:
    run.record(demonstrations=6, trajectories=PER_UPDATE)
    run.learner()
    run.until_learned(WARMUP + 1)
    run.stop("learner")
    run.record(trajectories=2 * PER_UPDATE)
    run.delete_before("trajectories", PER_UPDATE + 2)
    learner = run.learner()
    assert learner.wait() == 1
    said = " ".join(learner.said().split())
    assert "retention has deleted all before 5" in said
    assert f"distrl learner --set run={run.config.run}-2" in said
    assert len(run.updates()) == WARMUP + 1, "nothing was journalled"


@pytest.mark.parametrize("topic", ["demonstrations", "trajectories"])
def test_a_learner_without_a_checkpoint_refuses_a_log_whose_beginning_was_deleted(
    new_run: Callable[..., LiveRun], topic: str
) -> None:
    """It folds from the first record on; to take the first one kept for it would be another run."""
    run = new_run({"learner": {"checkpoint_every": 1000}})
    run.record(demonstrations=6, trajectories=PER_UPDATE)
    run.learner()
    run.until_learned(WARMUP + 1)
    run.roles["learner"].kill()
    run.delete_before(topic, 2)
    learner = run.learner()
    assert learner.wait() == 1
    said = " ".join(learner.said().split())
    assert "record 0 is needed, but retention has deleted all before 2" in said
    assert f"distrl learner --set run={run.config.run}-2" in said
    assert (len(run.updates()), len(run.versions())) == (WARMUP + 1, 2), "nothing was journalled or published"


def test_a_journal_whose_beginning_was_deleted_is_refused_and_costs_no_checkpoint(run: LiveRun) -> None:
    """Lines that leave a gap before them count for none; taken for a lost tail, all that was learned would be void."""
    run.record(demonstrations=6, trajectories=PER_UPDATE)
    run.learner()
    run.until_learned(WARMUP + 1)
    run.stop("learner")
    saved = sorted(run.store.list(f"runs/{run.config.run}/"))
    run.delete_before("updates", 2)
    learner = run.learner()
    assert learner.wait() == 1
    assert "record 0 is needed, but retention has deleted all before 2" in " ".join(learner.said().split())
    assert sorted(run.store.list(f"runs/{run.config.run}/")) == saved
    assert len(run.versions()) == 2


def test_a_record_that_names_a_missing_object_is_waited_for_and_then_learned(run: LiveRun) -> None:
    run.record(demonstrations=6, trajectories=PER_UPDATE)
    learner = run.learner()
    run.until_learned(WARMUP + 1)
    late = noise(99)
    ref = reference(late, "screenshots/2026-01-01", "png")
    whole = trajectory(run.store, 1000, expert=False)
    run.publish("trajectories", whole.task_id, replace(whole, steps=(replace(whole.steps[0], screenshot=ref),)))
    run.record(trajectories=2 * PER_UPDATE + 1)
    run.until("the learner to name it", lambda: f"waiting for the store: object {ref.key}" in learner.said())
    run.until("it to read on", lambda: run.beats("learner", learner)[-1].metrics["pending"] >= 2 * PER_UPDATE)
    assert (len(run.updates()), len(run.versions())) == (WARMUP + 2, 2), "journalled, and not folded"
    assert run.store.put("screenshots", late, "png", "2026-01-01") == ref
    run.until_learned(WARMUP + 3)
    run.end_learning()


def test_a_record_whose_object_is_gone_for_good_is_skipped_and_the_run_goes_on_without_it(run: LiveRun) -> None:
    run.record(demonstrations=6, trajectories=PER_UPDATE)
    run.learner()
    run.until_learned(WARMUP + 1)
    ref = reference(noise(98), "screenshots/2026-01-01", "png")
    whole = trajectory(run.store, 1000, expert=False)
    gone = replace(whole, steps=(replace(whole.steps[0], screenshot=ref),))
    at = run.publish("trajectories", whole.task_id, gone)
    run.record(trajectories=2 * PER_UPDATE)
    learner = run.roles["learner"]
    command = f"distrl skip trajectories/0/{at} --run {run.config.run} --reason"
    run.until("the learner to name the command", lambda: command in " ".join(learner.said().split()))
    assert len(run.updates()) == WARMUP + 2, "it waits in the update that is journalled"
    assert run.start("skip", "skip", f"trajectories/0/{at}", "--reason", "lost with a disk").wait() == 0
    assert f"is left out from update {WARMUP + 1} on; 1 updates are folded again" in run.roles["skip"].said()
    learner.kill()
    learner = run.learner()
    run.until("it to go on", lambda: len(history(run.config).updates) == WARMUP + 3)
    run.until("its versions", lambda: in_force(lineage(run.config), history(run.config))[-1].update == WARMUP + 2)
    (skipped,) = history(run.config).skipped
    assert (skipped.offset, skipped.reason) == (at, "lost with a disk")
    again = run.start("again", "skip", f"trajectories/0/{at}", "--reason", "once more")
    assert again.wait() == 1
    assert "is left out already" in again.said()
    learner.kill()
    fresh, same = verify(run.config, from_start=True)
    assert fresh.u == WARMUP + 3
    assert len(same) == 4
    names = [each.task_id for each in follow(run.config, history(run.config)).trajectories]
    assert whole.task_id not in names
    assert len(names) == 6 + 3 * PER_UPDATE, "a lineage leaves it out as well"


def test_settings_that_change_while_demonstrations_are_waited_for_end_the_learner_before_it_journals(
    run: LiveRun,
) -> None:
    learner = run.learner()
    run.until("it to be past its start", lambda: "update 0 waits" in learner.said())
    other = run.config.model_copy(update={"learner": run.config.learner.model_copy(update={"seed": 3})})
    change(other, "runs set", (), {"learner.seed": 3})
    run.record(demonstrations=6)
    assert learner.wait() == 1
    assert "was changed for run" in " ".join(learner.said().split())
    assert run.updates() == []
    run.learner()
    run.until_learned(WARMUP)


def test_a_demonstration_is_skipped_of_a_run_that_has_no_more_than_it_waits_for(run: LiveRun) -> None:
    """As `distrl demonstrate` publishes them: no other one comes, and a second start of it adds none."""
    run.record(demonstrations=run.config.warmup.demonstrations, trajectories=2 * PER_UPDATE)
    run.learner()
    run.until_learned(WARMUP + 2)
    run.stop("learner")
    assert run.start("skip", "skip", "demonstrations/0/2", "--reason", "lost with a disk").wait() == 0
    learner = run.learner()
    run.until("it to fold all again", lambda: len(history(run.config).updates) == WARMUP + 2)
    run.until("its versions", lambda: in_force(lineage(run.config), history(run.config))[-1].update == WARMUP + 1)
    learner.kill()
    fresh, _ = verify(run.config, from_start=True)
    assert fresh.u == WARMUP + 2
    names = [each.task_id for each in follow(run.config, history(run.config)).trajectories]
    assert len(names) == run.config.warmup.demonstrations - 1 + 2 * PER_UPDATE


def test_a_skip_after_which_nothing_could_be_folded_again_is_refused(run: LiveRun) -> None:
    run.record(demonstrations=6, trajectories=2 * PER_UPDATE)
    run.learner()
    run.until_learned(WARMUP + 2)
    run.stop("learner")
    run.delete_before("trajectories", 1)
    refused = run.start("skip", "skip", "demonstrations/0/2", "--reason", "lost with a disk")
    assert refused.wait() == 1
    assert "no checkpoint from before it can be restored" in " ".join(refused.said().split())
    assert len(run.updates()) == WARMUP + 2, "nothing is journalled"


def test_a_run_goes_on_though_what_it_has_learned_and_needs_no_more_was_deleted(run: LiveRun) -> None:
    cut = replace(trajectory(run.store, 5000, expert=False), outcome=Outcome.INTERRUPTED)
    run.publish("trajectories", cut.task_id, cut)  # learned past, and held by no buffer
    run.record(demonstrations=6, trajectories=2 * PER_UPDATE)
    run.learner()
    run.until_learned(WARMUP + 2)
    run.stop("learner")
    run.delete_before("trajectories", 1)
    wait_restored(run, run.learner())
    run.record(trajectories=PER_UPDATE)
    run.until_learned(WARMUP + 3)


def test_all_topics_made_again_under_the_store_of_a_run_are_refused_and_its_checkpoints_stay(run: LiveRun) -> None:
    """As a wrong kafka.bootstrap is, or `distrl up` in another folder beside a store that is elsewhere."""
    run.record(demonstrations=6, trajectories=PER_UPDATE)
    run.learner()
    run.until_learned(WARMUP + 1)
    run.stop("learner")
    saved = checkpoints(run.store, run.config.run)
    for topic in ("trajectories", "demonstrations", "updates", "versions"):
        run.make_again(topic)
    learner = run.learner()
    assert learner.wait() == 1
    assert "made again or mirrored" in " ".join(learner.said().split())
    assert checkpoints(run.store, run.config.run) == saved


def test_topics_that_were_made_again_with_other_records_are_refused(run: LiveRun) -> None:
    run.record(demonstrations=6, trajectories=2 * PER_UPDATE)
    run.learner()
    run.until_learned(WARMUP + 2)
    run.stop("learner")
    run.make_again("trajectories")
    for number in range(2 * PER_UPDATE + 2):
        other = trajectory(run.store, 2000 + number, expert=False)
        run.publish("trajectories", other.task_id, other)
    lines = len(run.updates())
    learner = run.learner()
    assert learner.wait() == 1
    said = " ".join(learner.said().split())
    assert "are not the topics of the journal (made again or mirrored)" in said
    assert "Traceback" not in said
    assert len(run.updates()) == lines, "nothing was journalled"
    assert recovered(run) == WARMUP + 2, "and no checkpoint was deleted"


def test_garbage_and_unknown_schemas_are_skipped_and_the_rest_is_learned(run: LiveRun) -> None:
    run.record(demonstrations=6, trajectories=PER_UPDATE - 1)
    whole = encode(trajectory(run.store, 1000, expert=False))
    bad = {
        b"garbage": b"\x00\xffno record at all",
        b"unknown": whole[:2] + bytes(8) + whole[10:],
        b"cut": whole[:-20],
        b"empty": b"",
    }
    for key, value in bad.items():
        run.publish_bytes("trajectories", key, value)
    learner = run.learner()
    run.record(trajectories=PER_UPDATE + 1)
    run.until_learned(WARMUP + 2)
    assert {raw.key: raw.value for raw in run.raw("trajectories.dlq")} == bad
    assert run.beats("learner", learner)[-1].metrics["dead_letters"] == len(bad)
    run.end_learning()


def test_a_second_record_of_a_task_is_counted_and_skipped_and_verify_prints_what_was_learned(run: LiveRun) -> None:
    run.record(demonstrations=6, trajectories=PER_UPDATE)
    other = trajectory(run.store, 1000, expert=False)
    first = run.trajectories()[0].trajectory
    run.publish("trajectories", first.task_id, replace(other, task=first.task))
    run.record(trajectories=PER_UPDATE)
    learner = run.learner()
    run.until_learned(WARMUP + 2)
    assert run.beats("learner", learner)[-1].metrics["duplicates"] == 1
    lived = run.end_learning()
    for arguments in (["--verify"], ["--verify", "--from-start"]):
        verify = run.start("verify", "learner", *arguments)
        assert verify.wait() == 0
        said = verify.said().splitlines()
        expected = [f"updates {WARMUP + 2}", *(f"{name} {digest}" for name, digest in lived.digests.items())]
        assert [line for line in said if line in expected] == expected
        published = max(lived.adapters) if arguments == ["--verify"] else f"0-{max(lived.adapters)}"
        assert f"bit for bit the weights of version {published}" in said
    assert final_digests(run.store, run.config.run, lineage(run.config)) == lived.digests
    assert len(run.updates()) == WARMUP + 2


def test_a_learner_killed_after_a_dead_letter_writes_it_once(run: LiveRun) -> None:
    run.record(demonstrations=6, trajectories=PER_UPDATE - 1)
    run.publish_bytes("trajectories", b"garbage", b"no record at all")
    killed = run.learner(point="letter_written")
    run.until("the learner to die", lambda: killed.code is not None)
    assert killed.code == KILLED
    assert len(run.updates()) <= WARMUP, "nothing is journalled past it"
    run.learner()
    run.record(trajectories=PER_UPDATE + 1)
    run.until_learned(WARMUP + 2)
    assert [raw.key for raw in run.raw("trajectories.dlq")] == [b"garbage"]
    run.end_learning()


def test_more_bad_records_than_allowed_end_every_learner_until_the_limit_is_raised(
    new_run: Callable[..., LiveRun],
) -> None:
    run = new_run({"kafka": {"dead_letter_limit": 3, "dead_letter_window": 20}})
    run.record(demonstrations=6, trajectories=PER_UPDATE)
    for number in range(5):
        run.publish_bytes("trajectories", f"bad-{number}".encode(), b"no record at all")
    run.record(trajectories=PER_UPDATE)
    for _ in range(2):
        learner = run.learner()
        assert learner.wait() == 1
        assert "kafka.dead_letter_limit" in learner.said()
        assert len(run.raw("trajectories.dlq")) == 2, "the topic is not drained"
    run.start("learner", "learner", sets=["kafka.dead_letter_limit=100"])
    run.until_learned(WARMUP + 2)
    assert {raw.key for raw in run.raw("trajectories.dlq")} == {f"bad-{number}".encode() for number in range(5)}
    run.end_learning()


def recovered(run: LiveRun) -> int:
    """How many updates the newest whole checkpoint holds; 0 without one."""
    found = latest_checkpoint(run.store, run.config.run)
    return int(found[0]["u"]) if found else 0


def said_versions(role: Role) -> list[str]:
    return [line for line in role.said().splitlines() if "distrl.learner.publish: version" in line]
