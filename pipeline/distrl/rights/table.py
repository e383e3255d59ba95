"""The rights of all roles as one table for people. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from distrl.broker.topics import TOPICS
from distrl.rights.roles import ROLES, TRANSACTIONAL_IDS, GroupRight, ObjectRight, Role, TopicRight
from distrl.store.folders import FOLDERS

BEGIN, END = "<!-- rights: made by `python -m distrl.rights` -->\n", "<!-- end of rights -->\n"
HEADER = ("resource", *ROLES)
WORDS: Mapping[GroupRight, str] = {GroupRight.JOIN: "join", GroupRight.ASK: "see", GroupRight.DELETE: "delete"}


def rows() -> Iterator[tuple[str, ...]]:
    """A row for each resource; a cell for each role, empty where it may do nothing."""
    roles = ROLES.values()
    for topic in TOPICS:
        yield (f"topic {topic}", *(_topic(role, topic) for role in roles))
    yield (
        "group of the workers",
        *(_joined(WORDS[each] for each in GroupRight if each in role.group) for role in roles),
    )
    for name in TRANSACTIONAL_IDS:
        yield (f"transactions of {name}", *("open" if name in role.transactional_ids else "" for role in roles))
    for folder in FOLDERS.values():
        cells = (_joined(right.value for right in ObjectRight if role.may_object(right, folder)) for role in roles)
        yield (f"objects {folder.of('RUN')}/", *cells)


def markdown() -> str:
    lines = [HEADER, tuple("---" for _ in HEADER), *rows()]
    return "".join(f"| {' | '.join(each)} |\n" for each in lines)


def written_into(page: str) -> str:
    """`page` with the table between its two marks. Raises ValueError for one without them."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"the page has no {BEGIN.strip()} and {END.strip()}")
    return before + begin + markdown() + end + after


def _topic(role: Role, topic: str) -> str:
    return _joined(right.value for right in TopicRight if role.may(right, topic))


def _joined(words: Iterator[str]) -> str:
    return ", ".join(words)
