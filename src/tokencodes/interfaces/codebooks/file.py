"""A code book that was made elsewhere."""

from __future__ import annotations  # so that NumPy is imported when codes are made, not when a config is read

import ast
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from tokencodes.errors import UserError, one_line
from tokencodes.files import expanded, sha256_file
from tokencodes.interfaces.codebook import MAX_WIDTH, Codebook
from tokencodes.interfaces.vocabulary import Vocabulary
from tokencodes.spec import SHA256, PathText

if TYPE_CHECKING:
    import numpy as np

EXAMPLE_SIZE = 300  # tokens
HEADER_START = {1: 10, 2: 12}  # bytes of a .npy file before its header, by the format's major version


class FileCodebook(Codebook):
    """Any V x K array, from a .npy file; its hash pins the values."""

    kind: Literal["file"]
    path: PathText = Field(description="the .npy file: uint8 or bool bits, or float32, V x K")
    sha256: str = Field(pattern=SHA256, description="of the file")
    width: int = Field(ge=1, le=MAX_WIDTH, description="K, the array's columns")
    values: Literal["bits", "float32"] = Field(description="what a coordinate is")

    @classmethod
    def examples_in(cls, folder: Path) -> list[dict]:
        import numpy as np

        keys = []
        ids = np.arange(EXAMPLE_SIZE, dtype=">u2").view(np.uint8).reshape(EXAMPLE_SIZE, 2)
        bits = np.unpackbits(ids, axis=1)  # most significant first
        for name, values in {"bits": bits, "float32": bits.astype(np.float32) / 3}.items():
            np.save(path := folder / f"example_{name}.npy", values)
            keys.append({"path": str(path), "sha256": sha256_file(path), "width": values.shape[1], "values": name})
        return keys

    @property
    def is_binary(self) -> bool:
        return self.values == "bits"

    @property
    def files(self) -> list[str]:
        return [str(expanded(self.path))]

    def coordinates(self, vocab_size: int) -> int:
        return self.width

    def build(self, vocabulary: Vocabulary) -> np.ndarray:
        import numpy as np

        path = self._verified()
        try:
            values = np.load(path, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise UserError(f"codebook.path: {path}: not an array in .npy format ({one_line(error)})") from None
        return self._checked(values, path)

    def again(self, vocabulary: Vocabulary) -> np.ndarray:
        """By the format's own description (NumPy enhancement proposal 1), without NumPy's reader."""
        import numpy as np

        path = self._verified()
        content = path.read_bytes()
        start = HEADER_START[content[6]]
        length = int.from_bytes(content[8:start], "little")
        header = ast.literal_eval(content[start : start + length].decode("latin-1"))
        order = "F" if header["fortran_order"] else "C"
        values = np.frombuffer(content[start + length :], np.dtype(header["descr"])).reshape(
            header["shape"], order=order
        )
        return self._checked(values, path)

    def _verified(self) -> Path:
        (name,) = self.files
        path = Path(name)
        if not path.is_file():
            raise UserError(f"codebook.path: {path}: no such file; correct the path, or put the file there")
        if sha256_file(path) != self.sha256:
            raise UserError(f"codebook.sha256: is not that of {path}; if the file is right, correct the hash")
        return path

    def _checked(self, values: np.ndarray, path: Path) -> np.ndarray:
        import numpy as np

        types = (np.bool_, np.uint8) if self.is_binary else (np.float32,)
        if values.dtype not in [np.dtype(each) for each in types]:
            raise UserError(f"codebook.values: {self.values}, but {path} has values of type {values.dtype}")
        if values.ndim != 2:
            raise UserError(f"codebook.path: {path} has {values.ndim} dimensions; two are needed, V x K")
        return np.ascontiguousarray(values.astype(np.uint8 if self.is_binary else np.float32))
