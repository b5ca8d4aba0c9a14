"""The peer in the benchmark: the same model, the same text and the same work on both sides."""

from __future__ import annotations

import importlib.util
import io
import string
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from agents import model
from agents.config import PolicyConfig
from agents.model import Policy
from agents.tokenizer import Tokenizer
from experiments.bench import BenchConfig, bench, peer, peer_work
from experiments.bench.peer import WORKS, OurSide, compare
from experiments.bench.peer_trl import copy_weights, twin, twin_tokenizer
from experiments.bench.peer_work import (
    Chain,
    Load,
    Tally,
    Work,
    answer_chain,
    call_chain,
    check_same_work,
    varied_chain,
    write_chain,
)
from tool_gym.errors import ConfigError, ToolGymError

TINY = PolicyConfig(layers=1, heads=2, max_turn_tokens=64)
# A group so large that its rewards are not all equal.
LOAD = Load(prompts=1, group=16, rounds=1)
TOKENIZER = Tokenizer(["python"])

missing = [package for package in peer.PACKAGES if importlib.util.find_spec(package) is None]
needs_trl = pytest.mark.skipif(bool(missing), reason=f"the extra `bench` is not installed: {', '.join(missing)}")


def policy(seed: int = 0) -> Policy:
    made = Policy(TINY, len(TOKENIZER), TOKENIZER.forbidden_ids)
    made.initialise(seed)
    return made


def trained(seed: int = 0) -> Policy:
    """Gains of the norms are no longer 1."""
    made = policy(seed)
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if name.endswith("gain"):
                parameter.copy_(torch.linspace(0.5, 1.5, len(parameter)))
    return made


# ------------------------------------------------------------------ the text


@pytest.mark.parametrize("work", WORKS, ids=lambda work: work.name)
def test_a_policy_with_a_chain_in_its_weights_gives_every_next_piece_the_chain_s_probability(work: Work) -> None:
    written = policy()
    write_chain(written, TOKENIZER, work.chain)
    ids = {piece: number for number, piece in enumerate(TOKENIZER.pieces)}
    tokens = torch.tensor([[ids[piece] for piece in work.chain]])
    with torch.no_grad():
        found = torch.softmax(written(tokens)[0], dim=-1)
    wanted = torch.zeros_like(found)
    for row, followers in enumerate(work.chain.values()):
        for piece, probability in followers.items():
            wanted[row, ids[piece]] = probability
    assert torch.allclose(found, wanted, atol=0.02)
    # Off the chain next to nothing: a rollout that leaves it is not met in any run.
    assert found[wanted == 0].max() < 1e-12


@given(st.integers(19, 40), st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_what_may_follow_a_piece_of_a_chain_is_certain_to(longest: int, leave: float, again: float) -> None:
    for chain in (call_chain(longest), varied_chain(longest, leave, again), answer_chain(longest - 15)):
        assert all(abs(sum(followers.values()) - 1.0) < 1e-12 for followers in chain.values())
        assert {piece for followers in chain.values() for piece in followers} <= {*chain}


@pytest.mark.parametrize("tokens", [18, 46])
def test_a_rollout_for_which_there_are_no_letters_is_refused(tokens: int) -> None:
    with pytest.raises(ConfigError):
        call_chain(tokens)


def test_a_chain_of_more_pieces_than_the_width_has_room_for_is_refused() -> None:
    chain: Chain = {character: {"<|end|>": 1.0} for character in string.printable[:63]}
    with pytest.raises(ConfigError, match="at most 62"):
        write_chain(policy(), TOKENIZER, chain)


@pytest.mark.parametrize("work", [work for work in WORKS if work.tokens], ids=lambda work: work.name)
def test_each_rollout_of_a_whole_step_has_the_tokens_and_calls_that_the_work_asks_for(
    work: Work, tmp_path: Path
) -> None:
    side = OurSide(TINY, LOAD, tmp_path)
    try:
        write_chain(side.trainer.policy, side.trainer.setup.tokenizer, work.chain)
        before = side.trainer.policy.unembedding.weight.clone()
        assert side.run_step() > 0
    finally:
        side.trainer.setup.close()
    assert side.tally == Tally(16, 16 * (work.tokens or 0), 16 * (work.tokens or 0), 16 * (work.calls or 0))
    assert not torch.equal(side.trainer.policy.unembedding.weight, before)


# ------------------------------------------------------------------ the work


def test_one_token_or_call_too_many_is_other_work() -> None:
    work = Work("x", {}, 25, 1, ())
    check_same_work(work, Tally(8, 200, 200, 8), Tally(8, 200, 200, 8))
    for other in (Tally(8, 201, 200, 8), Tally(8, 200, 199, 8), Tally(8, 200, 200, 7), Tally(7, 200, 200, 8)):
        with pytest.raises(ToolGymError, match="different work"):
            check_same_work(work, Tally(8, 200, 200, 8), other)
        with pytest.raises(ToolGymError, match="different work"):
            check_same_work(work, other, other)


def test_rollouts_that_vary_may_differ_by_their_luck_only() -> None:
    work = Work("x", {}, None, None, ())
    check_same_work(work, Tally(100, 2500, 2500, 120), Tally(100, 2600, 2600, 116))
    with pytest.raises(ToolGymError, match="tokens 2500 here, 2700 there"):
        check_same_work(work, Tally(100, 2500, 2500, 120), Tally(100, 2700, 2700, 120))


# ------------------------------------------------------------------ the command


def quiet() -> Console:
    return Console(file=io.StringIO())


def test_an_unknown_peer_is_refused() -> None:
    with pytest.raises(ConfigError, match="'verl'; allowed: trl"):
        bench(BenchConfig(parts=(), peer="verl"), quiet())


def test_a_peer_that_is_not_installed_is_refused_before_anything_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr("experiments.bench.PARTS", {"tools": lambda config: pytest.fail("measured")})
    with pytest.raises(ConfigError, match=r"trl, transformers, datasets, accelerate missing, pip install .*\[bench\]"):
        bench(BenchConfig(parts=("tools",), peer="trl"), quiet())


def test_neither_part_nor_peer_is_refused() -> None:
    with pytest.raises(ConfigError, match="parts"):
        bench(BenchConfig(parts=()), quiet())


# ------------------------------------------------------------------ with TRL


@needs_trl
def test_the_twin_computes_what_the_policy_does() -> None:
    tokens = torch.randint(len(TOKENIZER), (4, 60), generator=torch.Generator().manual_seed(0))
    ours = trained()
    other = twin(ours)
    with torch.no_grad():
        expected, found = ours(tokens), other(input_ids=tokens).logits
    allowed = torch.isfinite(expected)
    assert torch.allclose(found[allowed], expected[allowed], atol=1e-4)
    copy_weights(trained(seed=1), other)
    with torch.no_grad():
        assert not torch.allclose(other(input_ids=tokens).logits[allowed], expected[allowed], atol=1e-2)


@needs_trl
def test_an_architecture_that_has_moved_on_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = policy()
    monkeypatch.setattr(model, "_ROTARY_BASE", 100.0)
    with pytest.raises(ToolGymError, match="no longer computes"):
        twin(ours)


@needs_trl
@given(st.lists(st.sampled_from(TOKENIZER.pieces), max_size=40))
def test_both_tokenizers_write_and_read_the_same(pieces: list[str]) -> None:
    text = "".join(pieces)
    theirs = shared_tokenizer()
    ids = theirs(text)["input_ids"]
    assert theirs.decode(ids) == text
    if not any(piece in text for piece in TOKENIZER.pieces[:3]):
        assert ids == TOKENIZER.encode(text)


_made: list[object] = []


def shared_tokenizer():  # type: ignore[no-untyped-def]
    if not _made:
        _made.append(twin_tokenizer(TOKENIZER))
    return _made[0]


@needs_trl
@pytest.mark.parametrize(
    ("work", "way"), [(work, way) for work in WORKS for way in work.ways], ids=lambda part: getattr(part, "name", part)
)
def test_both_sides_do_the_same_work_and_learn_from_it(work: Work, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def remembered(ours: Policy) -> object:
        made.append(twin(ours))
        return made[-1]

    # Few rollouts: their luck differs more than that of a whole run.
    monkeypatch.setattr(peer_work, "_MOST_DIFFERENCE", 0.4)
    monkeypatch.setattr(peer, "twin", remembered)
    copied = {}
    monkeypatch.setattr(
        peer,
        "copy_weights",
        lambda ours, other: (
            copy_weights(ours, other),
            copied.update({name: value.clone() for name, value in other.state_dict().items()}),
        ),
    )
    found = compare(TINY, work, way, LOAD)
    assert len(found.ours) == len(found.theirs) == 1
    assert min(found.ours + found.theirs) > 0
    moved = {name for name, value in made[0].state_dict().items() if not torch.equal(value, copied[name])}
    assert {"lm_head.weight", "model.layers.0.mlp.up_proj.weight", "model.layers.0.self_attn.v_proj.weight"} <= moved
