"""A cluster with accounting: jobs on an account. squeue says how they ended, as without accounting."""

import cluster
import pytest
from trial import QUICK, slurm

pytestmark = pytest.mark.usefixtures("alone")


@pytest.fixture(scope="module")
def accounting():
    """The cluster with slurmdbd; from then on who has no account may not submit."""
    try:
        cluster.install(cluster.ACCOUNTING)
    except SystemExit as problem:
        pytest.skip(f"!!! no test of accounting: {problem}")
    cluster.account()


def test_jobs_on_an_account_end_as_without_accounting(staged, accounting):
    staged.edit("slurm/config.yaml", "# slurm_account: my_account", f"slurm_account: {cluster.ACCOUNT}")
    failing, stopping = "train binary9-s0", "validate learned-s0"
    output = staged.snakemake(
        *(*QUICK, "--retries", "1"),
        code=1,
        profile="slurm",
        env={"STAND_IN_FAILS": failing, "STAND_IN_STOPS": stopping},
    )
    calls = staged.calls()
    assert calls.count(failing) == 1 and calls.count(stopping) == 2
    assert "failed: train binary9 0: error: train binary9-s0 fails" in output
    assert "failed: validate learned 0: interrupted 2 times in a row" in output
    assert "export learned-s0" in calls and "evaluate learned-s0 corpus_validation" in calls

    jobs = [line for line in slurm("scontrol", "show", "job", "--oneliner").splitlines() if str(staged.folder) in line]
    assert jobs and all(f" Account={cluster.ACCOUNT} " in job for job in jobs)
    (training,) = (job for job in jobs if "Comment=rule_train_wildcards_binary9_0" in job)
    number = training.split()[0].removeprefix("JobId=")
    assert slurm("sacct", "-X", "--noheader", "--format=State", f"--jobs={number}").split() == ["FAILED"]
