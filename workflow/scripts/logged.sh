# logged LOG COMMAND...: what a stage says goes to the terminal and, with a line before and after, to its log; its exit
# code is kept. Read by every rule's shell.
#
# The copying and this shell outlive the signals that stop a stage, so that a stage can speak, and save, after them.
# Snakemake removes the log of a job that it runs again: a second name of the same file keeps what was said before.
logged() {
  local log=$1 kept code=0 signal="" begun=$SECONDS
  shift
  kept=$(dirname "$log")/.$(basename "$log")
  mkdir -p "$(dirname "$log")"
  if [ -e "$kept" ] && ! [ -e "$log" ]; then ln "$kept" "$log" || cp "$kept" "$log"; fi
  : >> "$log"
  [ -e "$kept" ] || ln "$log" "$kept" || true # a file system without hard links keeps the last attempt alone
  trap 'signal=", after a signal"' HUP INT TERM USR1
  echo "=== $(date '+%F %T%z') $(where_and_what)" >> "$log"
  if [ -n "$signal" ]; then
    code=75 # before it began: start again
  else
    "$@" 2>&1 | (trap "" HUP INT TERM USR1; exec tee -a "$log" >&2) || code=$?
  fi
  trap - HUP INT TERM USR1
  echo "=== exit code $code after $((SECONDS - begun)) s$signal" >> "$log"
  return "$code"
}

# Host, Slurm job, GPUs and versions, on one line.
where_and_what() {
  local gpus
  gpus=$(nvidia-smi --query-gpu=name --format=csv,noheader 2> /dev/null | sort | uniq -c | xargs echo) || gpus=""
  echo "host $(hostname)${SLURM_JOB_ID:+, Slurm job $SLURM_JOB_ID}, GPUs ${gpus:-none};" "$(python -c '
import platform
from importlib.metadata import PackageNotFoundError, version
def of(name):
    try:
        return f"{name} {version(name)}"
    except PackageNotFoundError:
        return f"{name} ?"
print(", ".join([*map(of, ("tokencodes", "torch", "snakemake")), f"python {platform.python_version()}"]))')"
}
