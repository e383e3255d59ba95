"""`ls`, `cp`, `rm` and similar commands on the phone's files. No globbing: `*` is not expanded."""

from __future__ import annotations

import asyncio
import hashlib
import posixpath
import stat
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Final

from simphone.commands.base import FAILED, MOST_OUTPUT, OK, CommandError, CommandResult, Invocation, complained, said
from simphone.files import EXISTS, NO_DIRECTORY, FileError, FileNode, plain
from simphone.handset import Handset

SECONDS: Final = "%Y-%m-%d %H:%M:%S"
LONGEST_FORM: Final = 256


def options(call: Invocation, allowed: str, least: int = 1) -> tuple[frozenset[str], tuple[str, ...]]:
    """The option letters and the paths. Raises RefusedError for unknown options and for too few paths."""
    letters, paths, ended = set[str](), list[str](), False
    for word in call.args:
        if word == "--" and not ended:
            ended = True
        elif word.startswith("-") and word != "-" and not ended:
            letters |= set(word[1:])
        else:
            paths.append(word)
    if unknown := letters - set(allowed):
        raise CommandError(f"Unknown option '{sorted(unknown)[0]}'")
    if len(paths) < least:
        raise CommandError(f"Needs {least} argument{'s' if least > 1 else ''}")
    return frozenset(letters), tuple(paths)


def each(name: str, call: Invocation, paths: Iterable[str], do: Callable[[str, str], bytes | None]) -> CommandResult:
    """Apply it to every path, as given and normalised; a failure is printed and does not stop the others."""
    out, err = bytearray(), ""
    for path in paths:
        try:
            out += do(path, plain(path, call.directory)) or b""
            if len(out) > MOST_OUTPUT:
                raise CommandError(f"more than {MOST_OUTPUT} bytes to print at once")
        except FileError as error:
            err += f"{name}: {path}: {error}\n"
    done = complained(err, FAILED if err else OK)
    return CommandResult(bytes(out), done.stderr, done.code)


async def ls(phone: Handset, call: Invocation) -> CommandResult:
    letters, paths = options(call, "1adhlAR", least=0)
    named = paths or (".",)

    def one(given: str, path: str) -> bytes:
        entry = phone.files.at(path)
        if not entry.is_directory or "d" in letters:
            return _lines([(given, entry)], letters)
        blocks = [_block(given, path, heading=len(named) > 1 or "R" in letters)]
        if "R" in letters:
            blocks += [
                _block(posixpath.join(given, inner[len(path) :].lstrip("/")), inner, heading=True)
                for inner in phone.files.directories_below(path)
            ]
        return b"\n".join(blocks)

    def _block(given: str, path: str, heading: bool) -> bytes:
        held = [(name, entry) for name, entry in phone.files.held(path) if letters & {"a", "A"} or name[0] != "."]
        if "a" in letters:
            held = [(".", phone.files.at(path)), ("..", phone.files.at(posixpath.dirname(path))), *held]
        total = f"total {sum(_blocks(entry) for _, entry in held)}\n".encode() if "l" in letters else b""
        return (_bytes(f"{given}:\n") if heading else b"") + total + _lines(held, letters)

    return each("ls", call, named, one)


def _lines(held: Sequence[tuple[str, FileNode]], letters: frozenset[str]) -> bytes:
    if "l" not in letters:
        return b"".join(_bytes(f"{name}\n") for name, _ in held)
    return b"".join(
        _bytes(
            f"{stat.filemode(entry.mode)} {2 if entry.is_directory else 1} shell shell "
            f"{_size(entry)} {_time(entry)[:16]} {name}\n"
        )
        for name, entry in held
    )


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _size(entry: FileNode) -> int:
    return 4096 if entry.is_directory else len(entry.data)


def _blocks(entry: FileNode) -> int:
    return -(-_size(entry) // 4096) * 4


def _time(entry: FileNode) -> str:
    return datetime.fromtimestamp(entry.mtime, UTC).strftime(SECONDS)


async def rm(phone: Handset, call: Invocation) -> CommandResult:
    letters, paths = options(call, "fRr", least=0 if "-f" in call.args else 1)

    def one(_: str, path: str) -> None:
        if "f" in letters and phone.files.find(path) is None:
            return
        phone.files.remove(path, recursive=bool(letters & {"r", "R"}))

    return each("rm", call, paths, one)


async def mkdir(phone: Handset, call: Invocation) -> CommandResult:
    letters, paths = options(call, "p")
    return each("mkdir", call, paths, lambda _, path: phone.files.make_directory(path, "p" in letters))


async def rmdir(phone: Handset, call: Invocation) -> CommandResult:
    _, paths = options(call, "")

    def one(_: str, path: str) -> None:
        if phone.files.held(path):
            raise FileError("Directory not empty")
        phone.files.remove(path, recursive=True)

    return each("rmdir", call, paths, one)


async def touch(phone: Handset, call: Invocation) -> CommandResult:
    _, paths = options(call, "")

    def one(_: str, path: str) -> None:
        found = phone.files.find(path)
        if found is None or not found.is_directory:
            phone.files.write(path, found.data if found else b"")

    return each("touch", call, paths, one)


async def copy(name: str, phone: Handset, call: Invocation) -> CommandResult:
    """`cp` and `mv` of files, into a directory or to a name."""
    _, (*sources, target) = options(call, "fp", least=2)
    into = plain(target, call.directory)
    found = phone.files.find(into)
    if len(sources) > 1 and (found is None or not found.is_directory):
        raise CommandError(f"'{target}' is not a directory")

    def one(_: str, path: str) -> None:
        to = posixpath.join(into, posixpath.basename(path)) if found and found.is_directory else into
        if name == "mv":
            phone.files.move(path, to)
        elif to == path:
            raise FileError(EXISTS)
        else:
            phone.files.write(to, phone.files.read(path))

    return each(name, call, sources, one)


async def stat_of(phone: Handset, call: Invocation) -> CommandResult:
    form, args = "", call.args
    if args[:1] == ("-c",):
        form, args = "".join(args[1:2]), args[2:]
    _, paths = options(Invocation(args, call.directory), "")
    if len(form) > LONGEST_FORM:
        raise CommandError(f"a form of {len(form)} characters; at most {LONGEST_FORM}")
    return each("stat", call, paths, lambda given, path: _bytes(_described(given, phone.files.at(path), form)))


def _described(given: str, entry: FileNode, form: str) -> str:
    kind = "directory" if entry.is_directory else "regular file"
    octal = f"{stat.S_IMODE(entry.mode):o}"
    if form:
        facts = {
            "%n": given,
            "%s": str(_size(entry)),
            "%F": kind,
            "%a": octal,
            "%Y": str(entry.mtime),
            "%y": _time(entry),
            "%A": stat.filemode(entry.mode),
        }
        for sign, fact in facts.items():
            form = form.replace(sign, fact)
        return f"{form}\n"
    return (
        f"  File: {given}\n  Size: {_size(entry)}\t Blocks: {_blocks(entry) * 2}\t IO Blocks: 512\t{kind}\n"
        f"Access: ({octal:0>4}/{stat.filemode(entry.mode)})\tUid: ( 2000/   shell)\tGid: ( 2000/   shell)\n"
        f"Modify: {_time(entry)}.000000000 +0000\n"
    )


async def digest(algorithm: str, phone: Handset, call: Invocation) -> CommandResult:
    """Each file is read once, even if named repeatedly, and in another thread, as this one serves other phones too."""
    _, paths = options(call, "b")
    found: dict[str, str | FileError] = {}

    def made(data: bytes) -> str:
        return hashlib.new(algorithm, data, usedforsecurity=False).hexdigest()

    for given in dict.fromkeys(paths):
        try:
            found[given] = await asyncio.to_thread(made, phone.files.read(plain(given, call.directory)))
        except FileError as error:
            found[given] = error

    def one(given: str, _: str) -> bytes:
        said = found[given]
        if isinstance(said, FileError):
            raise said
        return _bytes(f"{said}\n" if call.args[:1] == ("-b",) else f"{said}  {given}\n")

    return each(f"{algorithm}sum", call, paths, one)


async def test(phone: Handset, call: Invocation) -> CommandResult:
    match call.args:
        case ["-e" | "-f" | "-d" | "-s" as wanted, path]:
            try:
                entry = phone.files.find(plain(path, call.directory))
            except FileError:
                entry = None
            met = (
                entry is not None
                and {
                    "-e": True,
                    "-f": not entry.is_directory,
                    "-d": entry.is_directory,
                    "-s": _size(entry) > 0,
                }[wanted]
            )
            return CommandResult(code=OK if met else FAILED)
    raise CommandError("usage: test -e|-f|-d|-s PATH")


async def pwd(phone: Handset, call: Invocation) -> CommandResult:
    return said(f"{call.directory}\n")


async def cd(phone: Handset, call: Invocation) -> CommandResult:
    if len(call.args) > 1:
        raise CommandError("usage: cd [DIRECTORY]")
    given = call.args[0] if call.args else "/"
    try:
        path = plain(given, call.directory)
        if not phone.files.at(path).is_directory:
            raise FileError(NO_DIRECTORY)
    except FileError as error:
        raise CommandError(f"{given}: {error}") from error
    return CommandResult(directory=path)


COMMANDS = {
    "cd": cd,
    "cp": partial(copy, "cp"),
    "ls": ls,
    "md5sum": partial(digest, "md5"),
    "mkdir": mkdir,
    "mv": partial(copy, "mv"),
    "pwd": pwd,
    "rm": rm,
    "rmdir": rmdir,
    "sha256sum": partial(digest, "sha256"),
    "stat": stat_of,
    "test": test,
    "touch": touch,
}
