"""On PYTHONPATH, hides the packages of envs/requirements-dev.lock: what a user's environment does not have.

Python imports a module of this name at its start. A package that a stage needs, and the project does not depend on, is
then missing in the tests too.
"""

import os
import re
from importlib import metadata
from importlib.machinery import PathFinder
from pathlib import Path

_names = {
    re.sub(r"[-_.]+", "-", line.partition("==")[0]).lower()
    for lock in filter(None, [os.environ.get("TOKENCODES_DEV_LOCK")])
    for line in Path(lock).read_text().splitlines()
    if "==" in line
}
_hidden = {
    module
    for module, packages in metadata.packages_distributions().items()
    if packages and all(re.sub(r"[-_.]+", "-", package).lower() in _names for package in packages)
}
_find = PathFinder.find_spec


def _visible(name, path=None, target=None):
    return None if name.partition(".")[0] in _hidden else _find(name, path, target)


PathFinder.find_spec = staticmethod(_visible)
