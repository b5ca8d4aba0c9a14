"""Sampling of many conversations at once, on token ids alone: nothing here knows of text, tools or tasks.

Every row stands at a position of its own in one preallocated buffer. A row is *fed* one known token an
iteration; where the last known token has been fed and the row is not waiting for a reply, a token is
sampled and becomes known. A reply enters as known tokens, so it is fed while the other rows go on
sampling. Rows that ended give their place to a waiting one, or to the last live row.

Each row's result depends on its own tokens, draws and replies alone, to the last bit (model.KEY_BLOCK,
model.MIN_ROWS): neither the neighbours, nor how long a tool took, nor the number of live rows matters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from agents.model import KEY_BLOCK, MIN_ROWS, Cache

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
Bools = npt.NDArray[np.bool_]

_PROMPT_BLOCK = 16  # prompts are padded to a multiple of this for the prefill
_PREFILL_ROWS = 128


class Decoder(Protocol):
    """What sampling needs of a policy; see agents.model.Policy."""

    @property
    def device(self) -> torch.device: ...
    def new_cache(self, rows: int, positions: int) -> Cache: ...
    def prefill(self, tokens_NT: Tensor) -> Cache: ...
    def decode(self, tokens_R: Tensor, positions_R: Tensor, cache: Cache, key_length: int) -> Tensor: ...


class Conversation(Protocol):
    """The other side: takes turns, gives replies."""

    def submit(self, rows: Sequence[int], turns: Sequence[Ints]) -> None:
        """Take the tokens of one turn of each of some rows."""

    def collect(self, block: bool) -> list[tuple[int, list[int] | None]]:
        """Replies that are ready, as (row, tokens), None where the row's episode is over. ``block`` waits for one."""

    def abandon(self, rows: Sequence[int]) -> None:
        """The rows' replies do not fit into the context: their episodes are over."""


@dataclass(frozen=True)
class Generated:
    """N conversations of up to T tokens.

    Attributes:
        tokens_NT: all tokens, padded with 0 on the right.
        sampled_NT: which of them the policy sampled.
        logprobs_NT: their log-probabilities when sampled, 0 elsewhere.
        lengths_N: tokens of each row.
        clipped_N: whether a turn was cut at its limit or the context ran out.
    """

    tokens_NT: Ints
    sampled_NT: Bools
    logprobs_NT: Floats
    lengths_N: Ints
    clipped_N: Bools


def sample_tokens(logits_RV: Tensor, uniforms_R: Tensor) -> tuple[Tensor, Tensor]:
    """Tokens by inverse CDF from one uniform each, and their log-probabilities; none of probability 0 comes out."""
    top = logits_RV.amax(dim=-1, keepdim=True)
    cdf = torch.cumsum(torch.exp(logits_RV - top), dim=-1)
    total = cdf[:, -1:]
    # A product that rounds up to the total would fall behind the last token.
    targets = torch.minimum(uniforms_R[:, None] * total, torch.nextafter(total, torch.zeros_like(total)))
    tokens = (cdf <= targets).sum(dim=-1)
    logprobs = logits_RV.gather(-1, tokens[:, None]) - top - torch.log(total)
    return tokens, logprobs[:, 0]


class _Prefixes:
    """Keys and values of prompts, computed once per distinct prompt in blocks, kept until its last row has started."""

    def __init__(self, decoder: Decoder, prompts: Sequence[Sequence[int]], prompt_of_row: Ints) -> None:
        self.decoder, self.prompts = decoder, prompts
        self._uses = np.bincount(prompt_of_row, minlength=len(prompts))
        self._ready: dict[int, tuple[Cache, int]] = {}

    def _padded(self, prompt: int) -> int:
        return -(-len(self.prompts[prompt]) // _PROMPT_BLOCK) * _PROMPT_BLOCK

    def _compute(self, first: int) -> None:
        # Only prompts of the same padded length share a block: a row's bits must not depend on its neighbours.
        width = self._padded(first)
        alike = (p for p in range(first, len(self.prompts)) if p not in self._ready and self._padded(p) == width)
        members = [p for _, p in zip(range(_PREFILL_ROWS), alike, strict=False)]
        tokens = np.zeros((max(len(members), MIN_ROWS), width), dtype=np.int64)
        for row, prompt in enumerate(members):
            tokens[row, : len(self.prompts[prompt])] = self.prompts[prompt]
        cache = self.decoder.prefill(torch.from_numpy(tokens).to(self.decoder.device))
        self._ready.update({prompt: (cache, row) for row, prompt in enumerate(members)})

    def load(self, prompt: int, cache: Cache, slot: int) -> None:
        if prompt not in self._ready:
            self._compute(prompt)
        prefix, row = self._ready[prompt]
        cache.load_prefix(slot, prefix, row, len(self.prompts[prompt]) - 1)
        self._uses[prompt] -= 1
        if self._uses[prompt] == 0:
            del self._ready[prompt]


class _Slots:
    """The live rows: which row sits in which slot of the cache, and how far each has come."""

    def __init__(self, decoder: Decoder, prompts: Sequence[Sequence[int]], prompt_of_row: Ints, live_rows: int) -> None:
        self.rows = len(prompt_of_row)
        self.capacity = max(MIN_ROWS, min(live_rows, self.rows))
        self.prompts, self.prompt_of_row = prompts, prompt_of_row
        longest = max(map(len, prompts))
        self.cache = decoder.new_cache(self.capacity, -(-longest // KEY_BLOCK) * KEY_BLOCK)
        self.prefixes = _Prefixes(decoder, prompts, prompt_of_row)
        self.row = np.zeros(self.capacity, dtype=np.int64)
        self.fed = np.zeros(self.capacity, dtype=np.int64)
        self.known = np.zeros(self.capacity, dtype=np.int64)
        self.turn_start = np.zeros(self.capacity, dtype=np.int64)
        self.waiting = np.zeros(self.capacity, dtype=np.bool_)
        self.slot_of_row: dict[int, int] = {}
        self.live = self.next_row = 0
        while self.live < self.capacity and self.next_row < self.rows:
            self.live += 1
            self._start(self.live - 1)

    def _start(self, slot: int) -> None:
        row, self.next_row = self.next_row, self.next_row + 1
        prompt = int(self.prompt_of_row[row])
        self.prefixes.load(prompt, self.cache, slot)
        # The prompt's last token is fed like any other: its logits give the first sample.
        self.row[slot], self.slot_of_row[row] = row, slot
        self.known[slot] = self.turn_start[slot] = len(self.prompts[prompt])
        self.fed[slot], self.waiting[slot] = self.known[slot] - 1, False

    def make_room(self, positions: int) -> None:
        """More positions in the cache, for the rows that are still to be played at once."""
        rows = self.capacity if self.next_row < self.rows else max(self.live, MIN_ROWS)
        self.cache = self.cache.resized(rows, positions)

    def release(self, row: int) -> None:
        """The row is over: its slot takes the next row, else the last live one."""
        slot = self.slot_of_row.pop(row)
        if self.next_row < self.rows:
            self._start(slot)
            return
        self.live -= 1
        last = self.live
        if slot != last:
            self.cache.copy_row(last, slot, int(self.fed[last]))
            for state in (self.row, self.fed, self.known, self.turn_start, self.waiting):
                state[slot] = state[last]
            self.slot_of_row[int(self.row[slot])] = slot
        # What stays in the freed slot computes along as padding and is never read.
        self.fed[last], self.known[last], self.waiting[last] = 0, 0, True


@torch.inference_mode()
def generate(
    decoder: Decoder,
    prompts: Sequence[Sequence[int]],
    prompt_of_row: Ints,
    uniforms_NT: npt.NDArray[np.floating],
    conversation: Conversation,
    *,
    end: int,
    max_turn_tokens: int,
    live_rows: int = 256,
) -> Generated:
    """Sample N conversations to their ends.

    Args:
        decoder: the policy.
        prompts: token ids of each distinct prompt, at least one each.
        prompt_of_row: (N,) which prompt each row starts from.
        uniforms_NT: one uniform per row and position; T is the context.
        conversation: takes turns and gives replies.
        end: the id that ends a turn.
        max_turn_tokens: a turn is submitted as it is when it reaches this many tokens.
        live_rows: rows in the cache at a time; memory grows with it, results do not change.

    Raises ValueError for a prompt that is empty or leaves no room in the context.
    """
    rows, context = uniforms_NT.shape
    for prompt in prompts:
        if not 0 < len(prompt) < context:
            raise ValueError(f"a prompt of {len(prompt)} tokens does not fit a context of {context}")
    tokens = np.zeros((rows, context), dtype=np.int64)
    for row, prompt_number in enumerate(prompt_of_row):
        tokens[row, : len(prompts[prompt_number])] = prompts[prompt_number]
    logprobs = np.zeros((rows, context), dtype=np.float32)
    sampled = np.zeros((rows, context), dtype=np.bool_)
    lengths = np.zeros(rows, dtype=np.int64)
    clipped = np.zeros(rows, dtype=np.bool_)
    uniforms = torch.from_numpy(uniforms_NT.astype(np.float32)).to(decoder.device)
    slots = _Slots(decoder, prompts, prompt_of_row, live_rows)

    def take_replies(block: bool) -> None:
        replies = conversation.collect(block)
        if block and not replies:
            raise RuntimeError("every row waits for a reply, but the conversation has none outstanding")
        for row, reply in replies:
            slot = slots.slot_of_row[row]
            known = int(slots.known[slot])
            if reply is not None and known + len(reply) >= context:
                clipped[row], reply = True, None
                conversation.abandon([row])
            if reply is None:
                lengths[row] = known
                slots.release(row)
                continue
            tokens[row, known : known + len(reply)] = reply
            slots.known[slot] = slots.turn_start[slot] = known + len(reply)
            slots.waiting[slot] = False

    def feed(count: int, runnable: Bools) -> None:
        """One token for each of the first ``count`` slots; those that are not runnable compute along."""
        row, fed = slots.row[:count], slots.fed[:count]
        # A row that waits at the end of the context is over; until then it computes along at the last position.
        position = np.minimum(fed, context - 1)
        inputs = np.where(runnable, tokens[row, position], 0)
        key_length = -(-(int(position.max()) + 1) // KEY_BLOCK) * KEY_BLOCK
        if key_length > slots.cache.positions:
            slots.make_room(key_length)
        positions = torch.from_numpy(position).to(decoder.device)
        logits = decoder.decode(torch.from_numpy(inputs).to(decoder.device), positions, slots.cache, key_length)
        targets = torch.from_numpy(row * context + np.minimum(fed + 1, context - 1)).to(decoder.device)
        drawn, drawn_logprobs = sample_tokens(logits, uniforms.view(-1)[targets])
        fed += runnable
        emit = np.flatnonzero(runnable & (fed == slots.known[:count]) & ~slots.waiting[:count])
        if not len(emit):
            return
        new, place, which = drawn.cpu().numpy()[emit], slots.known[emit], slots.row[emit]
        tokens[which, place], sampled[which, place] = new, True
        logprobs[which, place] = drawn_logprobs.cpu().numpy()[emit]
        slots.known[emit] += 1
        cut = (slots.known[emit] - slots.turn_start[emit] >= max_turn_tokens) | (slots.known[emit] >= context)
        over = emit[(new == end) | cut]
        if len(over):
            clipped[which[cut & (new != end)]] = True
            slots.waiting[over] = True
            turns = [tokens[slots.row[s], slots.turn_start[s] : slots.known[s]] for s in over]
            conversation.submit([int(r) for r in slots.row[over]], turns)

    idle = False
    while slots.live:
        take_replies(block=idle)
        count = max(slots.live, MIN_ROWS)
        runnable = slots.fed[:count] < slots.known[:count]
        runnable[slots.live :] = False
        idle = not runnable.any()
        if slots.live and not idle:
            feed(count, runnable)
    longest = int(lengths.max(initial=0))
    return Generated(tokens[:, :longest], sampled[:, :longest], logprobs[:, :longest], lengths, clipped)
