"""Whole runs of a very small policy: same seed same bytes, resume equals uninterrupted, paired arms."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import agents
from agents import runs, trainer
from agents.config import Config
from agents.engine import packed_logits
from agents.evaluation import Evaluator
from agents.grpo import token_logprobs, update
from agents.metrics import METRICS
from agents.packing import pack
from agents.selection import SELECTORS, repeated_ngrams
from agents.setup import Setup
from agents.trainer import Trainer, select_rollouts, training_batch
from experiments.sweep import SweepConfig, plan
from tests.tiny import Silent, rows, tiny_config
from tool_gym import ToolEnv, rng
from tool_gym.errors import ConfigError, DivergenceError, InfrastructureError
from tool_gym.registration import resolve
from tool_gym.tasks import Arithmetic
from tool_gym.tools import Finished, PythonTool, ToolRequest, ToolResult


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, tiny_cold_starts: Callable[[Path], Path]) -> Path:
    """The folder of a finished run; do not write into it."""
    return trainer.train(tiny_config(tiny_cold_starts(tmp_path_factory.mktemp("runs"))), Silent())


def start(config: Config) -> Trainer:
    """A trainer after the cold start, before its first step."""
    Path(config.run.runs_dir).mkdir(exist_ok=True)
    opened = Trainer(config, Path(config.run.runs_dir) / "none", Silent())
    opened.prepare()
    return opened


@pytest.fixture
def cache(tmp_path: Path, tiny_cold_starts: Callable[[Path], Path]) -> Path:
    """A folder for runs that has their cold starts."""
    return tiny_cold_starts(tmp_path)


def test_a_run_leaves_what_the_readme_says(finished: Path) -> None:
    assert {p.name for p in finished.iterdir()} == {
        "config.json",
        "reference.safetensors",
        "metrics.jsonl",
        "trajectories.jsonl",
        "checkpoints",
        "summary.json",
        "curves.png",
    }
    steps = {p.name for p in (finished / "checkpoints").iterdir()}
    assert steps == {"step_000000", "step_000002", "step_000004", "best"}
    lines = [json.loads(line) for line in (finished / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [0, 1, 2, 3, 4]
    assert all(tuple(line) == METRICS for line in lines)
    assert [line["eval/accuracy"] is not None for line in lines] == [True, False, True, False, True]
    assert (finished / "curves.png").read_bytes().startswith(b"\x89PNG")
    summary = runs.read_summary(finished)
    assert summary["steps"] == 4
    assert summary["test"].keys() == {"last", "best"}
    record = json.loads((finished / "config.json").read_text())
    assert record["versions"]["torch"] == torch.__version__
    assert runs.read_config(finished).run.name == "run"


def test_trajectories_tell_what_selection_did(finished: Path) -> None:
    lines = [json.loads(line) for line in (finished / "trajectories.jsonl").read_text().splitlines()]
    assert {line["step"] for line in lines} == {2, 4}
    for line in lines:
        assert line["prompt"] in line["text"]
        assert line["reward"] in (0.0, 1.0)
        assert not line["selected"] or line["trainable"]
        assert len(line["calls"]) == line["text"].count("<python>") or line["text"].count("<python>") > len(
            line["calls"]
        )


@pytest.mark.parametrize(("workers", "live_rows"), [(2, 24), (1, 5), (3, 1000)])
def test_the_same_seed_gives_the_same_bytes_whatever_the_workers_and_live_rows(
    workers: int, live_rows: int, finished: Path, tmp_path: Path
) -> None:
    again = trainer.train(tiny_config(tmp_path, **{"run.workers": workers, "run.live_rows": live_rows}), Silent())
    assert rows(again) == rows(finished)
    assert (again / "trajectories.jsonl").read_bytes() == (finished / "trajectories.jsonl").read_bytes()
    assert (again / "summary.json").read_bytes() == (finished / "summary.json").read_bytes()
    for name in ("policy", "optimizer"):
        file = f"checkpoints/step_000004/{name}.safetensors"
        assert (again / file).read_bytes() == (finished / file).read_bytes()


class Killed(BaseException):
    """Stands for SIGKILL: nothing of ours catches it, and no file is written after it."""


# Where a run is killed: before or after this method of Trainer runs for the n-th time.
KILLS = [
    ("prepare", 1, "before"),  # nothing but the folder and its configuration
    ("begin", 1, "before"),
    ("_record", 1, "before"),  # step 0: the best policy is kept, no line and no checkpoint
    ("_record", 1, "after"),
    ("_record", 2, "after"),  # step 1: a line, the checkpoint is that of step 0
    ("_write_trajectories", 1, "after"),  # step 2: trajectories and best policy, no line
    ("_record", 4, "after"),  # step 3
    ("_save", 5, "before"),  # step 4, or a new best policy
    ("_finish", 1, "before"),
]


@pytest.mark.parametrize(("method", "count", "moment"), KILLS)
def test_a_run_that_is_killed_and_resumed_is_the_run_that_was_not(
    method: str, count: int, moment: str, finished: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = getattr(Trainer, method)
    calls = []

    def killed(self: Trainer, *arguments: Any, **named: Any) -> Any:
        calls.append(1)
        if len(calls) == count and moment == "before":
            raise Killed
        result = original(self, *arguments, **named)
        if len(calls) == count:
            raise Killed
        return result

    monkeypatch.setattr(Trainer, method, killed)
    with pytest.raises(Killed):
        trainer.train(tiny_config(cache), Silent())
    monkeypatch.undo()
    if method == "_record" and count == 4:
        # Cut in the middle of a line, as a kill can leave it.
        with (cache / "run" / "metrics.jsonl").open("a") as file:
            file.write('{"step": 4, "rew')
    trainer.resume(cache / "run", Silent())
    assert rows(cache / "run") == rows(finished)
    for file in ("summary.json", "trajectories.jsonl", "checkpoints/step_000004/policy.safetensors"):
        assert (cache / "run" / file).read_bytes() == (finished / file).read_bytes()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("metrics.jsonl", b"garbage\n", r"metrics\.jsonl, line 1.*JSONDecodeError"),
        ("metrics.jsonl", b'{"step": 0}\n{"reward": 1}\n', r"metrics\.jsonl, line 2.*KeyError"),
        ("metrics.jsonl", None, r"metrics\.jsonl.*FileNotFoundError"),
        ("reference.safetensors", b"1234", r"reference\.safetensors.*an intact file"),
    ],
)
def test_a_damaged_run_is_refused_by_file_and_left_as_it_is(
    name: str, content: bytes | None, message: str, finished: Path, cache: Path
) -> None:
    folder = Path(shutil.copytree(finished, cache / "run"))
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(content)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(ConfigError, match=message):
        trainer.resume(folder, Silent())
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_a_run_whose_sizes_were_edited_is_refused_and_what_a_kill_left_behind_is_removed(
    finished: Path, cache: Path
) -> None:
    folder = Path(shutil.copytree(finished, cache / "run"))
    (folder / "checkpoints" / "step_9backup").mkdir()
    (folder / "checkpoints" / ".step_000006.99.tmp").mkdir()
    (folder / ".summary.json.99.tmp").write_text("{")
    trainer.resume(folder, Silent())
    left = {path.name for path in folder.rglob("*") if path.name.startswith(".")}
    assert left == set()
    assert (folder / "checkpoints" / "step_9backup").exists()
    record = json.loads((folder / "config.json").read_text())
    record["config"]["policy"]["width"] = 64
    (folder / "config.json").write_text(json.dumps(record))
    with pytest.raises(ConfigError, match="changed after it was written") as caught:
        trainer.resume(folder, Silent())
    assert "\n" not in str(caught.value)


def test_a_run_that_is_going_on_is_not_resumed_by_another(finished: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in finished.rglob("*")}
    # A second descriptor is refused like a second process.
    with runs.locked(finished), pytest.raises(ConfigError, match="no other process is working on"):
        trainer.resume(finished, Silent())
    assert {path: path.stat().st_mtime_ns for path in finished.rglob("*")} == before


def lose(monkeypatch: pytest.MonkeyPatch, share: float) -> None:
    """The machinery loses a share of the python tool's calls, keyed by their number."""
    original = PythonTool.submit
    seen = [0]

    def submit(self: PythonTool, requests: Sequence[ToolRequest], pool: Any) -> Any:
        pending = original(self, requests, pool)
        results: dict[int, ToolResult] = {}
        while pending.remaining:
            results.update(pending.take(block=True))
        for index in results:
            seen[0] += 1
            if (seen[0] * 0.618) % 1 < share:
                results[index] = ToolResult("infrastructure", "lost", "worker lost")
        return Finished([results[index] for index in range(len(requests))])

    monkeypatch.setattr(PythonTool, "submit", submit)


def test_lost_calls_are_masked_and_counted_and_never_a_reward_of_zero(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny_config(cache, **{"noise.reference": "running", "run.max_invalid": 0.5})
    opened = start(config)
    lose(monkeypatch, 0.15)
    opened.folder.mkdir()
    opened.begin()
    batch = opened.sample(1)
    assert 0 < (~batch.valid_N).sum() < 0.5 * len(batch)
    assert all(any(c.origin == "infrastructure" for c in r.calls) != r.valid for r in batch.records)
    selection = select_rollouts(batch, config.algo, seed=0, step=1)
    assert batch.valid_N[selection.chosen_K].all()
    monkeypatch.setattr(opened, "sample", lambda step: batch)
    before = opened.noise.state()["reference"]
    opened._step()
    opened.setup.close()
    row = rows(opened.folder)[-1]
    assert row["infrastructure/invalid"] == (~batch.valid_N).sum()
    assert row["reward"] == pytest.approx(batch.rewards_N[batch.valid_N].mean())
    valid_calls = batch.calls.eligible_C & batch.valid_N[batch.calls.rollout_C]
    after = opened.noise.state()["reference"]
    added = batch.calls.quality_C[valid_calls]
    # Qualities are kept to nine digits: as ranks are what counts, equal ones must be equal to the last bit.
    assert after.tolist() == [*before.tolist(), *np.round(added, 9).tolist()][-4096:]


def test_a_run_that_loses_most_of_its_rollouts_stops_rather_than_train_on_the_rest(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = start(tiny_config(cache))
    before = [p.clone() for p in opened.policy.parameters()]
    lose(monkeypatch, 0.916)  # as NeMo Gym's run that trained on the rest
    with pytest.raises(InfrastructureError, match="rollouts lost a tool call"):
        opened._step()
    with pytest.raises(InfrastructureError, match="rollouts lost a tool call"):
        opened.evaluator(opened.policy, "validation")
    opened.setup.close()
    assert all(torch.equal(a, b) for a, b in zip(before, opened.policy.parameters(), strict=True))


def test_a_gradient_that_is_not_finite_stops_the_run(cache: Path) -> None:
    opened = start(tiny_config(cache))
    batch = opened.sample(1)
    opened.setup.close()
    chosen = training_batch(batch, select_rollouts(batch, opened.config.algo, seed=0, step=1), "group")
    chosen.advantages_N[:] = np.inf
    with pytest.raises(DivergenceError, match="gradient's norm"):
        update(opened.policy, opened.optimizer, chosen, opened.config.algo, 224)


def test_the_reference_of_a_run_is_its_own_whatever_becomes_of_the_cache(finished: Path, cache: Path) -> None:
    config = tiny_config(cache, **{"run.name": "other", "noise.reference": "running"})
    folder = trainer.train(config, Silent())
    reference = runs.read_reference(folder)
    shutil.rmtree(cache / ".cache")
    (folder / "summary.json").unlink()
    shutil.rmtree(folder / "checkpoints" / "step_000004")
    whole = rows(folder)
    trainer.resume(folder, Silent())
    assert rows(folder) == whole
    assert np.array_equal(runs.read_reference(folder), reference)
    assert not (cache / ".cache").exists()


def test_a_running_reference_is_kept_in_checkpoints(cache: Path) -> None:
    changes = {"noise.reference": "running", "run.steps": 2}
    folder = trainer.train(tiny_config(cache, **changes), Silent())
    first = load_file(folder / "checkpoints/step_000000/noise.safetensors")["reference"]
    second = load_file(folder / "checkpoints/step_000002/noise.safetensors")["reference"]
    assert not torch.equal(first, second)
    evaluator = Evaluator(Setup.open(tiny_config(cache, **changes)), first.numpy())
    assert evaluator.conditions["noisy"].noise.state()["reference"].tolist() == first.tolist()
    evaluator.setup.close()


@pytest.mark.parametrize("rule", list(SELECTORS))
def test_every_rule_trains(cache: Path, rule: str) -> None:
    config = tiny_config(cache, **{"algo.selector": rule, "run.steps": 1, "run.name": rule})
    opened = start(config)
    try:
        batch = opened.sample(1)
        selector = SELECTORS[rule]
        prompts, size = selector.prompts(4), selector.rollouts(4)
        assert len(batch) == prompts * size
        chosen = select_rollouts(batch, config.algo, seed=0, step=1)
        assert 1 <= chosen.groups_trained <= prompts
        per_group = np.bincount(batch.group_N[chosen.chosen_K], minlength=prompts)
        most = 8 if rule == "grpo_2g" else 4
        assert per_group.max() <= most
        assert rule == "void_turn" or set(per_group) <= {0, most}
        chosen_batch = training_batch(batch, chosen, "group")
        assert np.isfinite(chosen_batch.advantages_N).all()
        assert np.abs(chosen_batch.advantages_N).max() > 0
    finally:
        opened.setup.close()


def test_arms_of_a_seed_meet_the_same_problems_noise_and_rollouts_before_the_first_update(cache: Path) -> None:
    batches = {}
    for rule in ("roc", "stratified", "grpo", "grpo_2p"):
        opened = start(tiny_config(cache, **{"algo.selector": rule}))
        batches[rule] = opened.sample(1)
        opened.setup.close()
    roc, stratified, grpo, more = (batches[rule] for rule in ("roc", "stratified", "grpo", "grpo_2p"))
    assert np.array_equal(roc.tokens_NT, stratified.tokens_NT)
    assert np.array_equal(roc.logprobs_NT, stratified.logprobs_NT)
    # The first G of 2G rollouts are those that G would have given.
    first = np.flatnonzero(np.arange(len(roc)) % 8 < 4)
    width = grpo.tokens_NT.shape[1]
    assert np.array_equal(roc.tokens_NT[first, :width], grpo.tokens_NT)
    assert np.array_equal(roc.injected_N[first], grpo.injected_N)
    assert np.array_equal(more.tokens_NT[: len(grpo), :width], grpo.tokens_NT)


def test_stored_logprobs_agree_with_one_forward_pass_and_no_reply_is_trained(cache: Path) -> None:
    opened = start(tiny_config(cache))
    batch = opened.sample(1)
    opened.setup.close()
    with torch.no_grad():
        packed = pack(batch.tokens_NT, batch.sampled_NT, batch.lengths_N, [np.arange(len(batch))], opened.policy.device)
        again, _ = token_logprobs(packed_logits(opened.policy, packed), packed.targets_K)
    assert np.abs(again.numpy() - batch.logprobs_NT[batch.sampled_NT]).max() < 1e-4
    for row, record in enumerate(batch.records):
        own = batch.tokens_NT[row][batch.sampled_NT[row]]
        assert not set(own.tolist()) & set(opened.setup.tokenizer.forbidden_ids)
        written = opened.setup.tokenizer.decode(own.tolist())
        assert all(call.call.body in written for call in record.calls)
        assert "<output>" not in written
    assert batch.calls_N.sum() > 0


def test_an_invalid_rollout_is_neither_trained_on_nor_counted(cache: Path) -> None:
    config = tiny_config(cache)
    opened = start(config)
    batch = opened.sample(1)
    opened.setup.close()
    whole = select_rollouts(batch, config.algo, seed=0, step=1)
    lost = whole.chosen_K[:2]
    batch.valid_N[lost] = False
    chosen = select_rollouts(batch, config.algo, seed=0, step=1)
    assert not set(lost) & set(chosen.chosen_K)
    # With fewer valid rollouts than are kept, the group is dropped and counted.
    group = batch.group_N == batch.group_N[lost[0]]
    batch.valid_N[np.flatnonzero(group)[:5]] = False
    fewer = select_rollouts(batch, config.algo, seed=0, step=1)
    assert fewer.groups_invalid == 1
    assert not set(np.flatnonzero(group)) & set(fewer.chosen_K)


def test_a_group_of_which_nothing_is_chosen_is_dropped(cache: Path) -> None:
    config = tiny_config(cache, **{"algo.selector": "void_turn"})
    opened = start(config)
    batch = opened.sample(1)
    opened.setup.close()
    batch.void_N[:] = False
    whole = select_rollouts(batch, config.algo, seed=0, step=1)
    group = batch.group_N == batch.group_N[whole.chosen_K[0]]
    batch.void_N[group] = True
    chosen = select_rollouts(batch, config.algo, seed=0, step=1)
    assert chosen.groups_trained == whole.groups_trained - 1
    assert not chosen.trainable_N[group].any()
    batch.void_N[:] = True
    assert select_rollouts(batch, config.algo, seed=0, step=1).groups_trained == 0


def test_the_overlong_filter_takes_what_ended_without_an_answer_out_of_the_loss_and_not_out_of_the_advantages(
    cache: Path,
) -> None:
    config = tiny_config(cache, **{"env.max_turns": 2})
    opened = start(config)
    batch = opened.sample(1)
    opened.setup.close()
    assert batch.truncated_N.tolist() == [record.answer is None for record in batch.records]
    assert not batch.rewards_N[batch.truncated_N].any()
    plain, filtered = (
        select_rollouts(batch, config.replace(**{"algo.overlong_filter": on}).algo, seed=0, step=1)
        for on in (False, True)
    )
    assert plain.trained.tolist() == plain.chosen_K.tolist() == filtered.chosen_K.tolist()
    left = ~batch.truncated_N[filtered.chosen_K]
    assert 0 < left.sum() < len(left)
    assert filtered.trained.tolist() == filtered.chosen_K[left].tolist()
    whole, part = training_batch(batch, plain, "group"), training_batch(batch, filtered, "group")
    assert part.advantages_N.tolist() == whole.advantages_N[left].tolist()
    assert part.lengths_N.tolist() == whole.lengths_N[left].tolist()


@pytest.mark.parametrize("normalisation", ["token", "constant"])
def test_minibatches_of_what_the_overlong_filter_leaves_are_trained_on(cache: Path, normalisation: str) -> None:
    changes = {"env.max_turns": 2, "algo.overlong_filter": True, "algo.minibatches": 4, "run.steps": 1}
    folder = trainer.train(tiny_config(cache, **changes, **{"algo.normalisation": normalisation}), Silent())
    row = rows(folder)[-1]
    assert row["train/update_norm"] > 0
    assert row["roc/kept_positive"] > row["roc/kept_negative"]
    assert 0 < row["completions/truncated_ratio"] < 1


def test_the_rule_of_ngrams_sorts_by_what_the_rollouts_repeat(cache: Path) -> None:
    opened = start(tiny_config(cache, **{"algo.selector": "roc_ngram"}))
    batch = opened.sample(1)
    opened.setup.close()
    selection = select_rollouts(batch, opened.config.algo, seed=0, step=1)
    repeated = repeated_ngrams(batch.tokens_NT, batch.sampled_NT)
    assert repeated.max() > 0
    assert selection.penalty_N.tolist() == pytest.approx((selection.full_penalty_N + repeated).tolist())


def test_groups_with_equal_rewards_are_dropped_and_a_step_without_any_other_makes_no_update(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny_config(cache, **{"run.steps": 1, "run.eval_every": 1})
    opened = start(config)
    batch = opened.sample(1)
    batch.rewards_N[:] = 1.0
    assert select_rollouts(batch, config.algo, seed=0, step=1).groups_trained == 0
    before = [p.clone() for p in opened.policy.parameters()]
    monkeypatch.setattr(opened, "sample", lambda step: batch)
    opened.folder.mkdir()
    opened.begin()
    opened._step()
    opened.setup.close()
    assert opened.state.skipped == 1
    assert all(torch.equal(a, b) for a, b in zip(before, opened.policy.parameters(), strict=True))
    assert rows(opened.folder)[-1]["loss"] is None


def test_refill_samples_further_problems_for_groups_without_gradient(cache: Path) -> None:
    config = tiny_config(cache, **{"algo.refill": True, "algo.selector": "grpo", "algo.group_size": 2})
    opened = start(config)
    batch = opened.sample(1)
    opened.setup.close()
    plain = start(config.replace(**{"algo.refill": False}))
    once = plain.sample(1)
    plain.setup.close()
    assert select_rollouts(once, config.algo, seed=0, step=1).groups_trained < 4
    assert len(batch) > len(once)
    assert len(batch) <= 4 * len(once)
    trained = select_rollouts(batch, config.algo, seed=0, step=1).groups_trained
    assert trained == 4 or len(batch) == 4 * len(once)


def test_evaluation_meets_the_same_draws_whenever_it_is_asked(finished: Path, cache: Path) -> None:
    opened = start(tiny_config(cache))
    first = opened.evaluator(opened.policy, "validation")
    opened.evaluator(opened.policy, "test")
    assert opened.evaluator(opened.policy, "validation") == first
    stored = rows(finished)[0]
    assert all(stored[name] == trainer._plain(value) for name, value in first.items())
    opened.setup.close()


def test_a_trained_policy_plays_the_gymnasium_environment(finished: Path) -> None:
    player = agents.load(finished)
    env = ToolEnv(resolve("tool_gym/Arithmetic-v0", answers=2).task, noise="none")

    def play(seed: int) -> list[str]:
        observation, _ = env.reset(seed=seed)
        player.reset(seed=seed)
        turns, over = [], False
        while not over:
            turns.append(player.act(observation))
            observation, _, terminated, truncated, _ = env.step(turns[-1])
            over = terminated or truncated
        return turns

    games = [play(seed) for seed in range(6)]
    assert games == [play(seed) for seed in range(6)]
    assert any("<answer>" in turns[-1] for turns in games)
    with pytest.raises(ConfigError, match="run"):
        agents.load(finished.parent / "nothing")


def test_a_player_writes_what_generation_writes(finished: Path) -> None:
    """The player's cached decoding is that of training: the same key gives the same conversation."""
    player = agents.load(finished, "step_000000")
    opened = Setup.open(tiny_config(finished.parent))
    try:
        evaluator = Evaluator(opened, np.tile([0.0, 1.0], 128))
        batch = evaluator.play(player.policy, "test", ["clean"])["clean"]
        keys = rng.key(opened.config.run.seed, "evaluation", 2, 1, np.arange(len(batch)))
        for row, record in enumerate(batch.records):
            player.reset()
            player._key = keys[row]
            text = player.act(record.problem.prompt)
            whole = opened.tokenizer.decode(batch.tokens_NT[row].tolist())
            assert whole.startswith(record.problem.prompt + text)
            assert text
    finally:
        opened.close()


def test_a_run_and_a_sweep_write_down_the_cold_start_that_was_left_to_the_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Arithmetic, "cold_start", {"steps": 2, "batch": 16})
    left = {"sft.steps": None, "sft.batch": None, "sft.mixture": None, "run.steps": 0}
    folder = trainer.train(tiny_config(tmp_path, **left, **{"noise.kind": "none"}), Silent())
    written = runs.read_config(folder)
    assert (written.sft.steps, written.sft.batch) == (2, 16)
    asked = SweepConfig(out=tmp_path / "sweeps", seeds=(3,))
    assert {(run.sft.steps, run.sft.batch) for _, run in plan(asked)} == {(2, 16)}
    own = {(run.sft.steps, run.sft.batch) for _, run in plan(replace(asked, set={"sft.steps": "7"}))}
    assert own == {(7, 16)}
