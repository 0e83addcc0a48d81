"""Files of tensors: what is written is read, what is torn is refused."""

import json
import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from diaulos.errors import InputError
from diaulos.training.tensor_files import read_tensors, write_tensors

TYPES = [torch.float64, torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.bool]


@st.composite
def tensors(draw):
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 1000)))
    return torch.randint(2, shape, generator=generator).to(draw(st.sampled_from(TYPES)))


@given(written=st.dictionaries(st.text(min_size=1, max_size=5), tensors(), max_size=4))
def test_what_is_written_is_read(written):
    """Names, types, shapes and numbers come back, also of tensors without a dimension or entry."""
    written = {f"x{name}": tensor for name, tensor in written.items()}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.safetensors"
        write_tensors(path, written)
        read = read_tensors(path)

    assert list(written) == list(read)
    for name, tensor in written.items():
        assert tensor.dtype == read[name].dtype
        assert tensor.shape == read[name].shape
        assert torch.equal(tensor, read[name])


def test_the_format_is_that_of_safetensors(tmp_path):
    """Length, header and numbers stand where the format's description puts them."""
    write_tensors(tmp_path / "a", {"a": torch.tensor([1.0, 2.0])})
    content = (tmp_path / "a").read_bytes()
    length = int.from_bytes(content[:8], "little")

    assert length % 8 == 0
    assert {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}} == json.loads(
        content[8 : 8 + length]
    )
    assert content[8 + length :] == bytes.fromhex("0000803f00000040")


def test_a_file_cut_anywhere_is_refused(tmp_path):
    """No beginning of a file is taken for the whole of it."""
    path = tmp_path / "a.safetensors"
    write_tensors(path, {"a": torch.ones(3)})
    content = path.read_bytes()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(InputError, match=r"a\.safetensors: (is not a file of|holds)"):
            read_tensors(path)
