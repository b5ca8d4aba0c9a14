"""TRL's side of the comparison: GRPOTrainer on a policy, problems and an interpreter pool that it is given.

TRL plays turns in two ways. ``tools`` is its own loop. ``rollout_func`` takes a function of the user's: the one here
samples as that loop does, with ``generate`` on the whole text before each turn, and runs a turn's calls as one batch.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from agents import model
from agents.config import AlgoConfig
from agents.model import Policy
from agents.setup import Setup
from agents.tokenizer import BOS, END, PAD, Tokenizer
from experiments.bench.peer_work import Load, Tally
from tool_gym.errors import ToolGymError
from tool_gym.protocol import format_reply, parse
from tool_gym.tasks import Problem
from tool_gym.tools import ToolResult

PACKAGES = ("trl", "transformers", "datasets", "accelerate")
_MICRO_BATCH = 64  # rollouts; 128 are as fast, 32 and 256 slower
_LONGEST = 192  # tokens after the prompt, more than there are


# ---------------------------------------------------------------- the same policy


def twin(policy: Policy) -> Any:
    """A NemotronForCausalLM of transformers that computes the same function as the policy, weights included.

    Nemotron is the architecture of agents.model: rotary halves, squared ReLU, layer norms with a gain, no biases.
    Raises ToolGymError where its logits differ, by more than rounding, from the policy's.
    """
    from transformers import NemotronConfig, NemotronForCausalLM

    shape = policy.config
    config = NemotronConfig(
        vocab_size=policy.vocabulary,
        hidden_size=shape.width,
        intermediate_size=4 * shape.width,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.heads,
        max_position_embeddings=shape.context,
        rope_parameters={"rope_type": "default", "rope_theta": model._ROTARY_BASE, "partial_rotary_factor": 1.0},
        pad_token_id=PAD,
        bos_token_id=BOS,
        eos_token_id=END,
        attn_implementation="sdpa",
    )
    other = NemotronForCausalLM(config)
    copy_weights(policy, other)
    with torch.no_grad():
        tokens = torch.arange(4 * 32).view(4, 32) % policy.vocabulary
        ours, theirs = policy(tokens), other(input_ids=tokens).logits
    # Tokens that are never sampled have no logit here.
    allowed = torch.isfinite(ours)
    if not torch.allclose(ours[allowed], theirs[allowed], rtol=1e-3, atol=1e-4):
        raise ToolGymError("transformers' Nemotron no longer computes what agents.model does")
    return other


@torch.no_grad()
def copy_weights(policy: Policy, other: Any) -> None:
    """Give a twin the policy's weights."""
    other.model.embed_tokens.weight.copy_(policy.embedding.weight)
    other.lm_head.weight.copy_(policy.unembedding.weight)
    other.model.norm.weight.copy_(policy.final_norm.gain - 1.0)  # Nemotron adds the 1 itself
    for block, layer in zip(policy.blocks, other.model.layers, strict=True):
        attention = layer.self_attn
        inputs = (attention.q_proj, attention.k_proj, attention.v_proj)
        q, k, v = block.qkv.weight.chunk(3)
        for linear, weight in zip(inputs, (_halves(q, policy), _halves(k, policy), v), strict=True):
            linear.weight.copy_(weight)
        attention.o_proj.weight.copy_(block.attention_out.weight)
        layer.mlp.up_proj.weight.copy_(block.mlp_in.weight)
        layer.mlp.down_proj.weight.copy_(block.mlp_out.weight)
        layer.input_layernorm.weight.copy_(block.attention_norm.gain - 1.0)
        layer.post_attention_layernorm.weight.copy_(block.mlp_norm.gain - 1.0)


def _halves(weight: torch.Tensor, policy: Policy) -> torch.Tensor:
    """Rows of a projection in Nemotron's order: a rotary plane's coordinates half a head apart, not side by side."""
    return weight.view(policy.config.heads, -1, 2, policy.config.width).transpose(1, 2).flatten(0, 2)


# ---------------------------------------------------------------- the same text


# A conversation as our episodes write it. TRL tries templates out with other arguments, which are shown as they are.
_CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "{%- if message.role == 'user' -%}<|bos|>{{ message.content }}<|end|>"
    "{%- elif message.role == 'tool' -%}<output>{{ message.content }}</output>"
    "{%- else -%}{{ message.content }}"
    "{%- for call in message.tool_calls or [] -%}{%- set arguments = call.function.arguments -%}"
    "<{{ call.function.name }}>{{ arguments.code or arguments }}</{{ call.function.name }}>"
    "{%- endfor -%}<|end|>"
    "{%- endif -%}"
    "{%- endfor -%}"
)
_RESPONSE_TEMPLATE = {
    "defaults": {"role": "assistant"},
    "start_anchor": ["<|end|>", "</output>"],
    "fields": {
        "tool_calls": {
            "open": "<python>",
            "close": "</python>",
            "repeats": True,
            "content": "text",
            "transform": {"type": "function", "function": {"name": "python", "arguments": {"code": "{content}"}}},
        },
        "content": {"close": "<|end|>", "content": "text"},
    },
}


def twin_tokenizer(tokenizer: Tokenizer) -> Any:
    """A tokenizer of transformers with the same ids, that writes conversations and finds the calls in turns."""
    from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers
    from tokenizers import Tokenizer as Backend
    from transformers import PreTrainedTokenizerFast

    control = tokenizer.pieces[: END + 1]
    tags = [piece for piece in tokenizer.pieces[END + 1 :] if len(piece) > 1]
    ids = {piece: number for number, piece in enumerate(tokenizer.pieces)}
    backend = Backend(models.WordLevel(ids, unk_token=control[PAD]))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    backend.decoder = decoders.Fuse()
    backend.add_special_tokens([AddedToken(piece, normalized=False) for piece in control])
    backend.add_tokens([AddedToken(piece, normalized=False) for piece in tags])
    result = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token=control[PAD],
        bos_token=control[BOS],
        eos_token=control[END],
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )
    result.chat_template, result.response_template = _CHAT_TEMPLATE, _RESPONSE_TEMPLATE
    return result


# ---------------------------------------------------------------- the same work


class TRLSide:
    """GRPOTrainer, with our loss, optimiser and sampling.

    Args:
        policy: a twin of ours.
        setup: of our run, whose task and pool are used.
        problems: of all steps, in order.
        steps: how many.
        load: prompts and rollouts of a step.
        way: ``generate`` (one turn), ``rollout_func`` or ``tools``.
        folder: TRL asks for one; nothing is written there.

    Attributes:
        seconds: of each step.
        completions: what followed the prompt in each rollout, replies included: token ids.
    """

    def __init__(
        self, policy: Any, setup: Setup, problems: Sequence[Problem], steps: int, load: Load, way: str, folder: Path
    ) -> None:
        self.setup, self.problems = setup, problems
        self.seconds: list[float] = []
        self.completions: list[list[int]] = []
        with _quiet():
            self.trainer = self._trainer(policy, _arguments(load, steps, setup.env.max_turns, folder), way)

    def _trainer(self, policy: Any, arguments: Any, way: str) -> Any:
        from datasets import Dataset
        from transformers.trainer_callback import PrinterCallback
        from trl import GRPOTrainer

        texts = [problem.prompt for problem in self.problems]
        prompts: list[Any] = [f"<|bos|>{text}<|end|>" for text in texts]
        more: dict[str, Any] = {}
        if way == "tools":
            prompts = [[{"role": "user", "content": text}] for text in texts]
            more["tools"] = [self._tool()]
        elif way == "rollout_func":
            more["rollout_func"] = self._rollout
        trainer = GRPOTrainer(
            model=policy,
            reward_funcs=self._reward,
            args=arguments,
            train_dataset=Dataset.from_dict({"prompt": prompts, "problem": list(range(len(prompts)))}),
            processing_class=twin_tokenizer(self.setup.tokenizer),
            **more,
        )
        trainer.remove_callback(PrinterCallback)
        return trainer

    def train(self, between: Callable[[], None]) -> None:
        """All steps. After each, and outside of what is measured, ``between`` is called."""
        from transformers import TrainerCallback

        seconds = self.seconds

        class Turns(TrainerCallback):  # type: ignore[misc]
            started = 0.0

            def on_train_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
                self.started = time.perf_counter()

            def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
                seconds.append(time.perf_counter() - self.started)
                between()
                self.started = time.perf_counter()

        self.trainer.add_callback(Turns())
        with _quiet():
            self.trainer.train()

    def tally(self) -> Tally:
        """What the steps did, by what came to be rewarded: all of it is trained on."""
        opening, closing, call = (self.setup.tokenizer.encode(tag)[0] for tag in ("<output>", "</output>", "<python>"))
        written = sum(len(ids) - _span(ids, opening, closing) for ids in self.completions)
        calls = sum(ids.count(call) for ids in self.completions)
        return Tally(len(self.completions), written, written, calls)

    def _reward(self, completion_ids: list[list[int]], problem: list[int], **others: Any) -> list[float]:
        """1.0 for a right answer in the last turn."""
        self.completions += completion_ids
        tokenizer, task = self.setup.tokenizer, self.setup.env.task
        rewards = []
        for ids, number in zip(completion_ids, problem, strict=True):
            answer = parse(tokenizer.decode(ids).rpartition("</output>")[2], tokenizer.tool_names).answer
            rewards.append(float(answer is not None and task.grade(self.problems[number], answer)))
        return rewards

    def _tool(self) -> Callable[[str], str]:
        pool = self.setup.pool

        def python(code: str) -> str:
            """Runs a Python program.

            Args:
                code: The program.

            Returns:
                What it printed, then the value of a final expression.
            """
            return _shown(pool.run(code, echo=True))

        return python

    def _rollout(self, prompts: list[str], trainer: Any) -> dict[str, Any]:
        """TRL's contract of a rollout function: ids of the prompts and of what followed, and a mask of the replies."""
        tokenizer, max_turns = self.setup.tokenizer, self.setup.env.max_turns
        start: list[list[int]] = trainer.processing_class(text=prompts)["input_ids"]
        followed: list[list[int]] = [[] for _ in start]
        mask: list[list[int]] = [[] for _ in start]
        live = list(range(len(start)))
        for turn in range(max_turns):
            turns = _generate(trainer, [start[row] + followed[row] for row in live])
            for row, written in zip(live, turns, strict=True):
                followed[row] += written
                mask[row] += [1] * len(written)
            if turn == max_turns - 1:
                break
            parsed = [parse(tokenizer.decode(written), tokenizer.tool_names) for written in turns]
            calls = [(row, part.body) for row, part in zip(live, parsed, strict=True) if part.kind == "call"]
            live = [row for row, _ in calls]
            if not live:
                break
            for row, result in zip(
                live, self.setup.pool.run_batch([code for _, code in calls], echo=True), strict=True
            ):
                reply = tokenizer.encode(format_reply(result, tokenizer.tool_names))
                followed[row] += reply
                mask[row] += [0] * len(reply)
        # Log-probabilities are asked for where another engine samples; of its own TRL has none either.
        return {"prompt_ids": start, "completion_ids": followed, "logprobs": None, "env_mask": mask}


def _generate(trainer: Any, texts: Sequence[list[int]]) -> list[list[int]]:
    """One turn for each text, its end included, as TRL's own loop samples it."""
    width = max(map(len, texts))
    ids = torch.tensor([[PAD] * (width - len(text)) + text for text in texts])
    seen = torch.tensor([[0] * (width - len(text)) + [1] * len(text) for text in texts])
    with torch.no_grad():
        sampled = trainer.model.generate(
            input_ids=ids, attention_mask=seen, generation_config=trainer.generation_config
        )
    turns: list[list[int]] = sampled[:, width:].tolist()
    return [turn[: turn.index(END) + 1] if END in turn else turn for turn in turns]


def _shown(result: ToolResult) -> str:
    return result.output.removesuffix("\n") if result.ok else f"{result.kind}: {result.message}"


def _span(ids: Sequence[int], opening: int, closing: int) -> int:
    """Tokens of the stretches from an opening to its closing one."""
    starts = [place for place, number in enumerate(ids) if number == opening]
    ends = [place for place, number in enumerate(ids) if number == closing]
    return sum(end - start + 1 for start, end in zip(starts, ends, strict=True))


def _arguments(load: Load, steps: int, max_turns: int, folder: Path) -> Any:
    """Loss, optimiser and sampling of our side, and what makes TRL fast on a CPU."""
    from trl import GRPOConfig

    algo = AlgoConfig()
    micro_batch = math.gcd(_MICRO_BATCH, load.rollouts)
    return GRPOConfig(
        output_dir=str(folder),
        max_steps=steps,
        num_generations=load.group,
        per_device_train_batch_size=micro_batch,
        gradient_accumulation_steps=load.rollouts // micro_batch,
        max_completion_length=_LONGEST,
        max_tool_calling_iterations=max_turns - 1,
        temperature=1.0,
        top_k=0,
        top_p=1.0,
        beta=0.0,
        loss_type="dapo",
        scale_rewards="group",
        epsilon=algo.clip_low,
        epsilon_high=algo.clip_high,
        learning_rate=algo.learning_rate,
        lr_scheduler_type="constant",
        adam_beta1=0.9,
        adam_beta2=0.95,
        weight_decay=0.0,
        max_grad_norm=algo.grad_clip,
        shuffle_dataset=False,
        seed=load.seed,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        logging_strategy="no",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the warnings that a rollout function is experimental and that TRL uses deprecated names."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*'rollout_func'.*", category=UserWarning)
        warnings.filterwarnings("ignore", category=FutureWarning)
        yield
