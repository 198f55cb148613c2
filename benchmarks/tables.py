"""Tables, figures and page from stored results alone: seconds of each stage, and of the workflow that calls them.

    python benchmarks/tables.py [--seeds 5] [--workflow]

The results are simulated, of 5 interfaces x 5 seeds x 12 tasks of the benchmarks' own numbers of documents, in a
temporary folder. Each stage is a process of its own, as the workflow starts it; its CPU time says more than its wall
time on a machine that is not idle, and the last column whether it has imported torch.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "report"))

import simulate  # noqa: E402

from tokencodes import config  # noqa: E402
from tokencodes.spec import parse  # noqa: E402

DOCUMENTS = {  # of lm-eval's evaluated splits
    "hellaswag": 10_042,
    "piqa": 1_838,
    "winogrande": 1_267,
    "arc_easy": 2_376,
    "arc_challenge": 1_172,
    "openbookqa": 500,
    "commonsense_qa": 1_221,
    "mmlu": 14_042,
    "lambada_openai": 5_153,
    "wikitext": 62,
    "corpus_validation": 5_000,
}
INTERFACES = 5
CALL = (
    "import sys, time; from tokencodes import cli; code = cli.main(sys.argv[1:]); "
    "print(code, time.process_time(), 'torch' in sys.modules)"
)


def settings(name: str, n_seeds: int) -> config.Config:
    """The quickstart with more of everything."""
    value = config.load(ROOT / "config" / "quickstart.yaml").model_dump(mode="json")
    code = value["interfaces"]["binary12"]
    for number in range(INTERFACES - len(value["interfaces"])):
        codebook = {"kind": "gf2", "seed": number}
        value["interfaces"][f"gf2_recoding_{number}"] = code | {"codebook": codebook, "paper_model": None}
    value["name"], value["seeds"] = name, list(range(n_seeds))
    tasks = [{"name": task, "shots": 0, "limit": n} for task, n in DOCUMENTS.items()]
    value["evaluate"]["data"] = "hub"  # no wheel carries WikiText
    value["evaluate"]["tasks"] = [*tasks, {"name": "mmlu", "shots": 5, "limit": DOCUMENTS["mmlu"]}]
    return parse(config.Config, value, "benchmarks/tables.py")


def stage(arguments: list[str]) -> tuple[float, float, str]:
    """Seconds of the whole process, of them on a CPU, and whether torch was imported."""
    begun = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", CALL, *arguments], capture_output=True, text=True, check=True)
    code, cpu, torch = done.stdout.split()[-3:]
    assert code == "0", done.stderr
    return time.perf_counter() - begun, float(cpu), torch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--workflow", action="store_true", help="`snakemake tables figures report` too")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tokencodes-tables-") as scratch:
        chosen = settings("simulated", args.seeds)
        folder = simulate.results(chosen, Path(scratch) / "simulated")
        n_files = sum(1 for path in folder.rglob("*") if path.is_file())
        of = f"{len(chosen.interfaces)} interfaces x {args.seeds} seeds x {len(chosen.evaluate.tasks)} tasks"
        print(f"{of}, {n_files:,} files; {os.cpu_count()} CPUs\n\n{'stage':10}{'process, s':>12}{'CPU, s':>10}   torch")
        whole, busy = 0.0, 0.0
        for name in ("tables", "figures", "report"):
            arguments = [name, "--config", str(folder / "config.yaml"), "--results", str(folder)]
            arguments += ["--out", str(folder / "report.html")] if name == "report" else []
            process, cpu, torch = stage(arguments)
            whole, busy = whole + process, busy + cpu
            print(f"{name:10}{process:12.1f}{cpu:10.1f}   {torch}", flush=True)
        print(f"{'all three':10}{whole:12.1f}{busy:10.1f}")
        if args.workflow:
            print(f"{'snakemake':10}{workflow(chosen, folder):12.1f}")


def workflow(chosen: config.Config, folder: Path) -> float:
    """Seconds of `snakemake tables figures report` with the results as they are."""
    value = chosen.model_dump(mode="json") | {"results": str(folder.parent)}
    file = folder.parent / "config.json"
    file.write_text(json.dumps(value))
    command = [sys.executable, "-m", "snakemake", "tables", "figures", "report", "--configfile", str(file)]
    command += ["--profile", "workflow/profiles/local", "--rerun-triggers", "mtime", "--forcerun", "tables", "figures"]
    begun = time.perf_counter()
    subprocess.run([*command, "report", "--allowed-rules", "tables", "figures", "report"], cwd=ROOT, check=True)
    return time.perf_counter() - begun


if __name__ == "__main__":
    main()
