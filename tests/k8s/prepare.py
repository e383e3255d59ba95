"""python -m k8s.prepare: builds what the tests' own node needs once, as the tests do where nobody has.

Worth doing while other tests run, which leave processors idle.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import gotools
from fetching import Say

from k8s import image, keda
from k8s.node import needs
from k8s.node.images import Store
from k8s.node.node import MODULE


def prepare(say: Say, *, with_keda: bool) -> None:
    """Raises NodeError, ToolError or CallError."""
    needs.check()
    modules = [MODULE, "helm", *([keda.MODULE] if with_keda else [])]
    with ThreadPoolExecutor(2) as pool:  # one computes, the other mostly fetches and writes
        programs = pool.submit(lambda: [gotools.tool(module, say=say) for module in modules])
        image.build(Store.of_user(), say)
        programs.result()


if __name__ == "__main__":
    try:
        prepare(lambda text: print(text, flush=True), with_keda=True)
    except needs.NodeError as error:
        sys.exit(f"error: {error}")
