"""Counts that are carried along, against the same counts made anew of all tasks."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from distrl.feeder.outstanding import Fed, Outstanding, Versions
from hypothesis import given
from hypothesis import strategies as st

names = st.sampled_from("abcdef")
partitions = st.integers(0, 3)
facts = st.one_of(
    st.tuples(st.just("add"), names, st.integers(0, 3)),
    st.tuples(st.just("sent"), names, partitions),
    st.tuples(st.just("read"), names, st.tuples(partitions, st.integers(0, 5))),
    st.tuples(st.just("end"), names, st.none()),
)


@dataclass
class Plain:
    """The tasks alone; each answer is counted of all of them."""

    tasks: dict[str, Fed] = field(default_factory=dict)

    def learn(self, kind: str, name: str, fact: object) -> None:
        fed = self.tasks.get(name)
        match kind, fact:
            case "add", int(version):
                self.tasks[name] = Fed(version)
            case "sent", int(partition) if fed is not None:
                fed.partition = partition
            case "read", (int(partition), int(offset)) if fed is not None and fed.offset is None:
                fed.partition, fed.offset = partition, offset
            case "end", _:
                self.tasks.pop(name, None)


@given(st.lists(facts, max_size=80), st.dictionaries(partitions, st.integers(0, 6)))
def test_what_is_counted_along_is_what_a_count_of_all_tasks_gives(
    story: list[tuple[str, str, object]], offsets: dict[int, int]
) -> None:
    ours, plain = Outstanding(), Plain()
    for kind, name, fact in story:
        if kind == "add" and name in plain.tasks:
            continue  # a task is fed once
        plain.learn(kind, name, fact)
        match kind, fact:
            case "read", (partition, offset):
                ours.read(name, partition, offset)
            case "end", _:
                ours.end(name)
            case "add", int(version):
                ours.add(name, version)
            case "sent", int(partition):
                ours.sent(name, partition)
        tasks = plain.tasks.values()
        assert len(ours) == len(tasks)
        assert ours.loads == Counter(fed.partition for fed in tasks if fed.partition is not None)
        assert ours.versions.oldest == min((fed.version for fed in tasks), default=None)
        assert ours.unread == sum(fed.offset is None for fed in tasks)
        assert list(ours.ended_before(offsets)) == [
            task_id
            for task_id, fed in plain.tasks.items()
            if fed.offset is not None and fed.partition is not None and fed.offset < offsets.get(fed.partition, 0)
        ]


class Watched(dict[str, Fed]):
    """Tasks that count how often somebody walks through them."""

    walks = 0

    def values(self):  # type: ignore[no-untyped-def]
        self.walks += 1
        return super().values()

    def items(self):  # type: ignore[no-untyped-def]
        self.walks += 1
        return super().items()

    def __iter__(self):  # type: ignore[no-untyped-def]
        self.walks += 1
        return super().__iter__()


def test_nobody_walks_through_the_outstanding_tasks_for_a_trajectory() -> None:
    tasks = Watched()
    ours = Outstanding()
    ours._tasks = tasks
    for number in range(30_000):
        ours.add(f"t-{number}", number // 10_000)
        ours.sent(f"t-{number}", number % 157)
        ours.read(f"t-{number}", number % 157, number // 157)
    for number in range(10_000):
        ours.end(f"t-{number}")
        assert ours.loads[number % 157] > 0
        assert len(ours) == 29_999 - number
    assert ours.versions.oldest == 1
    assert tasks.walks == 0
    assert len(list(ours.ended_before({0: 1_000}))) > 0
    assert tasks.walks == 1


def test_the_oldest_version_is_the_least_that_is_left() -> None:
    versions = Versions()
    assert versions.oldest is None
    for number in (3, 1, 1, 2):
        versions.add(number)
    versions.remove(1)
    assert versions.oldest == 1
    versions.remove(1)
    assert versions.oldest == 2
