# Everything that reaches into Snakemake itself, and what the workflow does before its first job and after a failure.
#
# It holds for snakemake 9.27 and snakemake-executor-plugin-slurm 2.8, the versions that pyproject.toml admits.
# tests/workflow/test_hooks.py holds each name below against the installed versions. To admit a newer version: raise the
# upper bound in pyproject.toml and the number above, `make lock`, then run that test and `make test-slurm`.
import asyncio
import contextlib
import os
import shlex
import sys
from pathlib import Path

from snakemake.jobs import GroupJob, Job
from snakemake.logging import ColorizingTextHandler
from snakemake.scheduling.job_scheduler import JobScheduler
from tokencodes import attempts, guards, slurm, triggers
from tokencodes.yamlfile import dump
from tokencodes.files import write_text

IS_MAIN = workflow.is_main_process  # not a Snakemake that Slurm starts on a node for one job

# Downloads run beside Snakemake, because the nodes of a cluster often have no network, unless the profile names a
# partition for them.
DOWNLOADS_HERE = "slurm_partition" not in workflow.resource_settings.overwrite_resources.get("download", {})

LOGGED = shlex.quote(str(Path(workflow.current_basedir) / "../scripts/logged.sh")).replace("{", "{{").replace("}", "}}")
SLOWEST_LOOK_S = 120  # at Slurm's queue, while no job ends
LOCKS = []  # open files; this process holds their locks as long as it lives


def config_files():
    """The config files of this call, relative to the working directory."""
    return [os.path.relpath(path) for path in workflow.configfiles]


def config_overrides():
    """What `--config KEY=VALUE` of this call says."""
    return workflow.config_settings.config


def jobs_to_run(rule):
    """The jobs of a rule that this call will run."""
    return [job for job in workflow.dag.needrun_jobs() if job.rule.name == rule]


def planned():
    """What this call will run, as guards.refuse takes it."""
    shards = [job.wildcards.shard for job in jobs_to_run("prepare")] if ORIGINAL_SHARD else []
    trainings = [Path(job.output[0]).parent for job in jobs_to_run("train")]
    return trainings, {shard: (Path(original_shard(shard)), Path(LAYOUT.raw(shard))) for shard in shards}


def refuse_in_a_dry_run_too():
    """Refuse what would fail or lose something later, after the plan. Snakemake calls `onstart` in no dry run."""
    schedule = JobScheduler.schedule

    def checked(scheduler):
        plan = planned()  # a dry run marks its jobs as done
        outcome = schedule(scheduler)
        if workflow.dryrun:
            with guards.user_errors():
                guards.refuse(SETTINGS, LAYOUT, *plan)
        return outcome

    JobScheduler.schedule = checked


def slurm_name():
    """What Slurm calls all jobs of this call; None on one machine."""
    return getattr(workflow.scheduler._executor, "run_uuid", None)


def go_on_when_nobody_reads():
    """Let the end of the output's reader (a closed pager, `| head`) pass. Snakemake dies of it between two jobs.

    In a thread that waits for a job, its scheduler waits for ever.
    """
    emit = ColorizingTextHandler.emit

    def emit_if_read(handler, record):
        with contextlib.suppress(BrokenPipeError):
            emit(handler, record)

    ColorizingTextHandler.emit = emit_if_read


def look_at_jobs_only_when_one_ends():
    """Drop Snakemake's limit of 100 submissions per second, which no executor comes near.

    Each look at the ready jobs starts a timer that causes another look: hundreds per second with hundreds of jobs.
    """
    workflow.scheduler.job_rate_limiter = None


def repeat_interrupted_jobs():
    """With `retries`: repeat a job while it makes progress, and never one that failed.

    Snakemake repeats whatever ended without its outputs, `retries` times. But a mistake would be the same again, and a
    training of many jobs has no such number.
    """

    watch = slurm.Watch(slurm_name()) if slurm_name() else None

    def restart_times(job):
        if watch:
            watch.wait(guards.QUEUE_INTERVAL_S)  # sbatch fails while Slurm does not answer
        repeated = attempts.is_repeated(map(Path, job.log), job.attempt, workflow.execution_settings.retries, LAYOUT)
        return job.attempt if repeated else 0

    if workflow.execution_settings.retries:
        Job.restart_times = GroupJob.restart_times = property(restart_times)


def look_at_slurm_jobs():
    """Replace the executor's look at its jobs, which drops all of them if one query fails (docs/upstream.md)."""
    executor, first = workflow.scheduler._executor, workflow.executor_settings.init_seconds_before_status_checks
    watch = slurm.Watch(slurm_name())
    executor.next_seconds_between_status_checks = first

    async def check_active_jobs(active):
        logs = {each.external_jobid: list(map(Path, each.job.log)) for each in active}
        answers = await asyncio.to_thread(watch.look, logs) if active else {}
        for each in active:
            outcome, word = answers[each.external_jobid]
            if outcome == slurm.DONE:
                executor.report_job_success(each)
                each.aux["slurm_logfile"].unlink(missing_ok=True)
            elif outcome == slurm.ERROR:
                message = f"Slurm job {each.external_jobid}: {word}. "
                executor.report_job_error(each, msg=message, aux_logs=[str(each.aux["slurm_logfile"])])
            else:
                yield each
        ended = any(outcome != slurm.ACTIVE for outcome, _ in answers.values())
        pause = executor.next_seconds_between_status_checks
        executor.next_seconds_between_status_checks = first if ended else min(pause + first, SLOWEST_LOOK_S)

    executor.check_active_jobs = check_active_jobs


def start_again():
    """Replace this process by the same call: Snakemake decided what to run before the jobs ended that it waited for."""
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def failed_jobs():
    """The jobs that failed. Of a group: those whose outputs are not complete."""
    for each in workflow.scheduler.failed:
        for job in each.jobs if each.is_group() else [each]:
            if not (each.is_group() and all(map(os.path.exists, job.output))):
                yield attempts.FailedJob(job.rule.name, dict(job.wildcards_dict), list(job.log), list(job.output))


def options():
    """The command line of this call without its targets."""
    return [argument for argument in sys.argv[1:] if argument not in workflow.dag_settings.targets]


go_on_when_nobody_reads()
if IS_MAIN:
    refuse_in_a_dry_run_too()


onstart:
    if IS_MAIN:
        with guards.user_errors():
            LOCKS.append(guards.hold(LAYOUT))
            guards.refuse(SETTINGS, LAYOUT, *planned())
            # The config is no input of the rules: each has the digest of its own keys, and other keys are no reason to run.
            write_text(LAYOUT.config, dump(SETTINGS))
            waited = guards.wait_for_earlier_jobs(LAYOUT, guards.runs(SETTINGS, LAYOUT), slurm_name())
        look_at_jobs_only_when_one_ends()
        repeat_interrupted_jobs()
        if slurm_name():
            look_at_slurm_jobs()
        if waited:
            start_again()


onerror:
    if IS_MAIN:
        attempts.report_failures(list(failed_jobs()), options(), LAYOUT)
