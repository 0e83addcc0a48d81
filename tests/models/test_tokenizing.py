"""Texts as tokens."""

from pathlib import Path

import numpy as np
import pytest

from diaulos.errors import InputError
from diaulos.models import tokenizing
from diaulos.models.tokenizing import tokenize

TEXT = "The quick brown fox.\nJumps over the lazy dog: äöü.\n" * 5


def _text(folder: Path) -> Path:
    path = folder / "book.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


def _tokenizer(folder: Path, words: int = 0) -> Path:
    """A tokenizer of words, with so many more that no text has."""
    tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed (extra hf)")
    known = {word: number for number, word in enumerate(["?", *dict.fromkeys(TEXT.split())])}
    known |= {f"{number}": len(known) + number for number in range(words)}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(known, unk_token="?"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    path = folder / "tokenizer.json"
    made.save(str(path))
    return path


def test_without_a_tokenizer_the_bytes_are_the_tokens(tmp_path: Path) -> None:
    """They are read where they are."""
    text = _text(tmp_path)
    found = tokenize(text, None, tmp_path / "tokens")

    assert (found.path, found.stored_as) == (text, "uint8")
    assert not (tmp_path / "tokens").exists()


@pytest.mark.parametrize(("words", "stored_as"), [(0, "uint16"), (70_000, "uint32")])
def test_a_tokenizer_makes_tokens_of_the_whole_text(
    words: int, stored_as: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Piece by piece, in the smallest type that holds them all; a folder will do for its file."""
    monkeypatch.setattr(tokenizing, "_PIECE_CHARACTERS", 30)
    tokenizer = _tokenizer(tmp_path, words)
    found = tokenize(_text(tmp_path), tmp_path, tmp_path / "tokens")

    from tokenizers import Tokenizer  # noqa: PLC0415

    whole = Tokenizer.from_file(str(tokenizer)).encode(TEXT).ids
    assert found.stored_as == stored_as
    assert whole == np.fromfile(found.path, dtype=found.stored_as).tolist()


def test_tokens_are_made_once_for_a_text_and_a_tokenizer(tmp_path: Path) -> None:
    """They are read again as long as both files are the same, and made anew when one changes."""
    text, tokenizer = _text(tmp_path), _tokenizer(tmp_path)
    first = tokenize(text, tokenizer, tmp_path / "tokens")
    written = first.path.stat().st_mtime_ns
    assert tokenize(text, tokenizer, tmp_path / "tokens") == first
    assert first.path.stat().st_mtime_ns == written
    text.write_text(TEXT + "More.", encoding="utf-8")
    assert tokenize(text, tokenizer, tmp_path / "tokens").path != first.path
    assert len(list((tmp_path / "tokens").iterdir())) == 2


def test_what_is_no_tokenizer_or_no_text_is_refused(tmp_path: Path) -> None:
    """The file is named."""
    text, tokenizer = _text(tmp_path), _tokenizer(tmp_path)
    with pytest.raises(InputError, match=r"book.txt: is no tokenizer"):
        tokenize(text, text, tmp_path)
    with pytest.raises(InputError, match=r"none.json: cannot be read"):
        tokenize(text, tmp_path / "none.json", tmp_path)
    text.write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(InputError, match=r"book.txt: is not UTF-8 text"):
        tokenize(text, tokenizer, tmp_path)
