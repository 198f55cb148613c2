"""An lm-eval model for any causal language model of Transformers: log-likelihoods of given text, no generation.

The numbers are those of lm_eval.models.huggingface.HFLM, computed with less work. Inputs with a common prefix, as a
question with each of its choices has, become one row: the prefix is computed once, and each branch attends only to its
own ancestors. Batches are sorted and packed by tokens. The head is applied only where a token is scored, and its logits
exist in float32 for a few rows and a part of the vocabulary at a time.
"""

import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from lm_eval.api.instance import Instance
from lm_eval.api.model import TemplateLM
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
from torch import Tensor, nn

from tokencodes.errors import UserError
from tokencodes.evaluate.rows import Piece, Row, row_of
from tokencodes.evaluate.softmax import log_probabilities

# Logits that exist at one time in float32, rows x tokens. On one CPU thread a 49,152-token head and its softmax are
# fastest at this size, which fits into the cache (4 MiB); a GPU is faster with larger chunks.
CHUNK_ROWS = {"cpu": 256, "cuda": 2048}
CHUNK_TOKENS = {"cpu": 4096, "cuda": 16384}
TREE_TOKENS = 2048  # of a row with branches, whose mask has that many columns
FILLED, SMALL_BATCH = 0.9, 0.25  # unless the batch is small, a row shorter than this share of its longest waits
ATTENTION_COST = 3.0  # of a floating-point operation in masked attention, relative to one in a matrix product
EXACT = 1e-5  # relative difference of float32 logits up to which a row with branches counts as equal
SAME = 1e-3  # nats; difference of a log-likelihood, computed with branches and alone, that counts as equal
BY_LENGTH = ("longrope", "dynamic")  # rotary embeddings that depend on the longest row of a batch
LENGTH_KEYS = ("n_positions", "max_position_embeddings", "n_ctx")  # as HFLM looks them up, in this order

Label = tuple[str, Any]  # (task, number of the document in it)


class Progress:
    """Progress in documents, on stderr: in a terminal one line that is rewritten, elsewhere a line every 10 s."""

    def __init__(self, what: str) -> None:
        self.what, self.stream = what, sys.stderr
        self.terminal = self.stream.isatty()
        self.period = 0.5 if self.terminal else 10.0
        self.started = self.shown = time.monotonic()

    def show(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self.shown < self.period and not (done == total and self.terminal):
            return
        self.shown = now
        rate = done / max(now - self.started, 1e-9)
        end = "\r" if self.terminal and done < total else "\n"
        print(f"{self.what}: {done:,} of {total:,} documents, {rate:.1f}/s", end=end, file=self.stream, flush=True)


class Engine(TemplateLM):
    """Scores text with `model` (in eval mode, on its device) and `tokenizer`. `name` is used in error messages, `title`
    in progress lines.

    `max_batch_tokens` bounds batch x padded length. `autocast` is the dtype of the matrix products; None is that of the
    weights. After a call, `truncated` contains the documents whose context did not fit. `branching` says whether the
    model computes the same for a row with branches as for its inputs alone; if not, each input is a row. This is tested
    with a short row when the model is loaded, and with the longest row before anything is scored, since a model may
    attend to fewer tokens than that. `alone` says that a row's scores depend on the other rows of its batch, so that
    each batch is one row.
    """

    def __init__(
        self,
        model: nn.Module,
        tokenizer: Any,
        *,
        max_batch_tokens: int,
        autocast: torch.dtype | None = None,
        name: str = "model",
        title: str | None = None,
    ) -> None:
        super().__init__()
        self.model, self.tokenizer, self.name, self.title = model, tokenizer, name, title or name
        self.max_batch_tokens, self.autocast = max_batch_tokens, autocast
        self._device = next(model.parameters()).device
        self.chunk_rows = CHUNK_ROWS.get(self._device.type, CHUNK_ROWS["cuda"])
        self.chunk_tokens = CHUNK_TOKENS.get(self._device.type, CHUNK_TOKENS["cuda"])
        self.space = torch.empty(0)  # memory for the logits of a chunk, used again by the next
        self.truncated: set[Label] = set()
        self.max_length = max_length(model.config, tokenizer)
        self.head = self._separate_head()
        self.token_cost, self.pair_cost = self._costs()
        self.alone = _by_length(model.config)
        self.branching = not self.alone and self._branches()
        self.proven = 0  # tokens of the longest row that was tested

    # ------------------------------------------------------------ tokens, as HFLM

    @property
    def eot_token_id(self) -> int:
        return self.tokenizer.eos_token_id

    @property
    def prefix_token_id(self) -> int:
        """The token before a text without context: BOS, else EOS."""
        bos = self.tokenizer.bos_token_id
        token = bos if bos is not None else self.tokenizer.eos_token_id
        if token is None:
            raise UserError(f"{self.name}: its tokenizer has neither a BOS nor an EOS token to start a text with")
        return token

    @property
    def tokenizer_name(self) -> str:
        return self.name

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **kwargs: Any) -> list[int]:
        """Token ids; special tokens as the tokenizer's default has them, never a second BOS."""
        return self._encode([string], add_special_tokens)[string]

    def _encode(self, strings: Iterable[str], add_special_tokens: bool | None = None) -> dict[str, list[int]]:
        """Token ids of each distinct string."""
        bos = self.tokenizer.decode([self.prefix_token_id])
        groups: dict[bool | None, list[str]] = {}
        for string in dict.fromkeys(strings):
            special = False if add_special_tokens is None and string.startswith(bos) else add_special_tokens
            groups.setdefault(special, []).append(string)
        ids: dict[str, list[int]] = {}
        for special, texts in groups.items():
            flags = {} if special is None else {"add_special_tokens": special}
            ids.update(zip(texts, self.tokenizer(texts, **flags)["input_ids"], strict=True))
        return ids

    # ------------------------------------------------------------ lm-eval's calls

    def loglikelihood(self, requests: list[Instance], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        """(log-likelihood in nats, whether greedy decoding would choose it) of each continuation after its context."""
        pairs = [_split_spaces(*request.args) for request in requests]
        encoded = self._encode(text for before, after in pairs if before for text in (before, before + after))
        alone = self._encode((after for before, after in pairs if not before), add_special_tokens=False)
        tokens = []
        for before, after in pairs:
            if before:
                ids = encoded[before]
                tokens.append((ids, encoded[before + after][len(ids) :]))
            else:
                ids = alone[after]
                starts = ids[:1] == [self.prefix_token_id]
                tokens.append((ids[:1], ids[1:]) if starts else ([self.prefix_token_id], ids))
        labels = [(request.task_name or "", request.doc_id) for request in requests]
        return self._continuations(tokens, labels)

    def _loglikelihood_tokens(
        self, requests: list[tuple[tuple[str, str], list[int], list[int]]], **kwargs: Any
    ) -> list[tuple[float, bool]]:
        labels = [("request", number) for number in range(len(requests))]
        return self._continuations([(context, continuation) for _, context, continuation in requests], labels)

    def loglikelihood_rolling(self, requests: list[Instance], disable_tqdm: bool = False) -> list[float]:
        """Log-likelihood (nats) of each text as a whole, cut into windows (see `documents`)."""
        strings = [request.args[0] for request in requests]
        encoded = self._encode(strings)
        labels = [(request.task_name or "", request.doc_id) for request in requests]
        return self.documents([encoded[string] for string in strings], labels)

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        raise UserError(f"{self.name}: this engine scores text and generates none; remove the task from evaluate.tasks")

    # ------------------------------------------------------------ scoring

    def documents(self, documents: Sequence[Sequence[int]], labels: Sequence[Label]) -> list[float]:
        """Log-likelihood (nats) of each token sequence, by lm-eval's rolling windows.

        The first window starts with the prefix token; each token is predicted exactly once; the last window is moved
        back so that its tokens see a full context.
        """
        pieces = [
            Piece((*context, *targets[:-1]), tuple(targets), slot)
            for slot, tokens in enumerate(documents)
            for context, targets in self._windows(list(map(int, tokens)), self.prefix_token_id)
        ]
        return self._score(pieces, labels)[0].tolist()

    def _windows(self, tokens: list[int], prefix: int) -> Iterable[tuple[list[int], list[int]]]:
        windows = get_rolling_token_windows(tokens, prefix_token=prefix, max_seq_len=self.max_length, context_len=1)
        return map(make_disjoint_window, windows)

    def _continuations(
        self, tokens: Sequence[tuple[list[int], list[int]]], labels: Sequence[Label]
    ) -> list[tuple[float, bool]]:
        """Score continuations after contexts (token ids, neither empty).

        A context that does not fit is cut from the left, as in HFLM, and its document is added to `truncated`. A
        continuation longer than the window, which HFLM refuses, is scored in rolling windows after the context's last
        token.
        """
        pieces = []
        for slot, (context, continuation) in enumerate(tokens):
            if not context or not continuation:
                what = "context" if not context else "continuation"
                raise UserError(
                    f"{self.name}: {_where(labels[slot])}: its tokenizer leaves no token of the {what} on its own"
                )
            whole = (*context, *continuation)
            if len(whole) > self.max_length + 1:
                self.truncated.add(labels[slot])
            if len(continuation) <= self.max_length:
                pieces.append(Piece(whole[-(self.max_length + 1) : -1], tuple(continuation), slot))
                continue
            for before, targets in self._windows(continuation, context[-1]):
                pieces.append(Piece((*before, *targets[:-1]), tuple(targets), slot))
        values, greedy = self._score(pieces, labels)
        return list(zip(values.tolist(), greedy.tolist(), strict=True))

    def _score(self, pieces: Sequence[Piece], labels: Sequence[Label]) -> tuple[np.ndarray, np.ndarray]:
        """Sum of log-probabilities (float64) and greedy flag (bool) by slot."""
        values, greedy = np.zeros(len(labels)), np.ones(len(labels), dtype=bool)
        members: dict[tuple[int, ...], list[Piece]] = {}
        for piece in pieces:
            members.setdefault(piece.inputs, []).append(piece)
        remaining: dict[Label, int] = dict.fromkeys(labels, 0)
        for piece in pieces:
            remaining[labels[piece.slot]] += 1
        total = len(remaining)
        done = sum(not count for count in remaining.values())
        progress = Progress(self.title)
        first = {inputs: number for number, inputs in enumerate(members)}
        rows = list(self._rows(members))
        longest = max(map(len, rows), default=0)
        if longest > self.proven:
            self._prove(rows, members, labels)
            self.proven = longest
            rows = rows if self.branching else list(self._rows(members))
        rows.sort(key=lambda row: min(first[inputs] for inputs in row.inputs))
        for batch in self._batches(rows):
            self._score_batch(batch, members, values, greedy, labels)
            for piece in (piece for row in batch for inputs in row.inputs for piece in members[inputs]):
                remaining[labels[piece.slot]] -= 1
                done += not remaining[labels[piece.slot]]
            progress.show(done, total)
        return values, greedy

    def _rows(self, inputs: Iterable[tuple[int, ...]]) -> Iterable[Row]:
        """Distinct inputs as rows: an input joins the row before it if that is less work than a new row."""
        row = Row()
        for each in sorted(inputs):
            shared = row.shared(each)
            whole = len(row) + len(each) - shared
            more_pairs = whole**2 - len(row) ** 2 - len(each) ** 2
            worth = self.branching and self.token_cost * shared > self.pair_cost * more_pairs
            if row.inputs and not (worth and whole <= min(TREE_TOKENS, self.max_batch_tokens)):
                yield row
                row = Row()
            row.add(each)
        if row.inputs:
            yield row

    def _batches(self, rows: Iterable[Row]) -> Iterable[list[Row]]:
        """Longest rows first, so that a row's length bounds the following ones; else in order, to finish documents."""
        batch: list[Row] = []
        for row in sorted(rows, key=lambda row: (row.branches, -len(row))):
            if batch:
                width = len(batch[0])
                full = (len(batch) + 1) * width > self.max_batch_tokens or self.alone
                padded = len(row) < FILLED * width and len(batch) * width > SMALL_BATCH * self.max_batch_tokens
                if full or padded or row.branches != batch[0].branches:
                    yield batch
                    batch = []
            batch.append(row)
        if batch:
            yield batch

    @torch.inference_mode()
    def _score_batch(
        self,
        batch: list[Row],
        members: dict[tuple[int, ...], list[Piece]],
        values: np.ndarray,
        greedy: np.ndarray,
        labels: Sequence[Label],
    ) -> None:
        width = len(batch[0])
        positions: dict[int, int] = {}  # in the flat batch: their number in the order in which they are scored
        entries = []  # (number of the position, target, slot)
        for number, row in enumerate(batch):
            for inputs, nodes in zip(row.inputs, row.nodes, strict=True):
                for piece in members[inputs]:
                    for node, target in zip(nodes[-len(piece.targets) :], piece.targets, strict=True):
                        place = positions.setdefault(number * width + node, len(positions))
                        entries.append((place, target, piece.slot))
        entries.sort(key=lambda entry: entry[0])  # stable: within a slot, tokens stay in order
        where, targets, slots = (np.array(column, dtype=np.int64) for column in zip(*entries, strict=True))
        with torch.autocast(self._device.type, dtype=self.autocast, enabled=self.autocast is not None):
            states = self._states(*self._tensors(batch), list(positions))
            for first in range(0, len(positions), self.chunk_rows):
                low, high = np.searchsorted(where, [first, first + self.chunk_rows])
                chunk = states[first : first + self.chunk_rows]
                scores, best = log_probabilities(self.logits(chunk), where[low:high] - first, targets[low:high])
                if not np.isfinite(scores).all():
                    slot = slots[low:high][~np.isfinite(scores)][0]
                    raise UserError(f"{self.name}: its logits are not finite on {_where(labels[slot])}; train it again")
                np.add.at(values, slots[low:high], scores)
                np.logical_and.at(greedy, slots[low:high], best)

    def _tensors(self, batch: list[Row]) -> tuple[Tensor, dict[str, Tensor]]:
        """Ids (B, T), padded on the right, where no token attends to it; for branches also positions (B, T) and a mask.

        The mask (B, 1, T, T), float32, is added to the scores of attention.
        """
        width = max(map(len, batch))
        ids = np.zeros((len(batch), width), dtype=np.int64)
        depth, end = np.zeros_like(ids), np.full_like(ids, width)
        for number, row in enumerate(batch):
            ids[number, : len(row)], depth[number, : len(row)], end[number, : len(row)] = row.tokens, row.depth, row.end
        ids, depth, end = (torch.from_numpy(array).to(self._device) for array in (ids, depth, end))
        if not any(row.branches for row in batch):
            return ids, {}
        place = torch.arange(width, device=self._device)
        allowed = (place <= place[:, None]) & (place[:, None] < end[:, None, :])
        mask = torch.zeros((len(batch), 1, width, width), device=self._device)
        mask.masked_fill_(~allowed[:, None], torch.finfo(mask.dtype).min)
        return ids, {"position_ids": depth, "attention_mask": mask}

    def _states(self, ids: Tensor, more: dict[str, Tensor], positions: list[int]) -> Tensor:
        """The head's inputs (n, d), or without a separate head the logits (n, V), at flat positions of (B, T)."""
        if self.head is None:
            states = self.model(input_ids=ids, use_cache=False, **more).logits
        else:
            states = self.model.base_model(input_ids=ids, use_cache=False, **more).last_hidden_state
        return states.flatten(0, 1)[torch.tensor(positions, device=self._device)]

    def logits(self, states: Tensor) -> Iterator[tuple[int, Tensor]]:
        """Logits (n, tokens), float32, of the head's inputs (n, d), by parts of the vocabulary: first token, part.

        The memory of a part is used again by the next one.
        """
        head = self.head
        if head is None:
            yield 0, states.float()
        elif type(head) is not nn.Linear or head._forward_hooks or head._forward_pre_hooks:
            yield 0, head(states).float()
        else:
            for first in range(0, len(head.weight), self.chunk_tokens):
                weight = head.weight[first : first + self.chunk_tokens]
                bias = None if head.bias is None else head.bias[first : first + self.chunk_tokens]
                if self.autocast is not None or states.dtype != torch.float32 or bias is not None:
                    yield first, nn.functional.linear(states, weight, bias).float()
                    continue
                size = len(states) * len(weight)
                if len(self.space) < size:
                    self.space = torch.empty(size, device=states.device)
                yield first, torch.mm(states, weight.T, out=self.space[:size].view(len(states), len(weight)))

    # ------------------------------------------------------------ what the model can do

    def _costs(self) -> tuple[float, float]:
        """Floating-point operations of the layers for a token, and of attention for a pair of tokens."""
        settings = getattr(self.model.config, "text_config", None) or self.model.config
        table = self.model.get_input_embeddings()
        inside = {id(weight) for weight in (*table.parameters(), *(self.head.parameters() if self.head else ()))}
        weights = sum(weight.numel() for weight in self.model.parameters() if id(weight) not in inside)
        return 2.0 * weights, ATTENTION_COST * 4.0 * settings.hidden_size * settings.num_hidden_layers

    @torch.inference_mode()
    def _branches(self) -> bool:
        """Whether a row with branches gives the logits that its inputs give alone.

        Models that take no such mask, that attend to a window of the context, or that are no Transformers do not.
        """
        settings = getattr(self.model.config, "text_config", None) or self.model.config
        kinds = getattr(settings, "layer_types", None) or ["full_attention"]
        if set(kinds) != {"full_attention"} or getattr(settings, "sliding_window", None) is not None:
            return False
        some = torch.linspace(0, settings.vocab_size - 1, 12).long().tolist()
        branches = sorted((tuple(some[:6]), tuple(some[:3] + some[6:9]), tuple(some[:3] + some[9:] + some[:1])))
        row, alone = row_of(*branches), [row_of(branch) for branch in branches]
        try:
            for each, nodes in zip(alone, row.nodes, strict=True):
                expected = self._states(*self._tensors([each]), list(range(len(each))))
                branched = self._states(*self._tensors([row]), nodes)
                if self.head is not None:
                    expected, branched = self.head(expected), self.head(branched)
                if not (branched - expected).abs().max() <= EXACT * expected.abs().max():
                    return False
        except (TypeError, ValueError, RuntimeError, IndexError, NotImplementedError):
            return False
        return True

    def _prove(self, rows: Sequence[Row], members: dict[tuple[int, ...], list[Piece]], labels: Sequence[Label]) -> None:
        """Turn branches off if the longest branched row changes a score, and batches if the most padding does."""
        if branched := max((row for row in rows if row.branches), key=len, default=None):
            some = {branched.inputs[0], branched.inputs[-1], max(branched.inputs, key=len)}
            self.branching = self._same([branched], some, members, labels)
        padded = [inputs for inputs in members if 2 * len(inputs) <= self.max_batch_tokens]
        if padded and not self.alone:
            short, long = min(padded, key=len), max(padded, key=len)
            self.alone = not self._same([row_of(long), row_of(short)], {long, short}, members, labels)

    def _same(
        self,
        batch: list[Row],
        some: set[tuple[int, ...]],
        members: dict[tuple[int, ...], list[Piece]],
        labels: Sequence[Label],
    ) -> bool:
        """Whether some inputs of a batch get the log-likelihoods, in float32, that they get alone."""
        together, apart = np.zeros(len(labels)), np.zeros(len(labels))
        ignored = np.ones(len(labels), dtype=bool)
        autocast, self.autocast = self.autocast, None
        try:
            self._score_batch(batch, members, together, ignored, labels)
            for inputs in some:
                self._score_batch([row_of(inputs)], members, apart, ignored, labels)
        finally:
            self.autocast = autocast
        slots = [piece.slot for inputs in some for piece in members[inputs]]
        return bool(np.abs(together - apart)[slots].max() <= SAME)

    @torch.inference_mode()
    def _separate_head(self) -> nn.Module | None:
        """The output layer if it, after the base model, gives the model's logits bit for bit; else None.

        Some architectures scale or cap logits after their output layer; a short forward pass shows it.
        """
        base = getattr(self.model, "base_model", None)
        get_head = getattr(self.model, "get_output_embeddings", None)
        head = get_head() if get_head is not None else None
        if base is None or base is self.model or head is None:
            return None
        ids = torch.arange(min(8, self.model.config.vocab_size), device=self._device)[None]
        states = getattr(base(input_ids=ids, use_cache=False), "last_hidden_state", None)
        if states is None or not torch.equal(head(states), self.model(input_ids=ids, use_cache=False).logits):
            return None
        return head


def _by_length(config: Any) -> bool:
    """Whether rotary embeddings depend on the length of a batch, so that no two rows may share one."""
    config = getattr(config, "text_config", None) or config
    rope = getattr(config, "rope_parameters", None) or {}
    rotations = [rope, *(value for value in rope.values() if isinstance(value, dict))]  # for all layers, or by kind
    return any(rotation.get("rope_type") in BY_LENGTH for rotation in rotations)


def max_length(config: Any, tokenizer: Any) -> int:
    """The model's context length as HFLM finds it: the config's, else the tokenizer's.

    Raises UserError if neither states one.
    """
    config = getattr(config, "text_config", None) or config
    for key in LENGTH_KEYS:
        if getattr(config, key, None) is not None:
            return int(getattr(config, key))
    length = tokenizer.model_max_length
    if length is None or length > 1 << 31:  # Transformers' way to say "unknown" is about 1e30
        raise UserError("neither the model's config nor its tokenizer states a context length; add it to config.json")
    return int(length)


def _split_spaces(context: str, continuation: str) -> tuple[str, str]:
    """Move the context's trailing white space to the continuation, as lm-eval does before it tokenizes."""
    kept = context.rstrip()
    return kept, context[len(kept) :] + continuation


def _where(label: Label) -> str:
    task, document = label
    return f"{task}, document {document}"
