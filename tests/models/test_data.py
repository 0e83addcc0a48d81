"""Tokens and the microbatches drawn from them."""

import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diaulos.errors import InputError
from diaulos.models.data import (
    STORED_TYPES,
    StoredType,
    TokenData,
    demo_text,
    write_tokens,
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> TokenData:
    path = tmp_path_factory.mktemp("data") / "text.bin"
    write_tokens("".join(chr(32 + i % 90) for i in range(1000)), path)
    return TokenData(path=path, sequence_length=16)


numbers = st.integers(0, 2**40)


@given(seed=numbers, batch=numbers, microbatch=st.integers(0, 1000), size=st.integers(1, 5))
def test_a_microbatch_is_a_pure_function(
    data: TokenData, seed: int, batch: int, microbatch: int, size: int
) -> None:
    """The same arguments give the same rows, whatever was drawn before and by whom."""
    first = data.microbatch(seed=seed, batch=batch, microbatch=microbatch, size=size)
    data.microbatch(seed=seed + 1, batch=batch, microbatch=microbatch, size=size)
    again = pickle.loads(pickle.dumps(data)).microbatch(
        seed=seed, batch=batch, microbatch=microbatch, size=size
    )
    for once, twice in zip(first, again, strict=True):
        assert once.dtype == np.int64
        assert once.shape == (size, 16)
        assert np.array_equal(once, twice)


@given(seed=numbers, batch=numbers, halves=st.integers(1, 4))
def test_the_samples_of_a_batch_do_not_depend_on_the_cut(
    data: TokenData, seed: int, batch: int, halves: int
) -> None:
    """Two microbatches of n rows hold the rows of one of 2n."""
    whole, _ = data.microbatch(seed=seed, batch=batch, microbatch=0, size=2 * halves)
    parts = [
        data.microbatch(seed=seed, batch=batch, microbatch=j, size=halves)[0] for j in range(2)
    ]
    assert np.array_equal(whole, np.concatenate(parts))


def test_targets_are_the_inputs_one_token_later(data: TokenData) -> None:
    """Every row is a window of the file, and its targets are the window after it."""
    text = data.path.read_bytes()
    inputs, targets = data.microbatch(seed=1, batch=2, microbatch=3, size=4)
    assert np.array_equal(inputs[:, 1:], targets[:, :-1])
    for row, last in zip(inputs, targets[:, -1], strict=True):
        assert bytes([*row.tolist(), int(last)]) in text


def test_seeds_batches_and_microbatches_draw_other_rows(data: TokenData) -> None:
    """Changing any argument changes the rows."""
    arguments = {"seed": 1, "batch": 2, "microbatch": 3}
    rows = [data.microbatch(**arguments, size=8)[0]]
    rows += [
        data.microbatch(**{**arguments, name: value + 1}, size=8)[0]
        for name, value in arguments.items()
    ]
    assert len({row.tobytes() for row in rows}) == 4


def test_the_rows_are_the_same_for_ever(data: TokenData) -> None:
    """The windows drawn do not change with the release of NumPy or of this project."""
    assert data._starts(7, 3, first_sample=0, samples=4) == [594, 947, 561, 157]


def test_every_window_can_be_drawn(tmp_path: Path) -> None:
    """The first and the last window of the file are among those drawn."""
    path = tmp_path / "short.bin"
    write_tokens("abcdef", path)
    short = TokenData(path=path, sequence_length=3)
    inputs, targets = short.microbatch(seed=0, batch=0, microbatch=0, size=100)
    assert {bytes(row.astype(np.uint8)) for row in inputs} == {b"abc", b"bcd", b"cde"}
    assert set(targets[:, -1].tolist()) == set(b"def")


def test_wide_tokens_are_read(tmp_path: Path) -> None:
    """Files of 16-bit tokens, as other tools prepare them, are read too."""
    path = tmp_path / "wide.bin"
    np.arange(300, 310, dtype="<u2").tofile(path)
    wide = TokenData(path=path, sequence_length=9, stored_as="uint16")
    inputs, targets = wide.microbatch(seed=0, batch=0, microbatch=0, size=1)
    assert inputs.tolist() == [list(range(300, 309))]
    assert targets.tolist() == [list(range(301, 310))]


def test_reading_data_needs_no_torch() -> None:
    """Data, graphs and the package of prices can be imported where torch is not wanted."""
    modules = "diaulos, diaulos.models.data, diaulos.models.files, diaulos.pricing.training_memory"
    code = f"import sys, {modules}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_text_too_short_is_refused(tmp_path: Path) -> None:
    """A file without one whole sample says how many tokens it has and needs."""
    path = tmp_path / "short.bin"
    write_tokens("abc", path)
    with pytest.raises(InputError, match=r"holds 3 tokens; a sample takes 4"):
        TokenData(path=path, sequence_length=3)


def test_a_missing_file_and_half_a_token_are_refused(tmp_path: Path) -> None:
    """What is no file of such tokens is said to be none."""
    with pytest.raises(InputError, match="cannot be read"):
        TokenData(path=tmp_path / "absent.bin", sequence_length=3)
    path = tmp_path / "odd.bin"
    write_tokens("abc", path)
    with pytest.raises(InputError, match="holds 3 bytes"):
        TokenData(path=path, sequence_length=1, stored_as="uint16")


@pytest.mark.parametrize("name", ["seed", "batch", "microbatch"])
def test_negative_arguments_are_refused(data: TokenData, name: str) -> None:
    """Nothing is drawn for an argument that makes no sense."""
    arguments = {"seed": 0, "batch": 0, "microbatch": 0, name: -1}
    with pytest.raises(InputError):
        data.microbatch(**arguments, size=1)


def test_the_demo_text_is_english_prose() -> None:
    """The language reference ships with Python, and is long enough to train on."""
    text = demo_text()
    assert len(text.content) > 300_000
    assert "statement" in text.content
    assert "language reference" in text.origin


def test_the_demo_text_has_a_substitute(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the language reference is left out, library sources stand in, and are named."""
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    text = demo_text()
    assert len(text.content) > 300_000
    assert "lacks pydoc_data" in text.origin


@given(batch=numbers, cut=st.floats(0.1, 0.9))
def test_what_is_held_out_is_never_trained(data: TokenData, batch: int, cut: float) -> None:
    """Two shares that meet have no token in common, and each keeps to its own."""
    text = np.arange(data.tokens, dtype=np.uint16)
    path = data.path.with_suffix(".numbers")
    path.write_bytes(text.tobytes())
    stored = TokenData(path=path, sequence_length=16, stored_as="uint16")
    first = replace(stored, share=(0.0, cut)).microbatch(seed=0, batch=batch, microbatch=0, size=4)
    second = replace(stored, share=(cut, 1.0)).microbatch(seed=0, batch=batch, microbatch=0, size=4)
    assert first[1].max() < second[0].min()


@pytest.mark.parametrize("stored_as", STORED_TYPES)
def test_tokens_of_any_type_are_read(stored_as: StoredType, tmp_path: Path) -> None:
    """The windows hold the numbers that were written, little-endian."""
    tokens = np.arange(100, 120)
    path = tmp_path / "tokens.bin"
    path.write_bytes(tokens.astype(np.dtype(stored_as).newbyteorder("<")).tobytes())
    data = TokenData(path=path, sequence_length=19, stored_as=stored_as)
    inputs, _ = data.microbatch(seed=0, batch=0, microbatch=0, size=1)
    assert tokens[:-1].tolist() == inputs[0].tolist()


@pytest.mark.parametrize(
    ("tokens", "stored_as", "message"),
    [
        ([3, 300, 5], "uint16", "holds the token 300, read as uint16; tokens are below 256"),
        ([3, -1, 5], "int32", "holds the token -1, read as int32; tokens are at least 0"),
    ],
)
def test_tokens_that_the_model_has_not_are_refused(
    tokens: list[int], stored_as: StoredType, message: str, tmp_path: Path
) -> None:
    """They are named with their file, before they fail within the model."""
    path = tmp_path / "tokens.bin"
    path.write_bytes(np.asarray(tokens, dtype=stored_as).tobytes())
    data = TokenData(path=path, sequence_length=2, stored_as=stored_as, vocabulary=256)
    with pytest.raises(InputError, match=message):
        data.microbatch(seed=0, batch=0, microbatch=0, size=1)


@pytest.mark.parametrize("share", [(0.5, 0.5), (-0.1, 1.0), (0.0, 1.5)])
def test_a_share_of_nothing_is_refused(share: tuple[float, float], data: TokenData) -> None:
    """It begins at 0 or later, ends by 1, and has something between."""
    with pytest.raises(InputError, match="share is"):
        replace(data, share=share)
