"""Features kept for the next start are the same bits, or they are computed again."""

from __future__ import annotations

import hashlib
import sys
from dataclasses import dataclass
from pathlib import Path

import brought
import byte_policy
import pytest
import torch
from distrl.config import PolicySettings, ServerSettings
from distrl.errors import ConfigError
from distrl.plugins import files_sha256
from distrl.policy import feature_folder
from distrl.policy.feature_folder import AHEAD, FeatureFolder, maker_of
from distrl.policy.feature_store import FeatureFileError, FeatureStore
from distrl.policy.features import Features
from distrl.policy.protocol import ImageFeatures, TrajectoryStep
from distrl.policy.registry import policy_of
from distrl.types import ObjectRef, ScreenSize
from hypothesis import given
from hypothesis import strategies as st

from tests.factories import step

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def name_of(number: int) -> str:
    return hashlib.sha256(b"%d" % number).hexdigest()


def features(seed: int, dtype: torch.dtype = torch.float32, shape: tuple[int, ...] = (3, 4)) -> ImageFeatures:
    tokens = torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)
    return ImageFeatures(tokens, ScreenSize(10 + seed, 20))


def same(one: ImageFeatures | None, two: ImageFeatures) -> bool:
    return (
        one is not None
        and one.size == two.size
        and one.tokens.dtype == two.tokens.dtype
        and torch.equal(one.tokens, two.tokens)
    )


MAKER = "0" * 16


def folder_of(path: Path, run: str = "run", maker: str = MAKER) -> FeatureFolder:
    return FeatureFolder(path, run, maker)


def files(path: Path) -> list[Path]:
    return sorted(file for file in path.rglob("*") if file.is_file())


@given(
    dtype=st.sampled_from(DTYPES),
    shape=st.lists(st.integers(1, 5), min_size=1, max_size=3).map(tuple),
    seed=st.integers(0, 99),
)
def test_the_next_start_reads_the_same_bits(
    tmp_path_factory: pytest.TempPathFactory, dtype: torch.dtype, shape: tuple[int, ...], seed: int
) -> None:
    path, made = tmp_path_factory.mktemp("kept"), features(seed, dtype, shape)
    folder_of(path).put(name_of(1), made)
    again = folder_of(path)
    assert name_of(1) in again
    assert same(again.get(name_of(1)), made)
    assert again.get(name_of(2)) is None


def test_a_slice_of_a_larger_tensor_is_kept_as_it_is(tmp_path: Path) -> None:
    whole = features(0, shape=(6, 8))
    part = ImageFeatures(whole.tokens[:, 2:4], whole.size)
    folder_of(tmp_path).put(name_of(1), part)
    assert same(folder_of(tmp_path).get(name_of(1)), part)


@pytest.mark.parametrize("left", ["nothing", "half", "one bit", "another name's"])
def test_a_file_that_is_torn_or_spoilt_is_dropped(tmp_path: Path, left: str, caplog: pytest.LogCaptureFixture) -> None:
    folder_of(tmp_path).put(name_of(1), features(1))
    (file,) = files(tmp_path)
    content = file.read_bytes()
    spoilt = {
        "nothing": b"",
        "half": content[: len(content) // 2],
        "one bit": content[:-1] + bytes([content[-1] ^ 1]),
        "another name's": hashlib.sha256(b"no tensors").digest() + b"no tensors",
    }[left]
    file.write_bytes(spoilt)
    folder = folder_of(tmp_path)
    assert folder.get(name_of(1)) is None
    assert "computed again" in caplog.text
    assert (files(tmp_path), name_of(1) in folder) == ([], False)


def test_what_is_expected_is_read_sooner_and_changes_nothing(tmp_path: Path) -> None:
    first = folder_of(tmp_path)
    for number in range(2 * AHEAD):
        first.put(name_of(number), features(number))
    again = folder_of(tmp_path)
    again.expect(name_of(number) for number in range(3 * AHEAD))
    (tmp_path / "run" / MAKER / name_of(5)[:2] / name_of(5)).unlink()
    for number in (7, *range(3 * AHEAD), 2):
        found = again.get(name_of(number))
        assert same(found, features(number)) if number < 2 * AHEAD and number != 5 else found is None


def test_what_the_buffer_no_longer_holds_is_removed_and_so_is_what_was_there_before_the_start(tmp_path: Path) -> None:
    first = folder_of(tmp_path)
    for number in range(3):
        first.put(name_of(number), features(number))
    again = folder_of(tmp_path)
    again.put(name_of(3), features(3))
    again.keep({name_of(1), name_of(3), name_of(9)})
    assert sorted(file.name for file in files(tmp_path)) == sorted([name_of(1), name_of(3)])


def test_ranks_that_share_it_remove_what_is_gone_already(tmp_path: Path) -> None:
    folder_of(tmp_path).put(name_of(1), features(1))
    one, two = folder_of(tmp_path), folder_of(tmp_path)
    one.keep(set())
    two.keep(set())
    assert files(tmp_path) == []


def test_other_makers_are_removed_and_other_runs_are_not(tmp_path: Path) -> None:
    for run in ("run", "other"):
        folder_of(tmp_path, run, "0" * 16).put(name_of(1), features(1))
    assert name_of(1) not in folder_of(tmp_path, "run", "1" * 16)
    assert [file.relative_to(tmp_path).parts[0] for file in files(tmp_path)] == ["other"]


def test_what_is_no_makers_folder_is_left_alone(tmp_path: Path) -> None:
    """As where it is the folder of base models, one of which is called as the run is."""
    others = [tmp_path / "run" / name / "model.safetensors" for name in ("autoui", "0" * 15, "A" * 16)]
    for each in others:
        each.parent.mkdir(parents=True)
        each.write_bytes(b"weights")
    folder_of(tmp_path, "run", "1" * 16)
    assert [each.read_bytes() for each in others] == [b"weights"] * 3


def test_a_folder_that_cannot_be_written_is_refused_before_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"learner\.features_kept"):
        folder_of(tmp_path / "file")


def test_where_it_takes_no_more_learning_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = folder_of(tmp_path)
    (tmp_path / "run" / MAKER / name_of(1)[:2]).write_text("in the way")
    folder.put(name_of(1), features(1))
    folder.put(name_of(2), features(2))
    assert caplog.text.count("no longer kept") == 1
    assert (name_of(1) in folder, name_of(2) in folder) == (False, False)


def test_leftovers_of_a_killed_write_are_no_features(tmp_path: Path) -> None:
    folder_of(tmp_path).put(name_of(1), features(1))
    (file,) = files(tmp_path)
    file.rename(file.with_name(f"{file.name}.123"))
    folder = folder_of(tmp_path)
    assert name_of(1) not in folder
    assert files(tmp_path) == []


@dataclass
class Counting:
    """Embeds bytes; counts how often, and how often they were asked for."""

    fetched: int = 0
    embedded: int = 0

    def get(self, ref: ObjectRef) -> bytes:
        self.fetched += 1
        return ref.sha256.encode()

    def embed(self, data: bytes) -> ImageFeatures:
        self.embedded += 1
        return features(data[0])


def test_features_that_are_kept_need_neither_the_image_nor_the_model(tmp_path: Path) -> None:
    refs = [ObjectRef(f"screenshots/{name_of(n)}.png", name_of(n), 8) for n in range(4)]

    def loaded(count: Counting) -> Features:
        found = Features(count.embed, 1, FeatureStore(1 << 20))
        found.keep_in(folder_of(tmp_path))
        assert [found.needs_image(ref) for ref in refs] == [count is first] * 4
        found.load(refs, count.get)
        return found

    first, second = Counting(), Counting()
    one, two = loaded(first), loaded(second)
    assert ((first.fetched, first.embedded), (second.fetched, second.embedded)) == ((4, 4), (0, 0))
    assert all(torch.equal(one.store.get(ref.sha256), two.store.get(ref.sha256)) for ref in refs)
    assert [one.size(ref) for ref in refs] == [two.size(ref) for ref in refs]
    two.keep({refs[0].sha256})
    assert [file.name for file in files(tmp_path)] == [refs[0].sha256]


def test_what_memory_has_no_room_for_lies_in_the_folder_and_is_written_once(tmp_path: Path) -> None:
    refs = [ObjectRef(f"screenshots/{name_of(n)}.png", name_of(n), 8) for n in range(4)]
    steps = [TrajectoryStep([step(screenshot=ref)], 0) for ref in refs]
    made = [Counting().embed(ref.sha256.encode()) for ref in refs]
    first, second = Counting(), Counting()
    for count in (first, second):
        store = FeatureStore(2 * made[0].tokens.nbytes)
        found = Features(count.embed, 1, store)
        found.keep_in(folder_of(tmp_path))
        found.load(refs, count.get)
        assert (len(store), store.file_bytes, len(found)) == (2, 0, 4)
        assert all(map(same, found.of(steps), made))
        assert all(map(same, found.at(store.handles(ref.sha256 for ref in refs), steps), made))
    assert (first.embedded, second.embedded) == (4, 0)
    found.keep({refs[0].sha256, refs[3].sha256})
    assert [found.knows(ref) for ref in refs] == [True, False, False, True]
    assert sorted(file.name for file in files(tmp_path)) == sorted([refs[0].sha256, refs[3].sha256])
    folder_of(tmp_path, maker="1" * 16)
    assert same(found.of(steps[:1])[0], made[0]), "it is in memory"
    with pytest.raises(FeatureFileError, match=r"learner\.features_kept"):
        found.of(steps[3:])


def test_where_the_folder_takes_no_more_the_file_of_the_process_does(tmp_path: Path) -> None:
    ref, count = ObjectRef("a", name_of(1), 8), Counting()
    (tmp_path / "run" / MAKER).mkdir(parents=True)
    (tmp_path / "run" / MAKER / ref.sha256[:2]).write_text("in the way")
    store = FeatureStore(0)
    found = Features(count.embed, 1, store)
    found.keep_in(folder_of(tmp_path))
    found.load([ref], count.get)
    assert store.in_file == 1
    assert same(found.of([TrajectoryStep([step(screenshot=ref)], 0)])[0], Counting().embed(ref.sha256.encode()))


@pytest.fixture(scope="module")
def makers() -> dict[str, str]:
    settings = PolicySettings()
    policy = policy_of(settings)
    exact = settings.model_copy(update={"image_precision": "float16"})
    return {
        "same": maker_of(policy, settings, 1),
        "again": maker_of(policy_of(settings, 7), settings, 1),
        "served": maker_of(policy, settings.model_copy(update={"server": ServerSettings(wait_s=1.0)}), 1),
        "precision": maker_of(policy, exact, 1),
        "threads": maker_of(policy, settings, 2),
    }


def test_what_decides_the_bits_decides_the_folder(makers: dict[str, str]) -> None:
    assert makers["same"] == makers["again"], "the adapter is behind the features"
    assert makers["same"] == makers["served"], "who serves the policy has no part in them"
    assert len(set(makers.values())) == 3


def test_features_of_an_earlier_preprocessing_are_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = PolicySettings()
    policy = policy_of(settings)
    before = maker_of(policy, settings, 1)
    monkeypatch.setattr(feature_folder, "PREPROCESSING", feature_folder.PREPROCESSING + 1)
    assert maker_of(policy, settings, 1) != before


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("top_level.txt", "strange_family"),
        ("entry_points.txt", "[distrl.policies]\nstrange = strange_family.policy:FAMILY\n"),
    ],
)
def test_features_of_another_packages_class_are_computed_again_by_its_next_version_or_other_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, content: str
) -> None:
    """Whether it is installed as files or as editable."""
    settings = PolicySettings()
    policy = policy_of(settings)
    ours = maker_of(policy, settings, 1)
    monkeypatch.setattr(type(policy), "__module__", "strange_family.policy")
    makers = {ours}
    for number, source in (("1.0", "x = 1"), ("1.1", "x = 1"), ("1.1", "x = 2")):
        (folder := tmp_path / number / source / f"strange-{number}.dist-info").mkdir(parents=True)
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: strange\nVersion: {number}\n")
        (folder / file).write_text(content)
        (package := folder.with_name("strange_family")).mkdir()
        (package / "__init__.py").write_text(source)
        with monkeypatch.context() as installed:
            installed.syspath_prepend(folder.parent)
            (name,) = feature_folder.code_of(policy, settings)[1:]
            assert name.startswith(f"strange {number} (files ")
            makers.add(maker_of(policy, settings, 1))
        files_sha256.cache_clear()  # as in the next process
        del sys.modules["strange_family"]
    assert len(makers) == 4


def test_features_of_another_packages_family_are_computed_again_once_its_code_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the class of its policy is of a third package."""
    site = brought.install(tmp_path / "site")
    settings = PolicySettings(base_model=byte_policy.save(tmp_path / "base"))
    makers = set()
    for _ in range(2):
        brought.use(site, monkeypatch)
        makers.add(maker_of(policy_of(settings), settings, 1))
        brought.edit(site)
    assert len(makers) == 2
