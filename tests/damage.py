"""Random damage to files."""

import random
import re
import string
from pathlib import Path

TEXT = (".json", ".jsonl", ".md", ".txt", ".yaml", ".py")
GROUPS = [group.encode() for group in (string.digits, string.ascii_lowercase, string.ascii_uppercase)]


def damage(path: Path, draw: random.Random) -> None:
    """Flip a random bit of a file; in half of the cases, change one digit or letter of a text file to another one."""
    content = path.read_bytes()
    places = [found.start() for found in re.finditer(rb"[0-9a-zA-Z]", content)]
    if path.suffix in TEXT and places and draw.random() < 0.5:
        place = draw.choice(places)
        (group,) = (group for group in GROUPS if content[place] in group)
        value = draw.choice([each for each in group if each != content[place]])
    else:
        place = draw.randrange(len(content))
        value = content[place] ^ (1 << draw.randrange(8))
    path.write_bytes(content[:place] + bytes([value]) + content[place + 1 :])


def files_below(folder: Path) -> list[Path]:
    """All files below a folder, sorted."""
    return sorted(path for path in folder.rglob("*") if path.is_file())
