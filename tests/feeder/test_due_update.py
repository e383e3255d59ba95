from __future__ import annotations

from distrl.feeder.due_update import DueUpdate


def test_it_waits_from_when_enough_is_there_until_an_update_is_made() -> None:
    due = DueUpdate(4, 100.0)
    looks = [
        (3, -1, 200.0, 0.0),
        (4, -1, 260.0, 60.0),
        (9, -1, 300.0, 100.0),
        (5, 0, 310.0, 0.0),
        (6, 0, 320.0, 10.0),
        (2, 1, 330.0, 0.0),
        (2, 1, 900.0, 0.0),
        (4, 1, 910.0, 10.0),
    ]
    assert [due.waits_s(unlearned, update, now) for unlearned, update, now, _ in looks] == [each[3] for each in looks]
