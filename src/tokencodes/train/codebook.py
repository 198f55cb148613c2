"""`tokencodes codes`: build the code book of an interface. Codes that depend on spelling need the tokenizer."""

from pathlib import Path

from tokencodes.data import tokenizer
from tokencodes.files import sha256_file
from tokencodes.interfaces import codes
from tokencodes.interfaces.spec import Interface
from tokencodes.interfaces.vocabulary import Vocabulary


def make(name: str, interface: Interface, vocab_size: int, tokenizer_dir: Path | None, out: Path) -> None:
    """Write the code book to `out` (.npy) and its record beside it.

    `tokenizer_dir` is a folder of `tokencodes tokenizer`; only codes that depend on spelling need it. Raises UserError
    if the interface's input is trained, if two tokens share a code, or if the tokenizer is missing or does not fit
    `vocab_size`.
    """
    vocabulary, tokenizer_sha256 = Vocabulary(vocab_size), None
    if tokenizer_dir is not None:
        vocabulary = Vocabulary(vocab_size, tuple(tokenizer.token_bytes(tokenizer_dir)))
        tokenizer_sha256 = sha256_file(tokenizer_dir / "tokenizer.json")
    record = codes.write(name, interface, vocabulary, tokenizer_sha256, out)
    size = f"{record.vocab_size} x {record.width} {record.dtype}"
    print(f"{out}: {size}, {record.distinct} distinct codes, rank {record.rank}")
