"""Cases that are drawn at random, and can be drawn again.

`SEED=n` chooses other cases, `EFFORT=n` draws n times as many; pytest prints both in its header. `make test` draws the
same cases in each run, and `make test-long` draws new ones.
"""

import os
import random
from collections.abc import Iterator

SEED = int(os.environ.get("SEED", "0"))
EFFORT = int(os.environ.get("EFFORT", "1"))
# Seconds after which a test gives up on a process that hangs. No test depends on how fast the machine is.
FOREVER = 3600


def cases(name: str, n: int) -> Iterator[tuple[str, random.Random]]:
    """`n` cases times `EFFORT`: the label of each, for the message of a failure, and its source of random numbers."""
    for number in range(n * EFFORT):
        label = f"SEED={SEED}, case {number} of {name}"
        yield label, random.Random(label)
