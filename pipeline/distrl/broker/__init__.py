"""Kafka clients. The log is the source of truth; all other rooms read and write it through this one.

Vocabulary:
record        bytes under a key at a position (topic, partition, offset); wire/codec.py encodes and decodes them.
position      where a record is. "Up to offset n" always means the records [0, n).
acknowledged  every in-sync replica holds the record; before that, it does not exist.
end           one past the last record that a reader may see. A bounded read captures it once, when it starts.
in flight     a task that a worker was handed and whose trajectory is not acknowledged yet.
committed     the consumer group will not hand out the task again; always after its trajectory is acknowledged.
fenced        refused by the broker for ever, because a newer process has opened the same journal.
dead letter   an unreadable record, in the dead-letter topic with its bytes and the error.
"""
