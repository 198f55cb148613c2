"""workflow/rules/hooks.smk reaches into Snakemake: each name that it uses is there, and does what the workflow needs.

A failure here means that the installed Snakemake differs from the one that hooks.smk was written for.
"""

import dataclasses
import inspect
import re
import tomllib
from importlib.metadata import version

import pytest
from packaging.specifiers import SpecifierSet
from snakemake.api import Workflow
from snakemake.dag import DAG
from snakemake.jobs import GroupJob, Job
from snakemake.logging import ColorizingTextHandler
from snakemake.rules import Rule
from snakemake.scheduling.job_scheduler import JobScheduler
from snakemake.settings.types import ConfigSettings, DAGSettings, ExecutionSettings, ResourceSettings
from snakemake_executor_plugin_slurm import Executor, ExecutorSettings
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor

pytestmark = pytest.mark.workflow

REACH = re.compile(r"\bworkflow\.(?!smk\b|rst\b)[\w.]+")
STAGE = "validate learned-s0"


def code(path):
    """A Snakefile without its comments."""
    return re.sub(r"(^|\s)#.*", "", path.read_text())


def source(value):
    return inspect.getsource(value.fget if isinstance(value, property) else value)


def has_field(kind, name):
    return name in {field.name for field in dataclasses.fields(kind)}


# ------------------------------------------------------------------- versions


def test_the_versions_that_hooks_holds_for_are_those_that_can_be_installed(root):
    """Raising a bound in pyproject.toml without looking at hooks.smk fails here; so does an upgrade past the bound."""
    names = ("snakemake", "snakemake-executor-plugin-slurm")
    stated = re.search(
        r"holds for snakemake (\d+)\.(\d+) and snakemake-executor-plugin-slurm (\d+)\.(\d+)",
        (root / "workflow/rules/hooks.smk").read_text(),
    )
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    lock = dict(re.findall(r"^(\S+)==(\S+)$", (root / "envs/requirements.lock").read_text(), re.MULTILINE))
    for name, major, minor in zip(names, stated.groups()[::2], map(int, stated.groups()[1::2]), strict=True):
        (bound,) = (line[len(name) :] for line in project["dependencies"] if re.match(rf"{name}[<>=~]", line))
        assert SpecifierSet(bound) == SpecifierSet(f">={major}.{minor},<{major}.{minor + 1}")
        assert version(name) in SpecifierSet(bound) and lock[name] in SpecifierSet(bound)
    assert f'min_version("{stated[1]}.{stated[2]}")' in (root / "Snakefile").read_text()


# ---------------------------------------------------------------------- names

NAMES = {
    "workflow.is_main_process": lambda: "ExecMode.DEFAULT" in source(Workflow.is_main_process),
    "workflow.resource_settings.overwrite_resources": lambda: (
        has_field(Workflow, "resource_settings") and has_field(ResourceSettings, "overwrite_resources")
    ),
    "workflow.current_basedir": lambda: "included_stack[-1]" in source(Workflow.current_basedir),
    "workflow.configfiles": lambda: (
        "self.configfiles = list(self.config_settings.configfiles)" in source(Workflow.__post_init__)
    ),
    "workflow.config_settings.config": lambda: (
        has_field(Workflow, "config_settings") and has_field(ConfigSettings, "config")
    ),
    "workflow.dag.needrun_jobs": lambda: callable(DAG.needrun_jobs) and isinstance(Workflow.dag, property),
    "workflow.dryrun": lambda: "common_settings.dryrun_exec" in source(Workflow.dryrun),
    "workflow.scheduler._executor": lambda: (
        "self._executor = executor_plugin.executor(" in source(JobScheduler.__init__)
        and "self.run_uuid = " in source(Executor.__post_init__)
    ),
    "workflow.executor_settings.init_seconds_before_status_checks": lambda: (
        has_field(Workflow, "executor_settings") and has_field(ExecutorSettings, "init_seconds_before_status_checks")
    ),
    "workflow.scheduler.job_rate_limiter": lambda: (
        "if self.job_rate_limiter is not None:" in source(JobScheduler.schedule)
        and "if self.job_rate_limiter is None:" in source(JobScheduler.job_selector)
    ),
    "workflow.scheduler.failed": lambda: "self.failed.add(job)" in source(JobScheduler._handle_error),
    "workflow.execution_settings.retries": lambda: (
        has_field(Workflow, "execution_settings")
        and has_field(ExecutionSettings, "retries")
        and "self.workflow.execution_settings.retries" in source(Rule.restart_times)
    ),
    "workflow.dag_settings.targets": lambda: has_field(Workflow, "dag_settings") and has_field(DAGSettings, "targets"),
}


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_where_hooks_expects_it(name):
    assert NAMES[name]()


def test_every_name_that_hooks_uses_is_tested(root):
    used = REACH.findall(code(root / "workflow/rules/hooks.smk"))
    assert {name.removesuffix(".get") for name in used} == NAMES.keys()


def test_no_other_file_reaches_into_snakemake(root):
    for path in [root / "Snakefile", *(root / "workflow/rules").glob("*.smk")]:
        if path.name != "hooks.smk":
            assert not REACH.findall(code(path)), path
            assert set(re.findall(r"^(?:from|import) (snakemake\S*)", code(path), re.M)) <= {"snakemake.utils"}, path


def test_a_job_says_how_often_it_is_repeated_and_what_it_wrote():
    for kind in (Job, GroupJob):
        assert all(isinstance(getattr(kind, name), property) for name in ("restart_times", "attempt", "log", "output"))
        assert callable(kind.is_group)
    assert {"rule", "wildcards_dict"} <= {*Job.__slots__} and isinstance(GroupJob.jobs, property)
    assert "if job.restart_times > job.attempt - 1:" in source(JobScheduler._handle_error)


def test_the_executor_asks_for_the_jobs_that_are_still_active():
    assert "in self.check_active_jobs(active_jobs)" in source(RemoteExecutor._wait_for_jobs)
    assert {"external_jobid", "job", "aux"} <= {each.name for each in dataclasses.fields(SubmittedJobInfo)}
    assert 'aux={"slurm_logfile": slurm_logfile}' in source(Executor.run_job)
    assert all(callable(getattr(Executor, name)) for name in ("report_job_success", "report_job_error"))


def test_a_dry_run_schedules_and_the_end_of_a_reader_is_raised():
    """Else hooks.smk need not, or could not, replace these two."""
    assert "self.scheduler.schedule()" in source(Workflow.execute)
    assert "except BrokenPipeError:" in source(ColorizingTextHandler.emit)


def test_no_name_of_ours_hides_one_that_snakemake_looks_up(fresh):
    """Snakefiles run in the namespace of Snakemake's own module: `parse`, imported there, once broke every call."""
    (fresh.folder / "watched").write_text(
        "import snakemake.workflow\n"
        "before = dict(vars(snakemake.workflow))\n"
        'include: "Snakefile"\n'
        "for name, value in before.items():\n"
        "    if vars(snakemake.workflow)[name] is not value:\n"
        '        print("replaced:", name)\n'
    )
    output = fresh.snakemake("--dry-run", "--snakefile", "watched")
    assert set(re.findall(r"^replaced: (\w+)$", output, re.M)) <= {"config", "__file__", "__builtins__", "checkpoints"}


# ------------------------------------------------------------------ behaviour


def test_retries_repeat_what_was_interrupted_and_not_what_failed(fresh):
    environment = {"STAND_IN_FAILS": "train binary9-s0", "STAND_IN_STOPS": STAGE}
    output = fresh.snakemake("--retries", "2", code=1, env=environment)
    calls = fresh.calls()
    assert calls.count("train binary9-s0") == 1 and calls.count(STAGE) == 3
    assert "failed: train binary9 0: error: train binary9-s0 fails" in output
    assert "failed: validate learned 0: interrupted 3 times in a row without progress" in output


def test_without_retries_snakemake_is_left_as_it_is(fresh):
    fresh.snakemake(code=1, env={"STAND_IN_STOPS": STAGE})
    assert fresh.calls().count(STAGE) == 1


def test_a_slurm_job_has_the_name_that_a_later_call_looks_for(fresh):
    fresh.put_first("sbatch", '#!/bin/sh\nfor word; do echo "$word" >> sbatch.log; done\nexit 1\n')
    for program in ("squeue", "sacct", "sinfo", "scontrol", "scancel", "sacctmgr"):
        fresh.put_first(program, "#!/bin/sh\nexit 0\n")
    fresh.snakemake("results/tiny/data/store/manifest.json", code=1, profile="slurm")
    words = (fresh.folder / "sbatch.log").read_text().split()
    names = {
        words[i + 1] if word == "--job-name" else word.split("=")[1]
        for i, word in enumerate(words)
        if "job-name" in word
    }
    assert names == {(fresh.folder / "results/tiny/.slurm").read_text().strip()}


def test_after_waiting_for_slurm_a_call_starts_again_and_sees_what_those_jobs_made(fresh):
    """The job of an earlier call ends at the second look at the queue, and has made the file by then."""
    target = "results/tiny/params.json"
    fresh.edit("src/tokencodes/guards.py", "QUEUE_INTERVAL_S = 15", "QUEUE_INTERVAL_S = 0.01")
    row = "17|RUNNING|N/A|None"
    fresh.put_first(
        "squeue",
        f'#!/bin/sh\necho "$@" >> squeue.log; [ -e {target} ] || {{ echo "{row}"; echo "{{}}" > {target}; }}\n',
    )
    (fresh.folder / "results/tiny").mkdir(parents=True)
    (fresh.folder / "results/tiny/.slurm").write_text("earlier\n")
    output = fresh.snakemake(target, profile="slurm")
    assert output.count("Slurm has 1 job(s) of an earlier call; waiting for them") == 1
    assert output.count("Building DAG of jobs...") == 2 and "Nothing to be done" in output
    assert fresh.calls() == []
    assert all("--name=earlier" in line for line in (fresh.folder / "squeue.log").read_text().splitlines())


def test_a_snakemake_for_one_job_holds_no_lock_and_refuses_nothing(fresh):
    """As on a node: it must not take the lock that its parent holds, nor look for jobs to wait for."""
    fresh.snakemake("results/tiny/config.yaml", "--mode", "subprocess")
    assert fresh.calls() == ["resolve"] and not (fresh.folder / "results/tiny/.lock").exists()
    fresh.snakemake("results/tiny/params.json")
    assert (fresh.folder / "results/tiny/.lock").exists()
