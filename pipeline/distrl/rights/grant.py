"""Gives a user of a broker the rights of a role, with the admin client."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the package re-exports them without saying so
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from distrl.broker.connect import admin, check, explain, with_retry
from distrl.config import Config
from distrl.errors import BrokerError
from distrl.rights.kafka import Resource, acls, checked_principal
from distrl.rights.roles import Role

RESOURCES = {
    Resource.TOPIC: ResourceType.TOPIC,
    Resource.GROUP: ResourceType.GROUP,
    Resource.TRANSACTIONAL_ID: ResourceType.TRANSACTIONAL_ID,
}
OPERATIONS = {
    "Read": AclOperation.READ,
    "Write": AclOperation.WRITE,
    "Create": AclOperation.CREATE,
    "Delete": AclOperation.DELETE,
    "Alter": AclOperation.ALTER,
    "Describe": AclOperation.DESCRIBE,
    "AlterConfigs": AclOperation.ALTER_CONFIGS,
}


def grant(config: Config, role: Role, principal: str) -> int:
    """Give `principal` the rights of `role` in the run of `config`; returns how many. Safe to repeat.

    It takes none away. Raises ConfigError as `checked_principal`, and BrokerError where the user of `config` may not,
    or the broker has no authorizer.
    """
    user = checked_principal(principal)
    check(config)
    client, kafka = admin(config.kafka), config.kafka
    wanted = [
        AclBinding(
            RESOURCES[each.resource],
            each.full_name(config.run),
            ResourcePatternType.LITERAL,
            user,
            "*",
            OPERATIONS[operation],
            AclPermissionType.ALLOW,
        )
        for each in acls(role, config.worker.group)
        for operation in each.operations
    ]

    def ask() -> None:
        for done in client.create_acls(wanted, request_timeout=kafka.connect_timeout_s).values():
            done.result()

    try:
        with_retry(kafka, ask)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.SECURITY_DISABLED:
            raise BrokerError(
                f"the broker at {kafka.bootstrap}",
                "has no authorizer, so everybody may do everything",
                "set authorizer.class.name at the broker, as infra/kafka/secured.properties does",
            ) from None
        raise explain(error.args[0], f"rights of {user}", "grant rights", kafka) from None
    return len(wanted)
