"""Which stacks of this user are up, in any folder, so that a second one is not started by accident.

    <stack.cache>/stacks/<hash of the folder>   the folder

A stale file does no harm: a stack counts only while a process of it lives.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from pathlib import Path
from shlex import quote

from distrl.config import Config
from distrl.errors import StackError
from distrl.stack import kafka
from distrl.stack.stack_record import Record


def remember(cache: Path, directory: Path) -> None:
    """Note that a stack is started in `directory` (absolute)."""
    file = cache / "stacks" / hashlib.sha256(str(directory).encode()).hexdigest()[:16]
    with suppress(OSError):  # only a help for people, not worth failing for
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{directory}\n")


def running(cache: Path) -> list[Path]:
    """The folders of the stacks that are up, ascending."""
    found = []
    for file in (cache / "stacks").glob("*"):
        with suppress(OSError):
            directory = Path(file.read_text().strip())
            if any(part.child is not None for part in Record(directory).parts().values()):
                found.append(directory)
    return sorted(found)


def refuse_second_by_accident(config: Config) -> None:
    """Raises StackError if a new stack would be made in the default folder while another one is up."""
    own = config.stack.directory.expanduser().absolute()
    if "directory" in config.stack.model_fields_set or own.exists():
        return
    others = [str(directory) for directory in running(config.stack.cache.expanduser().absolute()) if directory != own]
    if others:
        raise StackError(
            str(own),
            f"there is no stack here, and one is up in {', '.join(others)}",
            "to use that one, run the command where it was started, or with --set "
            f"{quote(f'stack.directory={others[0]}')}; "
            f"for a second one here, use --set {quote(f'stack.directory={own}')}",
        )


def refuse_broker_of_other(config: Config) -> None:
    """Raises StackError where nobody has named a broker, the stack of `config` has none that is up, and what answers at
    the address of the default is another stack of this user: its runs may have the same names."""
    own = config.stack.directory.expanduser().absolute()
    if "bootstrap" in config.kafka.model_fields_set or kafka.NAME in Record(own).parts():
        return
    for directory in running(config.stack.cache.expanduser().absolute()):
        part = Record(directory).parts().get(kafka.NAME)
        if part is not None and part.where == config.kafka.bootstrap:
            raise StackError(
                str(own),
                f"there is no broker here that is up, and the one at {part.where} is of the stack in {directory}",
                f"start this one (`distrl up --set {quote(f'stack.directory={own}')}`); or use that one, with --set "
                f"{quote(f'stack.directory={directory}')}",
            )
