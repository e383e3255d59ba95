"""`python -m distrl.rights`: writes what is made from the rights into the checkout that is the working directory."""

from __future__ import annotations

from pathlib import Path

from distrl.rights.documents import documents
from distrl.rights.table import written_into

SECURITY = Path("docs/security.md")


def main() -> None:
    for path, text in documents().items():
        Path(path).write_text(text, encoding="utf-8")
    SECURITY.write_text(written_into(SECURITY.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
