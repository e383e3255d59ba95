"""The rights of a role as a policy of an S3 endpoint, in the form of AWS IAM. Pure."""

from __future__ import annotations

from typing import Any

from distrl.rights.roles import ObjectRight, Role
from distrl.store.folders import FOLDERS

ACTIONS = {
    ObjectRight.GET: ("s3:GetObject",),
    # A part of an upload that failed is deleted, or it stays and is paid for.
    ObjectRight.PUT: ("s3:PutObject", "s3:AbortMultipartUpload"),
    ObjectRight.DELETE: ("s3:DeleteObject",),
}
DESTROY = ("s3:DeleteObjectVersion",)
"""Denied, so that what a role has deleted can be brought back. MinIO lets those do it who may delete, if nothing denies
it; AWS lets nobody who was not allowed to."""


def policy(role: Role, bucket: str, run: str) -> dict[str, Any] | None:
    """What `role` may do with the objects of `run` in `bucket`; None for a role that has no right there."""
    granted = {
        right: [f"arn:aws:s3:::{bucket}/{each.of(run)}/*" for each in FOLDERS.values() if role.may_object(right, each)]
        for right in ObjectRight
    }
    if not any(granted.values()):
        return None
    names = _statement("List", ("s3:ListBucket", "s3:GetBucketLocation"), [f"arn:aws:s3:::{bucket}"])
    objects = [_statement(right.capitalize(), ACTIONS[right], where) for right, where in granted.items() if where]
    deleted = granted[ObjectRight.DELETE]
    denied = [_statement("Destroy", DESTROY, deleted, "Deny")] if deleted else []
    return {"Version": "2012-10-17", "Statement": [names, *objects, *denied]}


def _statement(name: str, actions: tuple[str, ...], resources: list[str], effect: str = "Allow") -> dict[str, Any]:
    return {"Sid": name, "Effect": effect, "Action": list(actions), "Resource": resources}
