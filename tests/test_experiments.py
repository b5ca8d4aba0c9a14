"""Sweeps, tables and evaluation of finished runs."""

from __future__ import annotations

import dataclasses
import gzip
import io
import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pyarrow import parquet
from rich.console import Console

from agents.config import Config
from agents.metrics import TIMING
from agents.runs import create, git_state, locked, read_config, revision, told_revision
from agents.trainer import train
from experiments import executors, store
from experiments import sweep as sweep_module
from experiments.__main__ import run
from experiments.compare import CompareConfig, compare
from experiments.estimands import settings_of
from experiments.evaluate import EvaluateConfig, evaluate
from experiments.presets import PRESETS, Part, Preset, expand
from experiments.store import Run, identity, read_runs
from experiments.sweep import SweepConfig, plan, sweep
from tests.synthetic_runs import arm, synthetic_run
from tests.test_train_cli import ROOT, one_line
from tests.tiny import Silent, rows, tiny_config
from tool_gym.errors import ConfigError

SMALL = {
    "env.answers": "2",
    "policy.layers": "1",
    "policy.width": "32",
    "policy.heads": "2",
    "policy.context": "224",
    "sft.steps": "60",
    "sft.batch": "16",
    "sft.demonstrations": "512",
    "sft.warmup": "10",
    "sft.learning_rate": "1e-2",
    "algo.prompts": "4",
    "algo.group_size": "4",
    "run.steps": "2",
    "run.eval_every": "1",
    "run.eval_problems": "8",
    "run.test_problems": "8",
}


def results(folder: Path) -> Any:
    """The table of a sweep without what depends on the clock."""
    return parquet.read_table(folder / "store" / "results.parquet").drop_columns(list(TIMING))


def say() -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    return Console(file=out, width=400), out


@pytest.mark.parametrize("name", list(PRESETS))
def test_presets_are_grids_of_valid_runs_with_distinct_names_and_results(name: str) -> None:
    preset = PRESETS[name]
    # Planned, as the sweep does at its start: a style or level that the environment lacks is refused there.
    runs = plan(SweepConfig(preset=name))
    assert len(runs) == len(expand(preset, Config().replace(**preset.settings)))
    assert len({run_name for run_name, _ in runs}) == len({identity(run) for _, run in runs}) == len(runs)
    for_tuning = name in ("tune", "tune-penalty", "cold-start")
    for part in preset.parts:
        assert all((seed >= 1000) == for_tuning for seed in part.seeds)
        assert for_tuning or all(seed < 100 for seed in part.seeds)


def test_the_headline_has_the_runs_that_were_asked_for() -> None:
    runs = [run for _, run in expand(PRESETS["correlated-vs-iid"], Config())]
    assert len(runs) == 20 * 14 + 10 * 14
    pairs = [run for _, run in expand(PRESETS["switch"], Config())]
    arms = {(run.algo.selector, run.algo.switch_to) for run in pairs}
    assert arms == {("roc", None), ("stratified", None), ("roc", "stratified"), ("stratified", "roc")}
    assert len(pairs) == 20 * 2 * 4
    # Pairs finish together: all arms of a seed stand together.
    seeds = [run.run.seed for run in pairs]
    assert seeds == sorted(seeds)


def test_a_sweep_runs_what_is_missing_and_compare_reads_it(
    tmp_path: Path, tiny_cold_starts: Callable[[Path], Path]
) -> None:
    tiny_cold_starts(tmp_path / "quick")
    grid = {"algo.selector": "roc,stratified", "noise.correlation": "0.0", "env.answers": "2"}
    config = SweepConfig(out=tmp_path, seeds=(0, 1), set=SMALL, grid=grid, processes=2)
    console, out = say()
    assert sweep(config, console) == 0
    assert "4 runs, 0 finished" in out.getvalue()
    folder = tmp_path / "quick"
    runs = read_runs(folder)
    table = results(folder)
    assert table.num_rows == 4 * (3 + 2)
    kept = {path: path.read_bytes() for path in (folder / "store").glob("*.json.gz")}
    assert len(kept) == 4
    assert max(map(len, kept.values())) < 50_000
    assert len(runs) == 4
    assert set(settings_of(runs)) == {()}
    first = {path: path.read_bytes() for path in folder.glob("*/metrics.jsonl")}

    # Finished runs are skipped; one that was interrupted is resumed to the same end, one that never began is begun.
    (cut,) = folder.glob("*roc,*seed=1")
    (never,) = folder.glob("*roc,*seed=0")
    whole = {path: rows(path) for path in (cut, never)}
    (cut / "summary.json").unlink()
    shutil.rmtree(never)
    never.mkdir()
    for each in runs:
        if each.config.run.name in (cut.name, never.name):
            store.path_of(folder / "store", each.config).unlink()
    # One that finished without having been kept, as a kill at the wrong moment leaves it, is kept, but by no dry run.
    (unkept,) = folder.glob("*stratified,*seed=0")
    missing = store.path_of(folder / "store", read_config(unkept))
    missing.unlink()
    assert sweep(dataclasses.replace(config, dry_run=True), say()[0]) == 0
    assert not missing.exists()
    console, out = say()
    assert sweep(config, console) == 0
    assert "4 runs, 2 finished" in out.getvalue()
    assert whole == {path: rows(path) for path in (cut, never)}
    assert results(folder).equals(table)
    assert all(path.read_bytes() == first[path] for path in first if path.parent not in (cut, never))

    console, out = say()
    compare(CompareConfig((folder,)), console)
    text = out.getvalue()
    assert "| figure |" in text
    assert "roc − stratified" in text
    assert "AUC good first call" in text
    assert "nan" not in text
    # Runs by themselves, too: then the first is what the other is compared with, where none is the control.
    roc, control = (next(folder.glob(f"*selector={rule},*seed=1")) for rule in ("roc", "stratified"))
    for folders, told in (((roc, control), "roc − stratified"), ((roc,), "roc (n = 1)")):
        console, out = say()
        compare(CompareConfig(folders), console)
        assert told in out.getvalue()
    with pytest.raises(ConfigError, match=r"baseline: got 'grpo'; allowed: .*roc, stratified"):
        compare(CompareConfig((folder,), baseline="grpo"), console)

    console, out = say()
    with pytest.raises(ConfigError, match="another configuration"):
        sweep(SweepConfig(out=tmp_path, seeds=(0,), set={**SMALL, "run.steps": "3"}, grid=grid), console)


def test_a_run_that_fails_is_named_with_its_log_and_stops_no_other(
    tmp_path: Path, tiny_cold_starts: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny_cold_starts(tmp_path / "quick")
    original = executors.command

    def sabotage(config: Config) -> list[str]:
        words = original(config)
        return [words[0], "-c", "raise SystemExit('broken')"] if config.algo.selector == "roc" else words

    monkeypatch.setattr(executors, "command", sabotage)
    grid = {"algo.selector": "roc,stratified", "noise.correlation": "0.0", "env.answers": "2"}
    console, out = say()
    assert sweep(SweepConfig(out=tmp_path, seeds=(0,), set=SMALL, grid=grid, processes=1), console) == 1
    assert "failed: answers=2,correlation=0.0,selector=roc,seed=0" in out.getvalue()
    failed, reason = out.getvalue().partition("FAILED")[2].splitlines()[:2]
    assert "selector=roc,seed=0" in failed
    assert reason.strip() == "broken"
    (log,) = tmp_path.glob("quick/*selector=roc*.log")
    assert "broken" in log.read_text()
    assert len(read_runs(tmp_path / "quick")) == 1


def test_a_run_that_cannot_even_be_started_is_named_and_stops_no_other(
    tmp_path: Path, tiny_cold_starts: Callable[[Path], Path]
) -> None:
    place = tiny_cold_starts(tmp_path / "quick")
    grid = {"algo.selector": "roc,stratified", "noise.correlation": "0.0", "env.answers": "2"}
    config = SweepConfig(out=tmp_path, seeds=(0,), set=SMALL, grid=grid, processes=1)
    foreign = place / next(name for name, _ in plan(config) if "=roc" in name)
    foreign.mkdir()
    (foreign / "notes.txt").write_text("mine")
    console, out = say()
    assert sweep(config, console) == 1
    failed, reason = out.getvalue().partition("FAILED")[2].splitlines()[:2]
    assert "selector=roc" in failed
    assert "not empty" in reason
    assert (foreign / "notes.txt").read_text() == "mine"
    assert [run.config.algo.selector for run in read_runs(place)] == ["stratified"]


def test_a_run_s_name_is_one_that_a_file_system_takes() -> None:
    mixtures = [{"clean": 0.5, "é" * 200: 0.5}, {"clean": 0.4, "é" * 200: 0.6}]
    names = [name for name, _ in expand(PRESETS["quick"], Config(), grid={"sft.mixture": mixtures})]
    assert len(set(names)) == 2 * 12
    assert max(len(name.encode()) for name in names) <= 200
    assert all(name.rpartition(",")[2].startswith("seed=") for name in names)


def test_a_file_where_a_folder_is_asked_for_is_refused_before_anything_runs(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    for changes, field in (({"store": file}, "store"), ({"out": file}, "out")):
        with pytest.raises(ConfigError, match=rf"{field}: got '.*file'; allowed: a folder"):
            sweep(SweepConfig(**{"out": tmp_path / "out", "dry_run": True, **changes}), say()[0])  # type: ignore[arg-type]
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert file.read_text() == "mine"


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (("sweep", "regimes"), ("preset", "regimes", "quick, correlated-vs-iid")),
        (("sweep", "--set", "algo.selector", "rocc"), ("algo.selector", "rocc")),
        (("sweep", "--grid", "noise.rate", "0.1,1.3"), ("noise.rate", "1.3")),
        (("sweep", "--set", "noise.ratio", "1"), ("noise.ratio",)),
        (("sweep", "--set", "env.id", "nope"), ("env", "nope", "tool_gym/Arithmetic-v0")),
        (("sweep", "--set", "run.seed", "3"), ("run.seed", "--seeds")),
        (("sweep", "--grid", "run.name", "a,b"), ("run.name", "--out")),
        (("sweep", "--seeds", "0", "0"), ("seeds", "each once")),
        (("sweep", "--grid", "noise.rate", ".1,.1"), ("noise.rate", "each once")),
        (("sweep", "--processes", "1025"), ("processes", "1025", "0 to 1024")),
        (("sweep", "--stack", "4097"), ("stack", "4097", "1 to 4096")),
        (("sweep", "--list", "--stack", "0"), ("stack", "0", "1 to 4096")),
        (("compare", "nothing"), ("folder", "nothing")),
        (("evaluate", "nothing"), ("run", "nothing")),
    ],
)
def test_bad_commands_are_refused_before_anything_runs(
    words: tuple[str, ...],
    parts: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(words) == 2
    one_line(*capsys.readouterr(), *parts)
    assert list(tmp_path.iterdir()) == []


def test_a_plan_changes_only_what_it_says() -> None:
    runs = plan(SweepConfig(seeds=(3,), grid={"noise.rate": ".1,.5"}))
    assert len(runs) == 2 * 4
    name, config = runs[0]
    assert name == "answers=10,correlation=0.0,selector=stratified,rate=0.1,seed=3"
    assert (config.env.answers, config.noise.correlation, config.algo.selector) == (10, 0.0, "stratified")
    assert (config.noise.rate, config.run.seed) == (0.1, 3)
    grid = {"env.difficulties": "(3, 4),(4, 5)", "env.id": "tool_gym/Arithmetic-v0"}
    runs = plan(SweepConfig(seeds=(3,), grid=grid))
    assert {config.env.difficulties for _, config in runs} == {(3, 4), (4, 5)}
    assert all("/" not in name for name, _ in runs)


def test_evaluate_repeats_the_summary_and_takes_other_noise(
    tmp_path: Path, tiny_cold_starts: Callable[[Path], Path]
) -> None:
    folder = train(tiny_config(tiny_cold_starts(tmp_path)), Silent())
    summary = json.loads((folder / "summary.json").read_text())["test"]["last"]
    console, out = say()
    figures = evaluate(EvaluateConfig(folder), console)
    assert {k: None if v != v else v for k, v in figures.items()} == summary
    assert "right after a faulted first call" in out.getvalue()
    other = evaluate(EvaluateConfig(folder, noise="none"), console)
    assert other["eval/accuracy"] == figures["eval/accuracy_clean"]
    assert np.isnan(other["eval/recovery"])
    with pytest.raises(ConfigError, match=r"noise\.rate"):
        evaluate(EvaluateConfig(folder, noise_rate=2.0), console)
    with pytest.raises(ConfigError, match="checkpoint"):
        evaluate(EvaluateConfig(folder, checkpoint="step_999999"), console)


def test_areas_and_late_means_of_a_run() -> None:
    table = [{"step": s, "eval/accuracy": v, "roc/x": x} for s, v, x in ((0, 0.0, None), (5, 1.0, 2.0), (10, 1.0, 4.0))]
    columns = {name: np.array([row[name] for row in table], dtype=float) for name in table[0]}
    run = Run(Config().replace(**{"run.steps": 10}), columns, {})
    assert run.area("eval/accuracy") == pytest.approx(0.75)
    assert np.isnan(run.area("roc/x"))
    assert run.late("roc/x") == pytest.approx(4.0)


def test_a_sweep_that_is_killed_again_and_again_leaves_no_run_behind_and_gives_the_same_table(tmp_path: Path) -> None:
    grid = {"algo.selector": "roc,stratified", "noise.correlation": "0.0", "env.answers": "2"}
    settings = SMALL | {"run.steps": "12", "run.eval_every": "6", "run.checkpoint_every": "1"}
    words = ["sweep", "--seeds", "0", "--processes", "2"]
    words += ["--set", *(word for pair in settings.items() for word in pair)]
    words += ["--grid", *(word for pair in grid.items() for word in pair)]

    def start(out: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "experiments", *words, "--out", str(tmp_path / out)]
        return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)

    assert start("whole").wait(timeout=300) == 0
    folder = tmp_path / "killed" / "quick"
    kills: tuple[tuple[signal.Signals, Callable[[], object]], ...] = (
        (signal.SIGKILL, lambda: list(folder.glob(".cache/*.lock"))),  # in the cold start
        (signal.SIGTERM, lambda: list(folder.glob("*/checkpoints/step_*"))),
        (signal.SIGKILL, lambda: [path for path in folder.glob("*/checkpoints/step_*") if path.name > "step_000001"]),
        (signal.SIGKILL, lambda: list(folder.glob("store/*.json.gz"))),  # before the table
    )
    ended = []
    for number, moment in kills:
        process = start("killed")
        deadline = time.monotonic() + 120
        while not moment() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        process.send_signal(number)
        ended.append(process.wait(timeout=30))
        for config in folder.glob("*/config.json"):
            wait_until_nobody_works_on(config.parent)
        if len(ended) in (2, 3):
            assert not list(folder.glob("*/summary.json")), "a run went on without its sweep"
    # Both runs may have finished at once, and the table been written before the last kill.
    assert ended[:3] == [-signal.SIGKILL, 128 + signal.SIGTERM, -signal.SIGKILL]
    assert start("killed").wait(timeout=300) == 0
    assert results(folder).equals(results(tmp_path / "whole" / "quick"))


def wait_until_nobody_works_on(run: Path) -> None:
    """Raises ConfigError where a process still holds the run after ten seconds."""
    for _ in range(200):
        try:
            with locked(run):
                return
        except ConfigError:
            time.sleep(0.05)
    with locked(run):
        pass


def test_shards_cover_a_sweep_without_overlap() -> None:
    whole = [name for name, _ in plan(SweepConfig(seeds=(3, 4)))]
    parts = [[name for name, _ in plan(SweepConfig(seeds=(3, 4), shard=f"{i}/2"))] for i in (1, 2)]
    assert sorted(name for part in parts for name in part) == sorted(whole)
    # What is compared is made on one machine: runs that share a cold start are in one part.
    keys = [
        {executors.cold_start_key(run) for _, run in plan(SweepConfig(seeds=(3, 4), shard=f"{i}/2"))} for i in (1, 2)
    ]
    assert all(keys)
    assert not keys[0] & keys[1]
    for shard in ("0/3", "4/3", "1", "a/b", "1/0", "4/4"):
        with pytest.raises(ConfigError, match="shard"):
            plan(SweepConfig(shard=shard))


def test_the_identity_of_a_run_is_all_that_its_results_depend_on() -> None:
    config = Config()
    for name in store.ASIDE:
        other = {"run.name": "x", "run.runs_dir": "elsewhere"}.get(name, 7)
        assert identity(config.replace(**{name: other})) == identity(config), name
    for name, value in (("run.seed", 1), ("noise.rate", 0.2), ("run.steps", 7), ("run.eval_problems", 9)):
        assert identity(config.replace(**{name: value})) != identity(config), name


def test_a_stored_run_says_what_its_folder_says_and_damage_is_named(
    tmp_path: Path, tiny_cold_starts: Callable[[Path], Path]
) -> None:
    made = store.read_folder(train(tiny_config(tiny_cold_starts(tmp_path)), Silent()))
    packed = store.pack(made)
    assert packed == store.pack(store.unpack(packed, "it"))
    assert made.revision == revision(tmp_path / "run")
    path = store.put(tmp_path / "store", packed, made.config)
    (kept,) = read_runs(tmp_path / "store")
    assert (kept.config, kept.summary, kept.revision) == (made.config, made.summary, made.revision)
    for name, values in made.columns.items():
        np.testing.assert_allclose(kept.columns[name], values, rtol=1e-5)
    for content in (packed[:-20], b"", packed[:50] + bytes([packed[50] ^ 1]) + packed[51:]):
        path.write_bytes(content)
        with pytest.raises(ConfigError, match=path.name):
            read_runs(tmp_path / "store")


def test_the_runs_of_older_stores_keep_their_identity_and_have_no_value_in_columns_that_came_later(
    tmp_path: Path,
) -> None:
    kept = sorted((Path(__file__).parents[1] / "docs" / "results").glob("*/store/*.json.gz"))
    assert kept
    for path in kept[:: max(len(kept) // 16, 1)]:
        run = store.unpack(path.read_bytes(), path.name)
        assert path.name == f"{run.identity}.json.gz"
        assert all(len(values) == len(run.columns["step"]) for values in run.columns.values())
    (config,) = (run for _, run in plan(SweepConfig(out=tmp_path, preset="paper", seeds=(0,)))[:1])
    record = json.loads(gzip.decompress(store.pack(synthetic_run(config))))
    del record["metrics"]["completions/truncated_ratio"]
    older = store.unpack(gzip.compress(json.dumps(record).encode()), "older")
    assert np.isnan(older.columns["completions/truncated_ratio"]).all()


def test_a_damaged_file_of_a_store_is_named_and_its_run_is_missing_and_one_of_another_version_stops_the_sweep(
    tmp_path: Path,
) -> None:
    grid = {"algo.selector": "roc,stratified", "noise.correlation": "0.0"}
    config = SweepConfig(out=tmp_path, seeds=(0,), grid=grid, dry_run=True)
    packed = {name: store.pack(synthetic_run(run)) for name, run in plan(config)}
    (whole, cut), paths = packed, [store.put(config.kept, packed[name], run) for name, run in plan(config)]
    paths[1].write_bytes(packed[cut][:-20])
    console, out = say()
    assert sweep(config, console) == 0
    told, there, warning, missing = out.getvalue().splitlines()
    assert "revision 0123456789abcdef" in warning
    assert "damaged" in told
    assert str(paths[1]) in told
    assert "2 runs, 1 finished" in there
    assert missing == cut != whole
    record = json.loads(gzip.decompress(packed[cut]))
    record["metrics"]["patience"] = record["metrics"].pop("entropy")
    paths[1].write_bytes(gzip.compress(json.dumps(record).encode()))
    with pytest.raises(ConfigError, match=r"without entropy.* written by revision 0123456789abcdef"):
        sweep(config, console)


def test_runs_of_a_preset_that_would_bear_one_name_are_refused_and_those_in_common_are_made_once() -> None:
    rates = {"algo.learning_rate": (1e-3,)}
    common = Preset("", (Part(rates, range(1)), Part(rates, range(2))))
    assert [name for name, _ in expand(common, Config())] == [
        "learning_rate=0.001,seed=0",
        "learning_rate=0.001,seed=1",
    ]
    unlike = Preset("", (Part(rates, range(1)), Part({"sft.learning_rate": (1e-3,)}, range(1))))
    with pytest.raises(ConfigError, match=r"learning_rate=0\.001,seed=0.*differ"):
        expand(unlike, Config())


def test_what_cannot_be_kept_is_named_and_stops_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = SweepConfig(out=tmp_path, seeds=(0,), grid={"algo.selector": "roc,grpo", "noise.correlation": "0.0"})
    put = store.put

    def run_local(jobs: list[executors.Job], on_outcome: executors.OnOutcome, *, processes: int) -> None:
        for job in jobs:
            on_outcome(executors.Outcome(job, store.pack(synthetic_run(job.config)), tmp_path / "log"))

    def full(kept: Path, packed: bytes, run: Config) -> Path:
        if run.algo.selector == "roc":
            raise OSError(28, "No space left on device")
        return put(kept, packed, run)

    monkeypatch.setattr(sweep_module, "run_local", run_local)
    monkeypatch.setattr(store, "put", full)
    console, out = say()
    assert sweep(config, console) == 1
    told = out.getvalue()
    assert "No space left on device" in told
    (named,) = [line for line in told.splitlines() if line.startswith("failed: ")]
    assert "selector=roc" in named
    assert len(list(config.kept.glob("*.json.gz"))) == 1


@pytest.mark.parametrize("same", [True, False])
def test_a_sweep_warns_where_runs_would_stand_beside_those_of_other_code(
    same: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = {"algo.selector": "roc,stratified", "noise.correlation": "0.0", "env.answers": "2"}
    config = SweepConfig(out=tmp_path, seeds=(0, 1, 2), grid=grid, dry_run=True)
    asked: list[str] = []

    def same_code(place: Path, by: str, packages: Sequence[str]) -> bool:
        asked.append(by)
        return same

    monkeypatch.setattr(sweep_module.runs, "same_code", same_code)
    here = told_revision(git_state(ROOT))
    # Seed 0 lacks an arm beside one of another revision, seed 1 one beside a run of this code; seed 2 lacks nothing.
    for _, planned in plan(config):
        if planned.run.seed == 2 or planned.algo.selector == "roc":
            by = here if planned.run.seed == 1 else "0123456789abcdef"
            made = dataclasses.replace(synthetic_run(planned), revision=by)
            store.put(config.kept, store.pack(made), planned)
    console, out = say()
    assert sweep(config, console) == 0
    warnings = [line for line in out.getvalue().splitlines() if line.startswith("warning: ")]
    assert asked == ["0123456789abcdef"]
    if same:
        assert not warnings
    else:
        (warning,) = warnings
        assert "warning: 1 of the runs to be made" in warning
        assert "revision 0123456789abcdef" in warning


def test_a_run_whose_configuration_is_damaged_is_named_set_aside_and_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = SweepConfig(out=tmp_path, seeds=(0,), grid={"algo.selector": "roc", "noise.correlation": "0.0"})
    ((name, run),) = plan(config)
    folder = config.folder / name
    create(folder, run)
    (folder / "config.json").write_text((folder / "config.json").read_text()[:200])
    made: list[str] = []

    def run_local(jobs: list[executors.Job], on_outcome: executors.OnOutcome, *, processes: int) -> None:
        for job in jobs:
            assert not job.folder.exists()
            made.append(job.name)
            on_outcome(executors.Outcome(job, store.pack(synthetic_run(job.config)), tmp_path / "log"))

    monkeypatch.setattr(sweep_module, "run_local", run_local)
    console, out = say()
    assert sweep(dataclasses.replace(config, dry_run=True), console) == 0
    assert folder.exists()
    assert sweep(config, console) == 0
    assert made == [name]
    assert out.getvalue().count("damaged, so it is run again") == 2
    assert (config.folder / "damaged" / name / "config.json").exists()
    assert store.path_of(config.kept, run).exists()


def test_a_sweep_names_cuda_where_it_is_and_leaves_the_choice_to_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    def devices(**settings: Any) -> set[str]:
        return {run.run.device for _, run in plan(SweepConfig(seeds=(3,), **settings))}

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert devices() == {"auto"}
    on_cpu = {identity(run) for _, run in plan(SweepConfig(seeds=(3,)))}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert devices() == {"cuda"}
    assert not on_cpu & {identity(run) for _, run in plan(SweepConfig(seeds=(3,)))}
    assert devices(set={"run.device": "cpu"}) == {"cpu"}
    assert devices(executor="ray") == {"auto"}


def test_the_time_of_a_sweep_counts_candidates_and_each_cold_start_once(tmp_path: Path) -> None:
    def estimate(*configs: Config, done: Sequence[Config] = ()) -> float:
        named = [(f"{number}", run) for number, run in enumerate((*configs, *done))]
        return sweep_module._left(named, [executors.Job(*each) for each in named[: len(configs)]], tmp_path)

    base = Config().replace(**{"algo.selector": "grpo"})
    twice, prompts = (base.replace(**{"algo.selector": rule}) for rule in ("roc", "grpo_2p"))
    other = base.replace(**{"run.seed": 1})
    assert estimate(base) < estimate(twice) < estimate(prompts)
    begun = estimate(base) - estimate(base, done=[twice])
    assert begun > 20, "seconds of a cold start"
    assert estimate(base, twice) == pytest.approx(estimate(base) + estimate(twice) - begun)
    assert estimate(base, other) == pytest.approx(2 * estimate(base))
    assert begun < estimate(base.replace(**{"run.steps": 0})) < estimate(base)


def test_the_time_of_a_sweep_follows_that_of_finished_runs(tmp_path: Path) -> None:
    config = Config()
    usual = sweep_module._left([("a", config)], [executors.Job("a", config)], tmp_path / "none")
    for seed in range(3):
        finished = arm("roc", seed, run__steps=100)
        steps = np.full(101, 2 * sweep_module._training(finished) / 101)
        store.put(tmp_path, store.pack(synthetic_run(finished, step_time=steps)), finished)
    slower = sweep_module._left([("a", config)], [executors.Job("a", config)], tmp_path)
    assert slower == pytest.approx(2 * usual, rel=0.01)


def test_runs_wait_for_no_cold_start_that_another_is_making() -> None:
    jobs = [executors.Job(name, run) for name, run in plan(SweepConfig(seeds=(3, 4)))]
    first, units = jobs[0], executors.by_stack(jobs[1:])
    (other,) = units[executors._next(units, [first], set())]
    assert other.config.run.seed == 4
    assert executors._next(units, [first], {executors.cold_start_key(first.config)}) == 0
    assert executors._next(units[:3], [first], set()) == 0  # all of them share it: then the first


def test_stacks_are_the_same_however_many_machines_share_the_sweep() -> None:
    config = SweepConfig(seeds=(3, 4), stack=3)
    whole = {name: run.run.stack for name, run in plan(config)}
    parts = [dict(plan(dataclasses.replace(config, shard=f"{i}/2"))) for i in (1, 2)]
    assert all(parts)
    assert {name: run.run.stack for part in parts for name, run in part.items()} == whole
    assert not {run.run.stack for run in parts[0].values()} & {run.run.stack for run in parts[1].values()} - {None}


def test_a_finished_run_without_a_stack_is_not_run_again_for_another_one_s_sake(tmp_path: Path) -> None:
    # Two that cannot be stacked with each other.
    grid = {"policy.width": "32,64", "algo.selector": "roc", "noise.correlation": "0.0"}
    config = SweepConfig(out=tmp_path, seeds=(0,), grid=grid, stack=2, dry_run=True)
    (done, run), (missing, _) = plan(config)
    store.put(config.kept, store.pack(synthetic_run(run)), run)
    console, out = say()
    assert sweep(config, console) == 0
    assert missing in out.getvalue()
    assert done not in out.getvalue()


def test_a_sweep_of_stacks_runs_each_in_one_process_and_all_of_it_or_none(
    tmp_path: Path, tiny_cold_starts: Callable[[Path], Path]
) -> None:
    tiny_cold_starts(tmp_path / "quick")
    grid = {"algo.selector": "roc,stratified,grpo", "noise.correlation": "0.0", "env.answers": "2"}
    config = SweepConfig(out=tmp_path, seeds=(0,), set=SMALL, grid=grid, processes=2, stack=2)
    marks = [run.run.stack for _, run in plan(config)]
    assert marks[0] == marks[1] is not None
    assert marks[2] is None
    console, out = say()
    assert sweep(config, console) == 0, out.getvalue()
    folder = tmp_path / "quick"
    assert {run.config.run.stack for run in read_runs(folder / "store")} == {marks[0], None}
    assert len(list(folder.glob("stack_*.json"))) == 1
    table = results(folder)
    assert set(settings_of(read_runs(folder))) == {()}
    # With one of a stack missing both are run again, the other one to the same results.
    (lost,) = (run for run in read_runs(folder / "store") if run.config.algo.selector == "roc")
    store.path_of(folder / "store", lost.config).unlink()
    shutil.rmtree(next(folder.glob("*=roc,*seed=0")))
    console, out = say()
    assert sweep(config, console) == 0, out.getvalue()
    assert "3 runs, 1 finished" in out.getvalue()
    assert results(folder).equals(table)
    with pytest.raises(ConfigError, match="stack"):
        plan(dataclasses.replace(config, stack=0))
    with pytest.raises(ConfigError, match="with --executor ray, 1"):
        plan(dataclasses.replace(config, executor="ray"))
