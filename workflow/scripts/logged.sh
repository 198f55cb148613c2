# logged LOG COMMAND...: run a stage. Its output goes to the terminal and to its log, with a line before and a line after
# it in the log. Its exit code is kept. Every rule's shell reads this file.
#
# The copying process and this shell survive the signals that stop a stage, so that the stage can report and save.
# Snakemake removes the log of a job that it runs again. A hard link keeps what earlier attempts wrote.
logged() {
  local log=$1 kept code=0 signal="" begun=$SECONDS
  shift
  kept=$(dirname "$log")/.$(basename "$log")
  mkdir -p "$(dirname "$log")"
  if [ -e "$kept" ] && ! [ -e "$log" ]; then ln "$kept" "$log" || cp "$kept" "$log"; fi
  : >> "$log"
  [ -e "$kept" ] || ln "$log" "$kept" || true # without hard links only the last attempt is kept
  trap 'signal=", after a signal"' HUP INT TERM USR1
  echo "=== $(date '+%F %T%z') $(where_and_what)" >> "$log"
  if [ -n "$signal" ]; then
    code=75 # the signal came before the stage began: start again
  else
    "$@" 2>&1 | (trap "" HUP INT TERM USR1; exec tee -a "$log" >&2) || code=$?
  fi
  trap - HUP INT TERM USR1
  echo "=== exit code $code after $((SECONDS - begun)) s$signal" >> "$log"
  return "$code"
}

# Host, Slurm job, GPUs and versions, in one line.
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
