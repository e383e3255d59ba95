"""When this machine first saw the lease on a phone as it is now, so that a later query can tell that it has run out.

Nothing on a phone says when its lease was renewed, and no clock but this machine's counts (phone_lease.py). So the
first query writes what it saw into a file beside the phone's lock, and later ones compare.
"""

from __future__ import annotations

import secrets
from contextlib import suppress

from distrl.birth import boot_id
from distrl.device.leases import Leases, key_of

SUFFIX = ".seen"


def unchanged_s(leases: Leases, serial: str, name: str, now: float) -> float:
    """For how many seconds the phone's lease has had this name, by the queries so far: 0 at the first one, and if its
    file cannot be written. now: seconds since the boot."""
    file = leases.file(key_of(serial), SUFFIX)
    with suppress(OSError, ValueError):
        seen, boot, since = file.read_text("utf-8").splitlines()
        if (seen, boot) == (name, boot_id()):
            return now - float(since)
    made = file.with_name(f"{file.name}-{secrets.token_hex(8)}")
    with suppress(OSError):
        try:
            made.write_text(f"{name}\n{boot_id()}\n{now}\n", "utf-8")
            made.replace(file)  # never through a link that another user put there
        finally:
            made.unlink(missing_ok=True)
    return 0.0
