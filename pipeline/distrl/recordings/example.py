"""tf.train.Example by protobuf, without TensorFlow: named features, each a list of bytes, floats or integers.

https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/example/feature.proto and example.proto.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeVar

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

T = TypeVar("T")
_LISTS: Final = {"bytes_list": ("BytesList", "TYPE_BYTES"), "float_list": ("FloatList", "TYPE_FLOAT"),
                 "int64_list": ("Int64List", "TYPE_INT64")}  # fmt: skip
"""Of a Feature, in the order of their numbers from 1: name of the list's type, type of its values."""


def _example_type() -> Any:
    """The message class, in a pool of its own: a program that has TensorFlow's does not meet it twice."""
    kind = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="example.proto", package="tensorflow", syntax="proto3")

    def message(name: str, of: Any = file.message_type) -> Any:
        of.add(name=name)
        return of[-1]

    def field(of: Any, name: str, number: int, type_: str, label: str = "LABEL_OPTIONAL", **more: Any) -> None:
        of.field.add(name=name, number=number, type=getattr(kind, type_), label=getattr(kind, label), **more)

    feature = message("Feature")
    feature.oneof_decl.add(name="kind")
    for number, (name, (type_name, value)) in enumerate(_LISTS.items(), 1):
        field(message(type_name), "value", 1, value, "LABEL_REPEATED")
        field(feature, name, number, "TYPE_MESSAGE", type_name=f".tensorflow.{type_name}", oneof_index=0)
    features = message("Features")
    entry = message("FeatureEntry", features.nested_type)
    entry.options.map_entry = True
    field(entry, "key", 1, "TYPE_STRING")
    field(entry, "value", 2, "TYPE_MESSAGE", type_name=".tensorflow.Feature")
    field(features, "feature", 1, "TYPE_MESSAGE", "LABEL_REPEATED", type_name=".tensorflow.Features.FeatureEntry")
    field(message("Example"), "features", 1, "TYPE_MESSAGE", type_name=".tensorflow.Features")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tensorflow.Example"))


Example: Final = _example_type()
"""tf.train.Example: `Example.FromString(data).features.feature["goal"].bytes_list.value`."""


class Features:
    """The features of one Example. Each method raises ValueError, which names the feature."""

    def __init__(self, data: bytes) -> None:
        try:
            self._features = Example.FromString(data).features.feature
        except DecodeError as error:
            raise ValueError(f"it is no tf.train.Example ({error})") from None

    def __contains__(self, name: str) -> bool:
        return name in self._features

    def byte_strings(self, name: str) -> Sequence[bytes]:
        values: Sequence[bytes] = self._values(name, "bytes_list")
        return values

    def floats(self, name: str) -> Sequence[float]:
        """Empty where the feature has no values, as a Feature does not say then of which kind they are."""
        values: Sequence[float] = self._values(name, "float_list")
        return values

    def integers(self, name: str) -> Sequence[int]:
        values: Sequence[int] = self._values(name, "int64_list")
        return values

    def texts(self, name: str) -> list[str]:
        try:
            return [value.decode() for value in self.byte_strings(name)]
        except UnicodeDecodeError:
            raise ValueError(f"`{name}` is not UTF-8") from None

    def text(self, name: str) -> str:
        return _only(self.texts(name), name)

    def integer(self, name: str) -> int:
        return _only(self.integers(name), name)

    def _values(self, name: str, kind: str) -> Any:
        if name not in self._features:
            raise ValueError(f"it has no feature `{name}`")
        feature = self._features[name]
        found = feature.WhichOneof("kind") or kind
        if found != kind:
            raise ValueError(f"`{name}` is a {found}, not a {kind}")
        return getattr(feature, kind).value


def _only(values: Sequence[T], name: str) -> T:
    if len(values) != 1:
        raise ValueError(f"`{name}` has {len(values)} values, not 1")
    return values[0]
