#!/usr/bin/env bash
# Run by Snakemake in the new conda environment, from the working directory: what CI runs, and this package.
set -euo pipefail
python -m pip install --disable-pip-version-check -qq -r envs/requirements.lock
python -m pip install --disable-pip-version-check -qq --no-deps --no-build-isolation .
