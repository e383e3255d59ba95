"""`python -m simphone`: simulated phones for any adb user."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from simphone.fleet import PROFILE_NAMES, FleetSettings, SettingError
from simphone.serve import SimulatedPhone, announce, run_phones

DEFAULTS = FleetSettings()
OFTEN = {"profiles": "profile", "generations": "generation"}
"""Setting -> its option, which is given once for each value."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Exit status: 0 ended by Ctrl-C or SIGTERM, 1 a port that cannot be opened, 2 a wrong command line."""
    parser = _parser()
    given = vars(parser.parse_args(arguments))
    for name in OFTEN:
        given[name] = tuple(given.get(name, ()))
    try:
        settings = FleetSettings(**given)
    except SettingError as error:
        parser.error(_explained(error))
    try:
        run_phones(settings, _introduce)
    except SettingError as error:
        sys.exit(f"{parser.prog}: error: {_explained(error)}")


def _explained(error: SettingError) -> str:
    option = f"--{OFTEN.get(error.setting, error.setting.replace('_', '-'))}"
    return f"argument {option}: {error.what}; {error.hint}"


def _introduce(fleet: Sequence[SimulatedPhone]) -> None:
    for phone in fleet:
        print(f"{phone.serial}: adb connect {phone.address}")
    announce(fleet)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m simphone",
        allow_abbrev=False,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        description="Serve simulated Android phones on loopback to any adb user, until Ctrl-C or SIGTERM. Prints how "
        "to connect to each, then a line that begins with 'ready'.",
    )
    parser.add_argument("--count", type=int, metavar="N", default=DEFAULTS.count, help="how many phones")
    parser.add_argument(
        "--base-port",
        type=int,
        metavar="PORT",
        default=DEFAULTS.base_port,
        help="of the first phone; each further one has the next",
    )
    parser.add_argument(
        "--seed",
        type=int,
        metavar="N",
        default=DEFAULTS.seed,
        help="of all chance: the same seed and the same actions give the same screens",
    )
    parser.add_argument(
        "--generation",
        dest="generations",
        action="append",
        type=int,
        metavar="N",
        default=argparse.SUPPRESS,
        help="of the apps' look: 0 as first drawn, 1 recoloured, 2 moved too, 3 renamed too, 4 outlined too; given "
        "often, generations are assigned in turn (default: 0)",
    )
    parser.add_argument(
        "--profile",
        dest="profiles",
        action="append",
        metavar="KIND",
        default=argparse.SUPPRESS,
        help=f"a kind of phone, one of {', '.join(PROFILE_NAMES)}; given often, the kinds are assigned in turn "
        "(default: plain)",
    )
    parser.add_argument(
        "--popup-probability",
        type=float,
        metavar="P",
        default=DEFAULTS.popup_probability,
        help="chance of a pop-up after an action",
    )
    parser.add_argument(
        "--keyboard-service",
        action="store_true",
        default=argparse.SUPPRESS,
        help="give the phones ADBKeyBoard, which types any Unicode",
    )
    parser.add_argument(
        "--latency-median-ms",
        type=float,
        metavar="MS",
        default=DEFAULTS.latency_median_ms,
        help="of an action; latencies are log-normal",
    )
    parser.add_argument(
        "--latency-sigma",
        type=float,
        metavar="SIGMA",
        default=DEFAULTS.latency_sigma,
        help="of the latency's logarithm; larger is heavier-tailed",
    )
    parser.add_argument(
        "--latency-max-ms", type=float, metavar="MS", default=DEFAULTS.latency_max_ms, help="no action takes longer"
    )
    return parser


if __name__ == "__main__":
    main()
