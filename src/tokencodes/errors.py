"""The two ways a stage ends that are not a crash, and how their messages reach a terminal.

The user's input is wrong (`UserError`), or the work was saved before its end (`StoppedEarly`).
"""

import re

EXIT_DONE = 0
EXIT_OUR_FAULT = 1
EXIT_USER_ERROR = 2
EXIT_STOPPED_EARLY = 75  # sysexits.h EX_TEMPFAIL: start the same command again

LINE_LENGTH = 1_000  # characters of one line of a message, so that two long paths fit
LINES_SHOWN = 50  # of one message
# Characters that a terminal obeys, that end a line, that turn its direction, or that no encoding can write.
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


class UserError(Exception):
    """The input is wrong. One line for each problem: what is wrong, where, what to do. Exit code 2, no traceback."""


class StoppedEarly(Exception):
    """The work was saved before it was finished (time budget or signal). Exit code 75: start the same command again."""


def one_line(error: BaseException) -> str:
    """What a library's exception says, on one line, for a UserError to quote."""
    return " ".join(str(error).split())


def visible(text: str) -> str:
    """`text` with control characters as escapes (`\\x1b`), line feed and tab aside: a terminal shows and obeys none."""
    return CONTROL.sub(lambda found: found[0] if found[0] in "\n\t" else ascii(found[0])[1:-1], text)


def shortened(text: str, limit: int) -> str:
    """`text`, with its middle replaced by "..." if it has more than `limit` characters."""
    if len(text) <= limit:
        return text
    half = (limit - len(" ... ")) // 2
    return f"{text[:half]} ... {text[-half:]}"


def lines(message: object) -> list[str]:
    """The lines of a message for a terminal: visible, of bounded length and number."""
    every = str(message).split("\n")
    shown = [visible(shortened(line, LINE_LENGTH)) for line in every[:LINES_SHOWN] if line]
    more = len(every) - LINES_SHOWN
    return [*shown, f"and {more} more problems; correct these first"] if more > 0 else shown
