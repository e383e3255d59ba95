"""python -m k8s.node [COMMAND ...]: starts the node, runs a shell or the command in its network, and ends the node."""

from __future__ import annotations

import os
import subprocess
import sys

from k8s.node.needs import NodeError
from k8s.node.node import running


def main(command: list[str]) -> int:
    try:
        with running(lambda text: print(text, file=sys.stderr, flush=True)) as node:
            return subprocess.run(node.command(command or [os.environ.get("SHELL", "sh")]), check=False).returncode
    except NodeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


sys.exit(main(sys.argv[1:]))
