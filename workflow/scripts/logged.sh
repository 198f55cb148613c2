# logged LOG COMMAND...: run a stage. Its output goes to the terminal and to its log, with a line before and a line after
# it in the log. Its exit code is kept. Every rule's shell reads this file.
#
# The log is a convenience: a reader of the output that goes away (`| head`), or a log that cannot be written or is deleted
# meanwhile, stops no stage.
#
# The copying process and this shell survive the signals that stop a stage, so that the stage can report and save.
# Snakemake removes the log of a job that it runs again. A hard link keeps what earlier attempts wrote.
logged() {
  local log=$1 kept code=0 signal="" begun=$SECONDS
  shift
  kept=$(dirname "$log")/.$(basename "$log")
  mkdir -p "$(dirname "$log")" || true
  if [ -e "$kept" ] && ! [ -e "$log" ]; then ln "$kept" "$log" || cp "$kept" "$log" || true; fi
  note
  [ -e "$kept" ] || ln "$log" "$kept" || true # without hard links only the last attempt is kept
  trap 'signal=", after a signal"' HUP INT TERM USR1
  note "=== $(date '+%F %T%z') $(where_and_what)"
  if [ -n "$signal" ]; then
    code=75 # the signal came before the stage began: start again
  else
    "$@" 2>&1 | (trap "" HUP INT TERM USR1; exec tee -p -a "$log" >&2) || code=${PIPESTATUS[0]}
  fi
  trap - HUP INT TERM USR1
  note "=== exit code $code after $((SECONDS - begun)) s$signal"
  return "$code"
}

# Append lines to the log.
note() {
  mkdir -p "$(dirname "$log")" && printf '%s' "${@/%/$'\n'}" >> "$log" || true
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
