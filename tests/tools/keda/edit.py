"""A copy of KEDA's source that knows one trigger, Kafka: the libraries of seventy other services are most of its build.

Called with a folder, which then has that copy, and go.mod and go.sum that take it in place of the published source.
Ends with an error where KEDA's source is no longer as it is looked for here.
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

MODULE = "github.com/kedacore/keda/v2"
KEPT = {"scaler.go", "kafka_scaler.go"}
HERE = Path(__file__).parent


def main(folder: Path) -> None:
    fetched = ["go", "mod", "download", "-json", MODULE]  # go.sum has its hash
    published = json.loads(subprocess.run(fetched, cwd=HERE, capture_output=True, check=True).stdout)["Dir"]
    copy = folder / "keda"
    shutil.copytree(published, copy, ignore=shutil.ignore_patterns("*_test.go"))
    for path in [copy, *copy.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    scalers = copy / "pkg" / "scalers"
    left_out = [file for file in scalers.glob("*.go") if file.name not in KEPT]
    for file in left_out:
        file.unlink()
    builder = copy / "pkg" / "scaling" / "scalers_builder.go"
    builder.write_text(kafka_alone(builder.read_text()))
    go_mod = (HERE / "go.mod").read_text()
    (folder / "go.mod").write_text(f"{go_mod}\nreplace {MODULE} => {copy}\n")
    shutil.copyfile(HERE / "go.sum", folder / "go.sum")


def kafka_alone(text: str) -> str:
    """The source of scalers_builder.go without the `case` of any trigger but Kafka's."""
    before, begin, rest = text.partition("// TRIGGERS-START\n")
    switch, end, after = rest.partition("// TRIGGERS-END")
    head, *cases = re.split(r"(?m)^(?=\tcase |\tdefault:)", switch)
    kept = [case for case in cases if case.startswith(('\tcase "kafka":', "\tdefault:"))]
    if not begin or not end or len(kept) != 2:
        raise ValueError("scalers_builder.go has no switch over triggers with a case for Kafka")
    return before + begin + head + "".join(kept) + end + after


main(Path(sys.argv[1]))
