"""Folders with reports, written by what `distrl ablate` and `distrl experiment` write them with."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from distrl.experiment.report import to_dict
from distrl.offline.ablation.report import to_json
from experiment.test_learned_report import planted
from offline.ablation.test_report import WHOLE

from view.world import HOSTILE

ABLATION, EXPERIMENT, BROKEN, HALF = "ablations/some-arms", "experiments/planted", "ablations/broken", "ablations/half"


def write_reports(folder: Path) -> list[Path]:
    """An ablation, an experiment, a report that is none, and one of which the end is missing. Returns their folders."""
    reports = {
        ABLATION: to_json(WHOLE),
        EXPERIMENT: json.dumps(to_dict(planted("learning-curves", (0.4, 0.7, 0.4)))),
        BROKEN: '{"secret": "of another program"}',
        HALF: to_json(WHOLE)[:700],
    }
    for name, text in reports.items():
        (folder / name).mkdir(parents=True)
        (folder / name / "report.json").write_text(text)
    return [folder / "ablations", folder / "experiments"]


def hostile_ablation() -> str:
    """A report whose texts are hostile wherever they are not numbers or hashes."""
    found = json.loads(to_json(replace(WHOLE, unplayed=HOSTILE)))
    found["run"] = HOSTILE
    found["arms"][1]["name"] = HOSTILE
    found["arms"][1]["set"] = {HOSTILE: HOSTILE}
    found["arms"][1]["curves"] = {HOSTILE: [1.0, None, 2.0], **found["arms"][1]["curves"]}
    found["settings"] = {HOSTILE: {"value": HOSTILE}}
    return json.dumps(found)
