"""Sampling of many conversations at once, on token ids alone: nothing here knows of text, tools or tasks.

Live rows are kept in blocks, several of which are decoded at once. Every row stands at a position of its own. A row
is *fed* one known token an iteration; where the last known token has been fed and the row is not waiting for a reply,
a token is sampled and becomes known. A reply enters as known tokens, so it is fed while the other rows go on sampling;
a long one is fed at once. Rows that ended leave their places, waiting ones start in a new block, and small blocks are
merged.

Rows with the same prompt and the same draws (as in evaluations under several conditions) are one row until they
are given different replies.

Each row's result depends on its own tokens, draws and replies alone: neither the neighbours, nor how long a tool
took, nor the number of live rows matters; on a processor, in float32, to the last bit (agents.kernels,
frozen.MIN_ROWS).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from agents import kernels
from agents.cache import Attention, Cache, together
from agents.frozen import MIN_ROWS
from tool_gym.rng import UInt64s, uniform

Ints = npt.NDArray[np.int64]
Tokens = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]
Bools = npt.NDArray[np.bool_]

_CHUNK = 4
"""Tokens that are fed at once, prompts and long replies, are padded to a multiple of this (see frozen.MIN_ROWS)."""
_LEAST_CHUNK = 8
"""Tokens of a reply from which on feeding it at once is worth the operations."""
_PREFILL_ROWS = 32


class Decoder(Protocol):
    """What sampling needs of a policy; see agents.frozen.FrozenPolicy."""

    @property
    def device(self) -> torch.device: ...
    @property
    def block_rows(self) -> int: ...
    @property
    def block_cost(self) -> int: ...
    def new_cache(self, rows: int, positions: int) -> Cache: ...
    def prefill(self, tokens_NQ: Tensor, cache: Cache, owners_N: Ints) -> None: ...
    def extend(self, tokens_NQ: Tensor, starts_N: Tensor, cache: Cache, rows_N: Tensor, owners_N: Ints) -> None: ...
    def decode(self, tokens_R: Tensor, positions_R: Tensor, cache: Attention, owners_R: Ints) -> Tensor: ...


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

    tokens_NT: Tokens
    sampled_NT: Bools
    logprobs_NT: Floats
    lengths_N: Ints
    clipped_N: Bools


def sample_tokens(logits_RV: Tensor, uniforms_R: Tensor) -> tuple[Tensor, Tensor]:
    """Tokens by inverse CDF from one uniform each, and their log-probabilities; none of probability 0 comes out."""
    # A product that rounds up to the total would fall behind the last token.
    uniforms_R = uniforms_R.clamp(max=1.0 - 2.0**-23)
    return (_sampled_by_rows if logits_RV.device.type == "cpu" else _sampled_at_once)(logits_RV, uniforms_R)


def _sampled_by_rows(logits_RV: Tensor, uniforms_R: Tensor) -> tuple[Tensor, Tensor]:
    tokens, logprobs = torch.empty(len(logits_RV), dtype=torch.int64), torch.empty(len(logits_RV))
    kernels.sample(logits_RV.contiguous().numpy(), uniforms_R.numpy(), tokens.numpy(), logprobs.numpy())
    return tokens, logprobs


def _sampled_at_once(logits_RV: Tensor, uniforms_R: Tensor) -> tuple[Tensor, Tensor]:
    probabilities = torch.softmax(logits_RV, dim=-1)
    cdf = torch.cumsum(probabilities, dim=-1)
    tokens = torch.searchsorted(cdf, uniforms_R[:, None] * cdf[:, -1:], right=True)
    # Of what is no number the search comes to no token.
    tokens.clamp_(max=logits_RV.shape[1] - 1)
    return tokens[:, 0], probabilities.gather(-1, tokens).log_()[:, 0]


def _tensor(array: npt.NDArray[np.generic], device: torch.device) -> Tensor:
    return torch.from_numpy(array).to(device)


class _Prefixes:
    """Keys and values of prompts, computed once per distinct prompt in blocks, kept until its last row has started."""

    def __init__(self, decoder: Decoder, prompts: Sequence[Sequence[int]], owners: Ints, uses: Ints) -> None:
        self.decoder, self.prompts = decoder, prompts
        self._owners, self._uses = owners, uses
        self._ready: dict[int, tuple[Cache, int]] = {}

    def _padded(self, prompt: int) -> int:
        return -(-len(self.prompts[prompt]) // _CHUNK) * _CHUNK

    def _compute(self, first: int) -> None:
        # Only prompts of the same padded length share a block: a row's bits must not depend on its neighbours.
        width = self._padded(first)
        alike = (p for p in range(first, len(self.prompts)) if p not in self._ready and self._padded(p) == width)
        members = [p for _, p in zip(range(_PREFILL_ROWS), alike, strict=False)]
        tokens = np.zeros((len(members), width), dtype=np.int64)
        for row, prompt in enumerate(members):
            tokens[row, : len(self.prompts[prompt])] = self.prompts[prompt]
        device = self.decoder.device
        cache = self.decoder.new_cache(len(members), width)
        self.decoder.prefill(_tensor(tokens, device), cache, self._owners[members])
        self._ready.update({prompt: (cache, row) for row, prompt in enumerate(members)})

    def cache(self, prompts: Ints, rows: int) -> Cache:
        """A cache of so many rows, whose first ones go on from prompts, at least one: from all but the last token."""
        sources: dict[int, tuple[Cache, list[int], list[int]]] = {}
        for row, prompt in enumerate(prompts.tolist()):
            if prompt not in self._ready:
                self._compute(prompt)
            prefix, place = self._ready[prompt]
            _, own, places = sources.setdefault(id(prefix), (prefix, [], []))
            own.append(row)
            places.append(place)
            self._uses[prompt] -= 1
            if self._uses[prompt] == 0:
                del self._ready[prompt]
        longest = max((prefix for prefix, _, _ in sources.values()), key=lambda prefix: prefix.positions)
        lengths = np.array([len(self.prompts[prompt]) - 1 for prompt in prompts.tolist()])
        parts = [(np.array(own), prefix, np.array(places)) for prefix, own, places in sources.values()]
        return longest.going_on(rows, parts, lengths)


class _Block:
    """Rows that are decoded together; each sits in a slot of the arrays and of the cache.

    Attributes:
        count: slots in use, the first ones.
        row: which row sits in a slot, -1 where it has ended and its place is not taken yet.
        fed, known: how many of its tokens have been fed, and are known.
        turn_start: where the turn that it writes begins.
        waiting: whether it waits for a reply.
        chunk: how many tokens of its reply are to be fed at once.
        owner: the policy that writes it.
        uniforms: its draws by position.
    """

    def __init__(self, cache: Cache, count: int, slots: int, context: int) -> None:
        self.cache, self.count = cache, count
        self.state = np.zeros((7, slots), dtype=np.int64)
        self.row, self.fed, self.known, self.turn_start, self.waiting, self.chunk, self.owner = self.state
        self.uniforms = np.zeros((slots, context), dtype=np.float32)
        # Slots that compute along without a row.
        spare = np.arange(count, MIN_ROWS)
        cache.load(spare, cache, np.zeros_like(spare))

    def make_room(self, positions: int, rows: int = MIN_ROWS) -> None:
        """Room in the cache for so many positions and rows. More positions than asked for: each time is a copy."""
        if positions > self.cache.positions or rows > self.cache.rows:
            if positions > self.cache.positions:
                positions = max(positions, min(self.cache.positions * 5 // 4, self.uniforms.shape[1]))
            used = slice(0, max(self.count, MIN_ROWS))
            cache = self.cache.like(max(used.stop, rows), max(positions, self.cache.positions))
            cache.load(used, self.cache, used)
            self.cache = cache

    def absorb(self, other: _Block) -> None:
        """Take over the rows of another block."""
        self.make_room(other.cache.positions, self.count + other.count)
        new, all_others = slice(self.count, self.count + other.count), slice(0, other.count)
        self.state[:, new], self.uniforms[new] = other.state[:, all_others], other.uniforms[all_others]
        self.cache.load(new, other.cache, all_others)
        self.count += other.count

    def part(self, slots: Ints) -> _Block:
        """A new block with copies of some rows."""
        cache = self.cache.like(max(len(slots), MIN_ROWS), self.cache.positions)
        used = slice(0, len(slots))
        cache.load(used, self.cache, slots)
        new = _Block(cache, len(slots), *self.uniforms.shape)
        new.state[:, used], new.uniforms[used] = self.state[:, slots], self.uniforms[slots]
        return new

    def compact(self) -> None:
        """Let the last rows take the places of those that have ended."""
        alive = np.flatnonzero(self.row[: self.count] >= 0)
        count = len(alive)
        holes, movers = np.flatnonzero(self.row[:count] < 0), alive[alive >= count]
        if len(holes):
            self.state[:, holes], self.uniforms[holes] = self.state[:, movers], self.uniforms[movers]
            self.cache.load(holes, self.cache, movers)
        # What stays in the freed slots computes along where there are fewer than MIN_ROWS, and is never read.
        self.state[1:, count : self.count] = 0
        self.count = count
        if 2 * count <= self.cache.rows > 4 * MIN_ROWS:
            # Or the blocks that are nearly over would together hold several times the memory of the live rows.
            used = slice(0, max(count, MIN_ROWS))
            cache = self.cache.like(used.stop, self.cache.positions)
            cache.load(used, self.cache, used)
            self.cache = cache


class _Generation:
    """The state of ``generate``: results so far, live blocks, and who waits for what."""

    def __init__(
        self,
        decoder: Decoder,
        prompts: Sequence[Sequence[int]],
        prompt_of_row: Ints,
        owner_of_prompt: Ints,
        keys_N: UInt64s,
        conversation: Conversation,
        context: int,
        end: int,
        max_turn_tokens: int,
        live_rows: int,
    ) -> None:
        self.decoder, self.conversation = decoder, conversation
        self.prompts, self.prompt_of_row = prompts, prompt_of_row
        self.owner_of_prompt, self.keys = owner_of_prompt, keys_N
        self.context, self.end, self.max_turn_tokens, self.live_rows = context, end, max_turn_tokens, live_rows
        rows = len(prompt_of_row)
        self.tokens = np.zeros((rows, context), dtype=np.int32)
        self.logprobs = np.zeros((rows, context), dtype=np.float32)
        self.sampled = np.zeros((rows, context), dtype=np.bool_)
        self.lengths = np.zeros(rows, dtype=np.int64)
        self.clipped = np.zeros(rows, dtype=np.bool_)
        # Rows that are one so far, in the order in which they start; the first of them stands for all.
        twins: dict[tuple[int, int], list[int]] = {}
        for row, origin in enumerate(zip(prompt_of_row.tolist(), keys_N.tolist(), strict=True)):
            twins.setdefault(origin, []).append(row)
        most = max(live_rows, 1)
        self.queue = [same[at : at + most] for same in twins.values() for at in range(0, len(same), most)]
        self.queue.reverse()
        self.one_with: dict[int, list[int]] = {}
        self.heard: dict[int, dict[int, list[int] | None]] = {}
        self.stands_for: dict[int, int] = {}
        uses = np.bincount([prompt_of_row[same[0]] for same in self.queue], minlength=len(prompts))
        self.prefixes = _Prefixes(decoder, prompts, owner_of_prompt, uses)
        self.slots = max(min(decoder.block_rows, live_rows), MIN_ROWS)
        self.queued, self.live = rows, 0
        self.blocks: list[_Block] = []

    def admit(self) -> None:
        """Start blocks of queued rows while there is room for one that is worth it: a full one, or half of all."""
        while self.queue:
            room = self.live_rows - self.live
            if self.live and room < min(self.decoder.block_rows, self.live_rows // 2, self.queued):
                return
            starting: list[list[int]] = []
            while self.queue and len(starting) < self.decoder.block_rows and len(self.queue[-1]) <= room:
                starting.append(self.queue.pop())
                room -= len(starting[-1])
            if not starting:
                return
            self._start(starting)

    def _start(self, starting: Sequence[list[int]]) -> None:
        rows = np.array([same[0] for same in starting])
        for same in starting:
            self.one_with[same[0]] = same
            self.queued -= len(same)
            self.live += len(same)
        prompts = self.prompt_of_row[rows]
        lengths = np.array([len(self.prompts[prompt]) for prompt in prompts])
        cache = self.prefixes.cache(prompts, max(len(rows), MIN_ROWS))
        block = _Block(cache, len(rows), self.slots, self.context)
        for row, prompt, length in zip(rows, prompts, lengths, strict=True):
            self.tokens[row, :length] = self.prompts[prompt]
        used = slice(0, len(rows))
        # The prompt's last token is fed like any other: its logits give the first sample.
        block.row[used], block.fed[used] = rows, lengths - 1
        block.owner[used] = self.owner_of_prompt[prompts]
        block.known[used] = block.turn_start[used] = lengths
        block.uniforms[used] = uniform(self.keys[rows][:, None], np.arange(self.context))
        self.blocks.append(block)

    # ------------------------------------------------------------ replies

    def take_replies(self, block: bool) -> None:
        replies = self.conversation.collect(block)
        if block and not replies:
            raise RuntimeError("every row waits for a reply, but the conversation has none outstanding")
        complete = []
        for row, reply in replies:
            first = self.stands_for.pop(row, row)
            heard = self.heard.setdefault(first, {})
            heard[row] = reply
            if len(heard) == len(self.one_with[first]):
                complete.append(first)
        if complete:
            places = {row: (b, slot) for b in self.blocks for slot, row in enumerate(b.row[: b.count].tolist())}
            for first in complete:
                self._go_on(first, *places[first])

    def _go_on(self, first: int, block: _Block, slot: int) -> None:
        """Every row that ``first`` stands for has its reply: those with the same one stay together."""
        known = int(block.known[slot])
        self.one_with.pop(first)
        groups: dict[tuple[int, ...], list[int]] = {}
        for row, reply in sorted(self.heard.pop(first).items()):
            if row != first:
                self.tokens[row, :known] = self.tokens[first, :known]
                self.logprobs[row, :known] = self.logprobs[first, :known]
                self.sampled[row, :known] = self.sampled[first, :known]
                self.clipped[row] = self.clipped[first]
            if reply is not None and known + len(reply) >= self.context:
                self.clipped[row], reply = True, None
                self.conversation.abandon([row])
            if reply is None:
                self.lengths[row] = known
                self.live -= 1
            else:
                groups.setdefault(tuple(reply), []).append(row)
        block.row[slot], block.chunk[slot] = -1, 0
        for tokens, rows in groups.items():
            if block.row[slot] >= 0:
                # Another reply has the slot already.
                block, slot = block.part(np.array([slot])), 0
                self.blocks.append(block)
            end = known + len(tokens)
            self.one_with[rows[0]] = rows
            self.tokens[rows[0], known:end] = tokens
            block.row[slot], block.known[slot], block.turn_start[slot], block.waiting[slot] = rows[0], end, end, 0
            # The last token of the reply is fed like any other: its logits give the next sample.
            block.chunk[slot] = len(tokens) - 1 if len(tokens) > _LEAST_CHUNK else 0

    # ------------------------------------------------------------ one iteration

    def tidy(self) -> None:
        """Drop what is over, and merge what has become small."""
        for block in self.blocks:
            over = int((block.row[: block.count] < 0).sum())
            if over * 8 >= block.count or (over and block.count <= MIN_ROWS):
                block.compact()
        self.blocks = [block for block in self.blocks if block.count]
        while (pair := self._cheapest_merger()) is not None:
            small, large = sorted(pair, key=lambda block: block.count)
            large.absorb(small)
            self.blocks.remove(small)

    def _cheapest_merger(self) -> tuple[_Block, _Block] | None:
        """The two blocks whose merger adds least to the positions that there is room for in vain, if it is worth it."""
        best, least = None, self.decoder.block_cost
        for a, b in itertools.combinations(self.blocks, 2):
            short, long = sorted((a, b), key=lambda block: block.cache.positions)
            waste = short.count * (long.cache.positions - short.cache.positions)
            if a.count + b.count <= self.slots and waste < least:
                best, least = (a, b), waste
        return best

    def step(self) -> bool:
        """Feed a token to each row that has one, and long replies; False if there is nothing to be fed.

        As many blocks as a block may have rows are one batch for the weights.
        """
        prepared = [(block, self._prepare(block)) for block in self.blocks]
        ready = [(block, runnable) for block, runnable in prepared if runnable.any()]
        first = rows = 0
        for last, (block, _) in enumerate(ready):
            if last > first and rows + block.count > self.decoder.block_rows:
                self._feed(ready[first:last])
                first, rows = last, 0
            rows += block.count
        if ready:
            self._feed(ready[first:])
        return bool(ready)

    def _prepare(self, block: _Block) -> Bools:
        """Feed long replies; returns which slots then have a token to be fed."""
        count = block.count
        fed, known, chunk = block.fed[:count], block.known[:count], block.chunk[:count]
        at_chunk = (chunk > 0) & (fed + chunk + 1 == known)
        runnable: Bools = (fed < known) & ~at_chunk & (block.row[:count] >= 0)
        chunks = np.flatnonzero(at_chunk)
        # Each time costs about as much as feeding a token to some dozens of rows.
        if len(chunks) * 8 >= count or (len(chunks) and not runnable.any()):
            self._feed_chunks(block, chunks)
            runnable[chunks] = True
        return runnable

    def _feed_chunks(self, block: _Block, slots: Ints) -> None:
        # Only chunks of the same padded length go together, as for prompts.
        padded = -(-block.chunk[slots] // _CHUNK) * _CHUNK
        block.make_room(block.cache.needed(block.fed[slots] + padded - 1, slots))
        for width in np.unique(padded).tolist():
            some = slots[padded == width]
            places = block.fed[some][:, None] + np.arange(width)
            inputs = self.tokens[block.row[some][:, None], np.minimum(places, self.context - 1)].astype(np.int64)
            inputs[np.arange(width) >= block.chunk[some][:, None]] = 0
            device = self.decoder.device
            starts = _tensor(block.fed[some], device)
            places_N = _tensor(some, device)
            self.decoder.extend(_tensor(inputs, device), starts, block.cache, places_N, block.owner[some])
        block.fed[slots] += block.chunk[slots]
        block.chunk[slots] = 0

    def _feed(self, ready: Sequence[tuple[_Block, Bools]]) -> None:
        """One token for each slot of some blocks; those that are not runnable compute along."""
        counts = [max(block.count, MIN_ROWS) for block, _ in ready]
        ends = np.cumsum(counts).tolist()
        places = [slice(end - count, end) for count, end in zip(counts, ends, strict=True)]
        fed = np.concatenate([block.fed[:count] for (block, _), count in zip(ready, counts, strict=True)])
        owners = np.concatenate([block.owner[:count] for (block, _), count in zip(ready, counts, strict=True)])
        # A row that waits at the end of the context is over; until then it computes along at the last position.
        position = np.minimum(fed, self.context - 1)
        inputs, uniforms = np.empty(len(fed), dtype=np.int64), np.empty(len(fed), dtype=np.float32)
        for (block, _), count, own in zip(ready, counts, places, strict=True):
            block.make_room(block.cache.needed(position[own], slice(0, count)))
            kernels.fed(self.tokens, block.uniforms, block.row[:count], position[own], inputs[own], uniforms[own])
        device = self.decoder.device
        cache = together([(block.cache, own) for (block, _), own in zip(ready, places, strict=True)])
        logits = self.decoder.decode(_tensor(inputs, device), _tensor(position, device), cache, owners)
        sampled, logprobs = (found.cpu().numpy() for found in sample_tokens(logits, _tensor(uniforms, device)))
        rows = (self.tokens, self.logprobs, self.sampled, self.clipped)
        for (block, runnable), own in zip(ready, places, strict=True):
            over = np.empty(block.count, dtype=np.int64)
            slots = (block.row, block.fed, block.known, block.waiting, block.turn_start)
            turns = kernels.emitted(
                sampled[own], logprobs[own], self.end, self.max_turn_tokens, runnable, *slots, *rows, over
            )
            if turns:
                self._submit(block, over[:turns])

    def _submit(self, block: _Block, slots: Ints) -> None:
        block.waiting[slots] = 1
        rows, turns = [], []
        for first, start, end in zip(block.row[slots], block.turn_start[slots], block.known[slots], strict=True):
            turn = self.tokens[first, start:end].astype(np.int64)
            for row in self.one_with[int(first)]:
                rows.append(row)
                turns.append(turn)
                self.stands_for[row] = int(first)
        self.conversation.submit(rows, turns)


@torch.inference_mode()
def generate(
    decoder: Decoder,
    prompts: Sequence[Sequence[int]],
    prompt_of_row: Ints,
    keys_N: UInt64s,
    conversation: Conversation,
    *,
    context: int,
    end: int,
    max_turn_tokens: int,
    live_rows: int = 256,
    owner_of_prompt: Ints | None = None,
) -> Generated:
    """Sample N conversations to their ends.

    Args:
        decoder: the policy, frozen.
        prompts: token ids of each distinct prompt, at least one each.
        prompt_of_row: (N,) which prompt each row starts from.
        keys_N: (N,) uint64; position t of a row is drawn with uniform t under its key.
        conversation: takes turns and gives replies.
        context: most tokens of a conversation.
        end: the id that ends a turn.
        max_turn_tokens: a turn is submitted as it is when it reaches this many tokens.
        live_rows: rows in progress at a time; memory grows with it, results do not change.
        owner_of_prompt: which of the decoder's policies answers each prompt; None: the first.

    Raises ValueError for a prompt that is empty or leaves no room in the context.
    """
    for prompt in prompts:
        if not 0 < len(prompt) < context:
            raise ValueError(f"a prompt of {len(prompt)} tokens does not fit a context of {context}")
    owners = np.zeros(len(prompts), dtype=np.int64) if owner_of_prompt is None else owner_of_prompt
    state = _Generation(
        decoder, prompts, prompt_of_row, owners, keys_N, conversation, context, end, max_turn_tokens, live_rows
    )
    idle = False
    while state.live or state.queue:
        state.admit()
        state.take_replies(block=idle)
        state.tidy()
        idle = bool(state.blocks) and not state.step()
    longest = int(state.lengths.max(initial=0))
    return Generated(
        tokens_NT=state.tokens[:, :longest],
        sampled_NT=state.sampled[:, :longest],
        logprobs_NT=state.logprobs[:, :longest],
        lengths_N=state.lengths,
        clipped_N=state.clipped,
    )
