"""The chart's README: its values and what they mean, from the comments in values.yaml."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

HEAD = """# The chart distrl

DistRL on Kafka on a cluster: [docs/kubernetes.md](../../docs/kubernetes.md) leads from an empty one to a training run.

```
helm install demo charts/distrl --set demo.enabled=true --set image.repository=… --set image.tag=…
```

Values, made from the comments in [values.yaml](values.yaml) by `make chart`. [values.schema.json](values.schema.json)
refuses every other one, and in `config` each setting that the program does not know.

| value | default | |
| --- | --- | --- |
"""
KEY = re.compile(r"^(?P<indent> *)(?P<name>[\w-]+):(?: (?P<value>.*))?$")


@dataclass(frozen=True, slots=True)
class Value:
    path: str
    default: str
    """As written, on one line; empty for a mapping, whose keys follow."""
    means: str


def readme(values: str) -> str:
    """values: the text of values.yaml."""
    return HEAD + "".join(f"| `{each.path}` | {_code(each.default)} | {each.means} |\n" for each in described(values))


def described(values: str) -> Iterator[Value]:
    """The values that have a comment of their own, or no further keys, in order."""
    path: list[tuple[int, str]] = []
    comment: list[str] = []
    item = math.inf  # how far the items of a list are indented, whose keys are no values of their own
    for line in values.splitlines():
        indent = len(line) - len(line.lstrip())
        if line.lstrip().startswith("- "):
            if item == math.inf:
                yield Value(".".join(name for _, name in path), "", "a list")
            item = indent
        elif line.strip() and indent > item:
            continue
        elif line.lstrip().startswith("#"):
            comment.append(line.strip().removeprefix("#").strip())
        elif found := KEY.match(line):
            item = math.inf
            path = [each for each in path if each[0] < indent]
            path.append((indent, found["name"]))
            default = found["value"] or ""
            if comment or default:
                yield Value(".".join(name for _, name in path), default, " ".join(comment).replace("|", "\\|"))
            comment = []
        else:
            comment = []


def _code(default: str) -> str:
    return f"`{default}`" if default else ""
