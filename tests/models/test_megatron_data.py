"""Indexed datasets as Megatron-LM writes them."""

import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diaulos.errors import InputError
from diaulos.models.data import TokenData
from diaulos.models.megatron_data import read_index

CODES = {"uint8": 1, "int32": 4, "int64": 5, "uint16": 8}


def write(
    prefix: Path, documents: list[list[int]], stored_as: str, code: int | None = None
) -> None:
    """A dataset as `IndexedDatasetBuilder` of Megatron-LM writes it, one sequence a document."""
    arrays = [np.asarray(tokens, dtype=stored_as) for tokens in documents]
    lengths = np.asarray([len(tokens) for tokens in documents], dtype=np.int32)
    pointers = np.concatenate([[0], np.cumsum(lengths)[:-1]]) * np.dtype(stored_as).itemsize
    prefix.with_suffix(".bin").write_bytes(b"".join(array.tobytes() for array in arrays))
    prefix.with_suffix(".idx").write_bytes(
        b"MMIDIDX\x00\x00"
        + struct.pack("<Q", 1)
        + struct.pack("<B", code or CODES[stored_as])
        + struct.pack("<Q", len(documents))
        + struct.pack("<Q", len(documents) + 1)
        + lengths.tobytes()
        + pointers.astype(np.int64).tobytes()
        + np.arange(len(documents) + 1, dtype=np.int64).tobytes()
    )


@given(
    documents=st.lists(
        st.lists(st.integers(0, 200), min_size=1, max_size=9), min_size=2, max_size=5
    ),
    stored_as=st.sampled_from(sorted(CODES)),
)
def test_what_is_written_is_read(
    documents: list[list[int]], stored_as: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Samples are windows of all documents, one after another, in any type of token."""
    prefix = tmp_path_factory.mktemp("data") / "corpus"
    write(prefix, documents, stored_as)
    found = read_index(prefix)
    whole = [token for document in documents for token in document]
    data = TokenData(path=found.path, sequence_length=len(whole) - 1, stored_as=found.stored_as)
    inputs, targets = data.microbatch(seed=0, batch=0, microbatch=0, size=1)

    assert whole[:-1] == inputs[0].tolist()
    assert whole[1:] == targets[0].tolist()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda _: b"", "is empty"),
        (lambda index: b"x" + index[1:], "is no index of Megatron-LM"),
        (lambda index: index[:17] + b"\x06" + index[18:], "has version 1 and type 6"),
        (lambda index: index[:9] + b"\x02" + index[10:], "has version 2 and type 8"),
        (lambda index: index[:36], "ends within the lengths of 2 sequences"),
        (
            lambda index: index[:34] + b"\x07" + index[35:],
            "states 10 tokens; corpus.bin .* holds 5",
        ),
    ],
)
def test_a_spoilt_index_is_refused(spoil, message: str, tmp_path: Path) -> None:
    """What is wrong is said, with the file."""
    write(tmp_path / "corpus", [[1, 2], [3, 4, 5]], "uint16")
    index = tmp_path / "corpus.idx"
    index.write_bytes(spoil(index.read_bytes()))
    with pytest.raises(InputError, match=message) as refused:
        read_index(tmp_path / "corpus")
    assert str(index) in str(refused.value)


@pytest.mark.parametrize("suffix", [".idx", ".bin"])
def test_both_files_are_needed(suffix: str, tmp_path: Path) -> None:
    """The one that is missing is named."""
    write(tmp_path / "corpus", [[1, 2]], "uint16")
    (tmp_path / f"corpus{suffix}").unlink()
    with pytest.raises(InputError, match=f"corpus{suffix}: cannot be read"):
        read_index(tmp_path / "corpus")
