"""A Slurm of one node on this machine, for tests: munged, slurmctld and slurmd on loopback, without systemd.

    python tests/slurm/cluster.py install | up | account | down

Debian's packages slurm-wlm and munge, as root. The node claims more CPUs and memory than the machine has, and GPUs
that are copies of /dev/null, so that real submissions can be scheduled. No cgroups; no accounting, until `account` adds
it (slurmdbd and mariadb-server). Partitions: `main`, and `low`, whose jobs are requeued when `high` wants their place.
All that it makes is in one folder; `down` stops the daemons by the process ids that they wrote, and puts back a
configuration that was there before.
"""

import argparse
import os
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path("/tmp/tokencodes-slurm")
SYSTEM = Path("/etc/slurm")  # jobs look here: the executor plugin takes SLURM_CONF out of their environment
# Package -> a program of it.
PACKAGES = {"slurm-wlm": "slurmctld", "munge": "munged"}
ACCOUNTING = {"slurmdbd": "slurmdbd", "mariadb-server": "mariadbd"}
CLUSTER, ACCOUNT = "tokencodes", "trial"
PORT = 13306  # of the database, on loopback
CPUS, MEM_MB, GPUS = 32, 512_000, 8
# Seconds. On a machine with much else to do, whatever has to answer or to save within one of them must be able to.
KILL_WAIT, GRACE = 30, 120  # from SIGTERM to SIGKILL: of a job that is cancelled, as by default; of one preempted
NODE_TIMEOUT = 30  # until a node that does not answer is down
CREDENTIAL = 15  # that a credential is good for; a requeued job starts after them
MESSAGE = 60  # for a daemon's answer, and for a batch script to begin
PATIENCE = 120  # for a daemon to come or go
NULL = os.makedev(1, 3)

CONFIG = """\
ClusterName={cluster}
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={root}/munge.socket,cred_expire={credential}
CredType=cred/munge
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/slurmd.pid
SlurmctldLogFile={root}/slurmctld.log
SlurmdLogFile={root}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
{accounting}
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1,sched_min_interval=0
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
GresTypes=gpu
ReturnToService=2
KillWait={kill_wait}
SlurmdTimeout={node_timeout}
MessageTimeout={message}
BatchStartTimeout={message}
MinJobAge=86400
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory={mem_mb} Gres=gpu:{gpus} State=UNKNOWN
PartitionName=main Nodes={host} Default=YES MaxTime=INFINITE State=UP PriorityTier=5 PreemptMode=OFF
PartitionName=low Nodes={host} MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=REQUEUE GraceTime={grace}
PartitionName=high Nodes={host} MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
"""


WITHOUT = "AccountingStorageType=accounting_storage/none"
# Who has no account may not submit.
WITH = f"""\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePass={ROOT}/munge.socket
AccountingStorageEnforce=associations"""
DATABASE_DAEMON = """\
AuthType=auth/munge
AuthInfo=socket={root}/munge.socket
DbdHost={host}
DbdAddr=127.0.0.1
SlurmUser=root
PidFile={root}/slurmdbd.pid
LogFile={root}/slurmdbd.log
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={port}
StorageUser=slurm
StoragePass={password}
"""


def install(packages: dict[str, str] = PACKAGES) -> None:
    """Debian's packages, without the daemons that their scripts would start."""
    if all(map(shutil.which, packages.values())):
        return
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise SystemExit(f"cluster: needs {', '.join(packages)}, and root on Debian to install them")
    policy = Path("/usr/sbin/policy-rc.d")
    made = not policy.exists()
    if made:
        policy.write_text("#!/bin/sh\nexit 101\n")
        policy.chmod(0o755)
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        for command in (["update"], ["install", "-y", "--no-install-recommends", *packages]):
            done = subprocess.run(["apt-get", "-qq", *command], env=quiet, capture_output=True, text=True, check=False)
            if done.returncode:
                last = (done.stderr.strip().splitlines() or ["no word"])[-1]
                raise SystemExit(f"cluster: apt-get {command[0]} failed: {last}")
    finally:
        if made:
            policy.unlink()


def host() -> str:
    """The node's name, which this machine must be able to look up."""
    name = socket.gethostname().split(".")[0]
    try:
        socket.gethostbyname(name)
    except OSError:
        with open("/etc/hosts", "a") as file:
            file.write(f"127.0.0.1 {name}\n")
    return name


def configure(accounting: str = WITHOUT) -> str:
    """Write the cluster's files and make its configuration the system's; returns the node's name."""
    name = host()
    for folder in (ROOT, ROOT / "state", ROOT / "spool", SYSTEM):
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o755)
    for number in range(GPUS):
        device = ROOT / f"gpu{number}"
        if not device.exists():
            os.mknod(device, 0o666 | stat.S_IFCHR, NULL)
    (ROOT / "gres.conf").write_text(f"NodeName={name} Name=gpu File={ROOT}/gpu[0-{GPUS - 1}]\n")
    sizes = {"cpus": CPUS, "mem_mb": MEM_MB, "gpus": GPUS}
    times = {"kill_wait": KILL_WAIT, "grace": GRACE, "credential": CREDENTIAL}
    times |= {"node_timeout": NODE_TIMEOUT, "message": MESSAGE}
    values = {"cluster": CLUSTER, "host": name, "root": ROOT, "accounting": accounting}
    (ROOT / "slurm.conf").write_text(CONFIG.format(**values, **sizes, **times))
    key = ROOT / "munge.key"
    if not key.exists():
        key.touch(mode=0o600)
        key.write_bytes(secrets.token_bytes(1024))
    for file in ("slurm.conf", "gres.conf"):
        make_the_systems(file)
    return name


def make_the_systems(file: str) -> None:
    """Let the system's configuration be ours; what was there before is kept."""
    place, ours = SYSTEM / file, ROOT / file
    if place.is_symlink() and place.readlink() == ours:
        return
    if place.exists() or place.is_symlink():
        place.rename(SYSTEM / f"{file}.before-tokencodes")
    place.symlink_to(ours)


def running(daemon: str) -> int | None:
    """Process id of a daemon of this cluster."""
    try:
        pid = int((ROOT / f"{daemon}.pid").read_text())
        name, state = Path(f"/proc/{pid}/stat").read_text().split("(", 1)[1].split(")", 1)
        return pid if name == daemon and state.split()[0] != "Z" else None
    except (OSError, ValueError):
        return None


def wait(until: Callable[[], object], what: str) -> None:
    """Until it is true; SystemExit with the logs' last lines if that takes too long."""
    end = time.monotonic() + PATIENCE
    while not until():
        if time.monotonic() > end:
            logs = [log.read_text(errors="replace").splitlines()[-5:] for log in sorted(ROOT.glob("*.log"))]
            raise SystemExit("\n".join([f"cluster: {what} does not come", *(line for log in logs for line in log)]))
        time.sleep(0.2)


def states() -> str:
    """What sinfo says of the node."""
    return subprocess.run(["sinfo", "-h", "-p", "main", "-o", "%t"], capture_output=True, text=True).stdout.strip()


def start(daemon: str, *arguments: str) -> None:
    """Start a daemon that is not running; it puts itself into the background."""
    if running(daemon):
        return
    subprocess.run([daemon, *arguments], check=True, env={k: v for k, v in os.environ.items() if k != "SLURM_CONF"})
    wait(lambda: running(daemon), daemon)


def up() -> None:
    """Bring the cluster up; what is running already is left alone."""
    install()
    name = configure()
    files = {"key-file": "munge.key", "socket": "munge.socket", "pid-file": "munged.pid", "log-file": "munged.log"}
    files["seed-file"] = "munged.seed"
    start("munged", "--force", *(f"--{option}={ROOT / file}" for option, file in files.items()))
    start("slurmctld")
    start_node(name)


def account() -> None:
    """Restart the controller with accounting, and one account for root; needs a cluster that is up."""
    install(ACCOUNTING)
    data = ROOT / "database"
    quiet = {"check": True, "stdout": subprocess.DEVNULL}
    if not data.exists():
        subprocess.run(["mariadb-install-db", "--no-defaults", "--user=root", f"--datadir={data}"], **quiet)
    password = secrets.token_hex()
    (ROOT / "init.sql").write_text(
        f"CREATE OR REPLACE USER slurm@'127.0.0.1' IDENTIFIED BY '{password}';\n"
        "GRANT ALL ON slurm_acct_db.* TO slurm@'127.0.0.1';\n"
    )
    if not running("mariadbd"):
        files = {"datadir": "database", "socket": "mariadb.socket", "pid-file": "mariadbd.pid", "init-file": "init.sql"}
        options = [*(f"--{option}={ROOT / file}" for option, file in files.items()), f"--port={PORT}"]
        command = [
            "mariadbd",
            "--no-defaults",
            "--user=root",
            "--bind-address=127.0.0.1",
            "--skip-name-resolve",
            *options,
        ]
        with open(ROOT / "mariadbd.log", "w") as log:
            subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        wait(lambda: running("mariadbd"), "mariadbd")
    daemon = ROOT / "slurmdbd.conf"
    daemon.touch(mode=0o600)
    daemon.write_text(DATABASE_DAEMON.format(root=ROOT, host=host(), port=PORT, password=password))
    make_the_systems("slurmdbd.conf")
    start("slurmdbd")
    configure(WITH)
    wait(lambda: sacctmgr("show", "cluster"), "slurmdbd's answer")
    sacctmgr("add", "cluster", CLUSTER)
    sacctmgr("add", "account", ACCOUNT, f"Cluster={CLUSTER}")
    sacctmgr("add", "user", "root", f"Account={ACCOUNT}", f"Cluster={CLUSTER}")
    stop("slurmctld")
    start("slurmctld")
    wait(lambda: states() in ("idle", "mix", "alloc"), "the node")


def sacctmgr(*arguments: str) -> bool:
    """Whether slurmdbd has done it, or had before."""
    return not subprocess.run(["sacctmgr", "-i", *arguments], capture_output=True).returncode


def start_node(name: str | None = None) -> None:
    """Start the node's daemon, and wait until jobs may come."""
    start("slurmd", "-N", name or host())
    wait(lambda: states() in ("idle", "mix", "alloc"), "the node")


def stop(daemon: str, how: signal.Signals = signal.SIGTERM) -> None:
    """Stop a daemon."""
    if pid := running(daemon):
        os.kill(pid, how)
        wait(lambda: not running(daemon), f"the end of {daemon}")


def down() -> None:
    """Cancel all jobs, stop the daemons and put the system's configuration back."""
    if running("slurmctld"):
        subprocess.run(["scancel", "-u", "root"], check=False)
        try:
            wait(
                lambda: not subprocess.run(["squeue", "-h", "-t", "R,CG"], capture_output=True).stdout, "an empty queue"
            )
        except SystemExit as problem:
            print(problem, file=sys.stderr)
    for daemon in ("slurmd", "slurmctld", "slurmdbd", "mariadbd", "munged"):
        try:
            stop(daemon)
        except SystemExit:
            stop(daemon, signal.SIGKILL)
    for file in ("slurm.conf", "gres.conf", "slurmdbd.conf"):
        place, before = SYSTEM / file, SYSTEM / f"{file}.before-tokencodes"
        if place.is_symlink() and place.readlink() == ROOT / file:
            place.unlink()
            if before.exists():
                before.rename(place)
    shutil.rmtree(ROOT, ignore_errors=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["install", "up", "account", "down"])
    {"install": install, "up": up, "account": account, "down": down}[parser.parse_args().what]()
