"""How the command line is read and answered: Typer, and the few things in which ours differs from its defaults."""

import errno
import math
import os
import re
from collections.abc import Callable, Sequence
from typing import Any, TextIO

from typer import BadParameter, Context, Option, Typer, TyperException
from typer.main import get_command

from tokencodes.errors import UserError, one_line, visible
from tokencodes.files import DISK_FULL

MAX_MINUTES = 10**7  # 19 years
MIN_SHARE = 1e-6
# What the operating system says of a path that cannot serve.
UNUSABLE = (
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.EEXIST, errno.EISDIR, errno.ENOTDIR, errno.ENOTEMPTY),
    *(errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL, errno.EBUSY, errno.EXDEV, errno.ENXIO, errno.ENODEV),
)


class Terminal:
    """Standard output for text: control characters, and what its encoding lacks, are written as escapes."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")

    def write(self, text: str) -> int:
        return self._stream.write(visible(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def flag(name: str, help: str) -> Any:
    """An option without a value. The name is given, or Typer would add its opposite, --no-NAME."""
    return Option(name, help=help, show_default=False)


def option(metavar: str, help: str, **more: Any) -> Any:
    """An option with a value. `metavar` says what kind of value or file it takes."""
    return Option(metavar=metavar, help=help, **more)


def minutes(text: str) -> float:
    """Convert the value of --time-budget."""
    return _number(
        text, f"a number of minutes above 0 and up to {MAX_MINUTES:,}", lambda value: 0 < value <= MAX_MINUTES
    )


def share(text: str) -> float:
    """Convert the value of --mfu."""
    return _number(text, f"a share from {MIN_SHARE:g} to 1", lambda value: MIN_SHARE <= value <= 1)


def _number(text: str, expected: str, admits: Callable[[float], bool]) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not admits(value):
        raise BadParameter(f"{expected} is expected, not {text!r}")
    return value


def of_the_system(error: OSError | MemoryError, arguments: Sequence[str]) -> UserError | None:
    """What to tell the user of an error of the operating system; None if it is no matter of the user's.

    That is: a path of the command line is missing; a path cannot serve; the disk or the memory is full.
    """
    if isinstance(error, MemoryError):
        return UserError(
            f"the memory is full ({one_line(error) or 'out of memory'}); use a larger machine or smaller sizes"
        )
    name = error.filename
    if error.errno in DISK_FULL:
        reason = f"the disk is full ({os.strerror(error.errno)})"
        return UserError(f"{name or 'a file of this stage'}: {reason}; free some space and start again")
    if error.errno == errno.ENOENT and name is None and "temporary directory" in str(error):
        return UserError(f"{one_line(error)}; free some space, or set TMPDIR to another folder")
    given = isinstance(name, str) and any(name.startswith(argument) for argument in arguments if argument)
    if name and (error.errno in UNUSABLE or (error.errno == errno.ENOENT and given)):
        reason = os.strerror(error.errno).lower()
        return UserError(f"{name}: {reason}; name another path, or correct this one")
    return None


def parse_line(app: Typer, arguments: Sequence[str]) -> Context:
    """What a command line asks for: `info_name` is the stage, `params` its arguments; `invoke()` runs it.

    Raises UserError for a wrong command line, and Exit once --help is printed.
    """
    if not arguments:
        raise UserError("a stage is missing; `tokencodes --help` lists them")
    if any(not argument or re.search("[\0\ud800-\udfff]", argument) for argument in arguments):
        raise UserError("an argument is empty, or no text in UTF-8; each names something (see `tokencodes --help`)")
    arguments = _repeated("--shards", arguments)
    stages = get_command(app)
    where = "tokencodes"
    try:
        top = stages.make_context(where, list(arguments))
        name, stage, rest = stages.resolve_command(top, list(arguments))
        where = f"tokencodes {name}"
        return stage.make_context(name, rest, parent=top)
    except TyperException as error:
        message = " ".join(error.format_message().split()).rstrip(".")
        raise UserError(f"{message} (see `{where} --help`)") from None


def _repeated(option: str, arguments: Sequence[str]) -> list[str]:
    """Write `--option A B` as `--option A --option B`: Typer takes a list as an option that is repeated."""
    written: list[str] = []
    in_list = False
    for argument in arguments:
        if argument == option:
            in_list = True
            continue
        if argument.startswith("-"):
            in_list = False
        written += [option, argument] if in_list else [argument]
    return written
