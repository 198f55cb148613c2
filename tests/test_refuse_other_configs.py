"""A run of another config is refused before Snakemake starts a job, and so before it deletes anything."""

import pytest

from tokencodes import guards
from tokencodes.errors import UserError
from tokencodes.train import loop


def test_it_is_named_by_run_and_key_whether_finished_or_begun(tiny, tmp_path):
    run, other = tiny.config().run("gf2", 0), tiny.config(train={"peak_lr": 4e-3}).run("gf2", 0)
    guards.refuse_other_configs([(tmp_path, run)])  # nothing there yet
    loop.train(run, tiny.store, tmp_path)
    guards.refuse_other_configs([(tmp_path, run)])
    for _ in range(2):
        with pytest.raises(UserError, match=r"train\.peak_lr is 0\.003 there and 0\.004 here; .*use another `name`"):
            guards.refuse_other_configs([(tmp_path, other)])
        (tmp_path / "final.json").unlink(missing_ok=True)


def test_without_checkpoints_the_last_file_alone_tells(tiny, tmp_path):
    (tmp_path / "final.json").write_text('{"run_sha256": "0"}')
    with pytest.raises(UserError, match="has another run_sha256"):
        guards.refuse_other_configs([(tmp_path, tiny.config().run("gf2", 0))])
