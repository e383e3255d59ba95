"""Who an agent without weights is."""

from __future__ import annotations

from distrl.appagent.identity import description, named
from distrl.config import AppAgentSettings

OWN = AppAgentSettings(model="m")


def test_what_changes_its_actions_makes_another_agent_and_what_does_not_leaves_it() -> None:
    changes = (
        *({"model": "n"}, {"mode": "grid"}, {"most_elements": 7}, {"dump_timeout_s": OWN.dump_timeout_s / 2}),
        *({"temperature": 0.5}, {"temperature": None}),
    )
    others = [OWN.model_copy(update=changed) for changed in changes]
    assert len({description(each, {}) for each in [OWN, *others]}) == 1 + len(changes)
    elsewhere = OWN.model_copy(update={"endpoint": "http://localhost/v1", "timeout_s": 3.0})
    assert description(elsewhere, {}) == description(OWN, {})


def test_the_default_wait_and_temperature_are_not_named_so_that_agents_of_earlier_runs_are_known() -> None:
    assert b"dump_timeout_s" not in description(OWN, {})
    assert b"temperature" not in description(OWN, {})
    assert named(description(OWN.model_copy(update={"dump_timeout_s": 1.0}), {})) == "AppAgent, m, elements, no notes"
