"""The two ways a stage ends that are not a crash: the user's mistake, and a stop that asks to be started again."""

EXIT_DONE = 0
EXIT_OUR_FAULT = 1
EXIT_USER_ERROR = 2
EXIT_STOPPED_EARLY = 75  # sysexits.h EX_TEMPFAIL: start the same command again


class UserError(Exception):
    """The input is wrong. The message is one line: what is wrong, where, and what to do. Exit code 2, no traceback."""


class StoppedEarly(Exception):
    """The work was saved before it was finished (time budget or signal). Exit code 75: start the same command again."""


def one_line(error: BaseException) -> str:
    """What a library's exception says, on one line, for a UserError to quote."""
    return " ".join(str(error).split())
