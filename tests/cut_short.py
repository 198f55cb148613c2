"""Runs `tokencodes` in its place, and kills it at a file operation below `results/` that is drawn at random.

STORM_SEED draws it, from the stage, what it works on, and the number of its attempts, which is kept in the folder
`storm`. An operation beyond those of the stage kills nothing.
"""

import os
import random
import signal
import sys
from pathlib import Path

OPERATIONS = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.chmod")
LAST = 60  # operation that may be drawn
STORMY_ATTEMPTS = 3  # of each job; later ones are left alone


def watch(operation: int) -> None:
    """Kill this process at the operation of this number."""
    results, seen = os.path.abspath("results"), 0

    def count(event: str, arguments: tuple) -> None:
        nonlocal seen
        if event not in OPERATIONS or not isinstance(arguments[0], str | os.PathLike):
            return
        if event == "open" and not (isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)):
            return
        if os.path.abspath(arguments[0]).startswith(results):
            seen += 1
            if seen > operation:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)


if __name__ == "__main__":
    from tokencodes import cli

    job = "-".join(Path(argument).name for argument in sys.argv[1:] if len(argument) < 200).replace(".", "_")
    attempts = Path("storm", job)
    attempts.parent.mkdir(exist_ok=True)
    with open(attempts, "a") as file:
        file.write("x")
    number = attempts.stat().st_size
    draw = random.Random(f"{os.environ['STORM_SEED']} {job} {number}")
    if number <= STORMY_ATTEMPTS:
        watch(draw.randrange(LAST))
    raise SystemExit(cli.main())
