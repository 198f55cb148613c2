"""What becomes of Slurm's jobs: a job is never forgotten, whatever squeue answers or does not."""

import os
import time
from datetime import datetime

import pytest

from drawing import cases
from tokencodes import slurm
from tokencodes.errors import UserError

SQUEUE = "#!/bin/sh\n[ -e answer ] || { echo no controller >&2; exit 1; }\ncat answer\n"
END = "=== 2026-01-01 00:00:00+0000 host h\n=== exit code 0 after 1 s\n"
# What Slurm shows at one look: state and reason; None: it knows no such job.
GOES_ON = [("PENDING", "Priority"), ("CONFIGURING", "None"), ("RUNNING", "None"), ("COMPLETING", "None")]
GOES_ON += [("SUSPENDED", "None"), ("PENDING", "JobHeldUser"), ("A_NEW_STATE", "None")]
DOUBTFUL = {
    None: slurm.DONE,
    ("NODE_FAIL", "None"): slurm.ERROR,
    ("PREEMPTED", "None"): slurm.ERROR,
    ("PENDING", slurm.LAUNCH_FAILED): slurm.ERROR,
}
CLEAR = {("COMPLETED", "None"): slurm.DONE} | {(state, "None"): slurm.ERROR for state in slurm.FAILED}


@pytest.fixture
def squeue(tmp_path, monkeypatch):
    """A squeue that prints the file `answer`, and fails without one; scancel notes what it was called with."""
    (tmp_path / "bin").mkdir()
    for name, script in (("squeue", SQUEUE), ("scancel", '#!/bin/sh\necho "$@" >> cancelled\n')):
        (tmp_path / "bin" / name).write_text(script)
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)

    def answer(rows):
        """Rows by id, or None: no answer."""
        if rows is None:
            (tmp_path / "answer").unlink(missing_ok=True)
            return
        lines = [f"{number}|{row[0]}|N/A|{row[1]}\n" for number, row in rows.items() if row]
        (tmp_path / "answer").write_text("".join(lines))

    return answer


def history(draw):
    """The looks at one job and its verdict: doubtful states that pass, then one that does not."""
    looks = [draw.choice([*GOES_ON, *DOUBTFUL]) for _ in range(draw.randint(0, 6))]
    looks = [look for i, look in enumerate(looks) if not (i and look in DOUBTFUL and looks[i - 1] in DOUBTFUL)]
    if looks and looks[-1] in DOUBTFUL:
        looks.append(draw.choice(GOES_ON))
    last = draw.choice([*DOUBTFUL, *CLEAR])
    return [*looks, *[last] * (2 if last in DOUBTFUL else 1)], (DOUBTFUL | CLEAR)[last]


@pytest.mark.parametrize(("label", "draw"), cases("slurm", 20))
def test_each_job_gets_the_verdict_that_it_deserves_and_no_other_before(label, draw, squeue, capsys):
    jobs = {str(100 + n): history(draw) for n in range(draw.randint(1, 4))}
    watch, verdicts, at, silences = slurm.Watch("name"), {}, dict.fromkeys(jobs, 0), 0
    while open_jobs := [number for number in jobs if number not in verdicts]:
        silent = draw.random() < 0.3
        silences += silent
        squeue(None if silent else {number: jobs[number][0][at[number]] for number in open_jobs})
        answers = watch.look({number: [] for number in open_jobs})
        assert answers.keys() == set(open_jobs), label
        for number, (outcome, _) in answers.items():
            at[number] += not silent
            ended = at[number] == len(jobs[number][0])
            assert outcome == (jobs[number][1] if ended and not silent else slurm.ACTIVE), label
            if outcome != slurm.ACTIVE:
                verdicts[number] = outcome
    output = capsys.readouterr().err
    assert (silences > 0) == ("warning: squeue does not answer (no controller)" in output)


def test_what_slurm_would_keep_or_start_again_is_cancelled_before_its_successor(squeue, tmp_path):
    watch = slurm.Watch("name")
    for _ in range(2):
        squeue({"1": ("PREEMPTED", "None"), "2": ("PENDING", slurm.LAUNCH_FAILED), "3": None})
        watch.look({"1": [], "2": [], "3": []})
    assert (tmp_path / "cancelled").read_text().split() == ["1", "2"]


def test_a_job_whose_stages_have_ended_long_ago_is_not_waited_for(squeue, tmp_path):
    """Slurm calls a job RUNNING until its time limit if the daemon of its step was killed."""
    log, now = tmp_path / "log", time.time()
    begun = datetime.fromtimestamp(now - 10_000).isoformat(timespec="seconds")
    (tmp_path / "answer").write_text(f"1|RUNNING|{begun}|None\n")

    def verdict(text, age_s):
        log.write_text(text)
        os.utime(log, (now - age_s, now - age_s))
        watch = slurm.Watch("name")
        return [watch.look({"1": [log]})["1"][0] for _ in range(2)][-1]

    assert verdict(END, 2 * slurm.WRAP_UP_S) == slurm.DONE
    assert verdict(END, 1) == slurm.ACTIVE  # Snakemake is at the job's end
    assert verdict(END, 20_000) == slurm.ACTIVE  # of an earlier start of the job
    assert verdict(END.splitlines()[0], 2 * slurm.WRAP_UP_S) == slurm.ACTIVE
    assert verdict("", 2 * slurm.WRAP_UP_S) == slurm.ACTIVE


def test_a_slurm_that_is_not_there_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="squeue does not answer"):
        slurm.queue(["name"])
