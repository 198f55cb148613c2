"""How the command line is read: Typer, and the few things in which ours differs from its defaults."""

import math
from collections.abc import Sequence
from typing import Any

from typer import BadParameter, Context, Option, Typer, TyperException
from typer.main import get_command

from tokencodes.errors import UserError


def flag(name: str, help: str) -> Any:
    """An option without a value. The name is given, or Typer would add its opposite, --no-NAME."""
    return Option(name, help=help, show_default=False)


def option(metavar: str, help: str, **more: Any) -> Any:
    """An option with a value. `metavar` says what kind of value or file it takes."""
    return Option(metavar=metavar, help=help, **more)


def minutes(text: str) -> float:
    """Convert the value of --time-budget."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise BadParameter(f"a number of minutes above 0 is expected, not {text!r}")
    return value


def parse_line(app: Typer, arguments: Sequence[str]) -> Context:
    """What a command line asks for: `info_name` is the stage, `params` its arguments; `invoke()` runs it.

    Raises UserError for a wrong command line, and Exit once --help is printed.
    """
    if not arguments:
        raise UserError("a stage is missing; `tokencodes --help` lists them")
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
