"""The settings of a demo's broker: those of the local stack, which the chart's template fills in."""

from __future__ import annotations

from distrl.stack.infra_files import declared


def kafka_properties() -> str:
    return declared("kafka/server.properties")
