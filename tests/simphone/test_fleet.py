from __future__ import annotations

from typing import Any

import pytest
from simphone.fleet import FleetSettings, SettingError


@pytest.mark.parametrize(
    ("setting", "value", "allowed"),
    [
        ("count", 0, "1 or more"),
        ("base_port", 5555, "5586 to 65535"),
        ("base_port", 65536, "5586 to 65535"),
        ("popup_probability", 1.1, "0 to 1"),
        ("popup_probability", float("nan"), "0 to 1"),
        ("generation", 5, "0 to 4"),
        ("latency_median_ms", -1.0, "0 or more"),
        ("latency_sigma", 3.1, "0 to 3"),
        ("latency_max_ms", float("inf"), "0 or more"),
    ],
)
def test_a_value_that_cannot_be_is_refused_with_what_is_allowed(setting: str, value: Any, allowed: str) -> None:
    with pytest.raises(SettingError) as refused:
        FleetSettings(**{setting: value})
    assert str(refused.value) == f"{setting}: {value} is not allowed; allowed: {allowed}"


def test_more_phones_than_ports_are_refused() -> None:
    assert FleetSettings(count=6, base_port=65530)
    with pytest.raises(SettingError, match=r"^base_port: 7 phones .* above 65535; choose at most 65529"):
        FleetSettings(count=7, base_port=65530)
