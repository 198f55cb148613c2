"""The ways to an environment name the same versions: pyproject.toml, the lock files, conda, Apptainer, make."""

import re
import tomllib

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

LOCK, DEV_LOCK = "requirements.lock", "requirements-dev.lock"


@pytest.fixture(scope="module")
def project(root):
    """pyproject.toml."""
    return tomllib.loads((root / "pyproject.toml").read_text())


def pins(root, name):
    """Package -> version of a lock file; every line is a pin."""
    lines = [line for line in (root / "envs" / name).read_text().splitlines() if not line.startswith("#")]
    pairs = [line.split("==") for line in lines]
    assert all(len(pair) == 2 for pair in pairs)
    return {canonicalize_name(key): version for key, version in pairs}


@pytest.mark.parametrize("extra", [None, "dev"])
def test_every_dependency_is_locked_within_its_bounds(root, project, extra):
    stated = project["project"]["optional-dependencies"][extra] if extra else project["project"]["dependencies"]
    locked = pins(root, LOCK) | (pins(root, DEV_LOCK) if extra else {})
    for requirement in map(Requirement, stated):
        assert requirement.specifier, f"{requirement.name} has no lower bound"
        version = locked[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), f"{requirement} and {version}"


def test_what_builds_the_package_is_locked(root, project):
    """The environments install it without build isolation."""
    (requirement,) = map(Requirement, project["build-system"]["requires"])
    assert requirement.specifier.contains(pins(root, LOCK)[requirement.name])


def test_the_two_lock_files_share_nothing_and_torch_has_no_build_tag(root):
    run, dev = pins(root, LOCK), pins(root, DEV_LOCK)
    assert not set(run) & set(dev)
    assert Version(run["torch"]).local is None
    assert f"TORCH := {run['torch']}\n" in (root / "Makefile").read_text()


def test_conda_and_apptainer_have_the_same_python_and_the_package_allows_it(root, project):
    environment = yaml.safe_load((root / "envs/environment.yaml").read_text())
    (conda,) = (each.split("=")[1] for each in environment["dependencies"] if str(each).startswith("python "))
    (image,) = re.findall(r"^From: python:(\d+\.\d+)-", (root / "envs/tokencodes.def").read_text(), re.MULTILINE)
    assert conda == image
    assert Requirement(f"python{project['project']['requires-python']}").specifier.contains(f"{image}.0")


@pytest.mark.parametrize("name", ["environment.post-deploy.sh", "tokencodes.def"])
def test_conda_and_apptainer_install_the_lock_file_and_then_the_package_alone(root, name):
    installs = [line for line in (root / "envs" / name).read_text().splitlines() if "pip install" in line]
    assert len(installs) == 2
    assert f"envs/{LOCK}" in installs[0] and "-r " in installs[0]
    assert "--no-deps" in installs[1] and "--no-build-isolation" in installs[1]


def test_the_snakefile_asks_for_no_newer_snakemake_than_the_package(root, project):
    (least,) = re.findall(r'^min_version\("(.+)"\)$', (root / "Snakefile").read_text(), re.MULTILINE)
    (stated,) = (r for r in map(Requirement, project["project"]["dependencies"]) if r.name == "snakemake")
    assert [bound.version for bound in stated.specifier if bound.operator == ">="] == [least]
