"""Bytes <-> types: every record as Avro in single-object encoding, so that no registry is needed."""
