"""A sweep on a Ray cluster: the same table as on this machine, and a node that dies loses no run."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from experiments import executors
from experiments.executors import Job, Outcome, node_folder, run_ray
from experiments.store import read_runs
from experiments.sweep import SweepConfig, sweep
from tests.test_experiments import SMALL, results, say
from tests.tiny import tiny_config
from tool_gym.errors import ConfigError

GRID = {"algo.selector": "roc,stratified", "noise.correlation": "0.0", "env.answers": "2"}


def test_without_ray_or_a_cluster_the_executor_is_refused(tmp_path: Path) -> None:
    config = SweepConfig(out=tmp_path, seeds=(0,), set=SMALL, grid=GRID, executor="ray", address="127.0.0.1:1")
    with pytest.raises(ConfigError, match=r"executor: got 'ray'|address: got '127\.0\.0\.1:1'"):
        sweep(config, say()[0])


def test_a_task_that_kills_its_worker_is_retried_a_few_times_and_then_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class RayError(Exception):
        pass

    class Cluster(ModuleType):
        """Ray, as far as the executor needs it, on which every task dies."""

        exceptions = SimpleNamespace(RayError=RayError)
        starts = 0

        def init(self, **_: Any) -> None: ...

        def shutdown(self) -> None: ...

        def remote(self, *, num_cpus: int, max_retries: int) -> Any:
            self.most = 1 + max_retries
            return lambda work: SimpleNamespace(remote=lambda *sent: object())

        def wait(self, pending: list[Any], *, num_returns: int) -> Any:
            return pending[:num_returns], pending[num_returns:]

        def get(self, task: Any) -> Any:
            while self.most < 0 or self.starts < self.most:
                self.starts += 1
                assert self.starts < 100, "for ever"
            raise RayError("the worker died")

    cluster = Cluster("ray")
    monkeypatch.setitem(sys.modules, "ray", cluster)
    ended: list[Outcome] = []
    config = tiny_config(tmp_path / "runs")
    run_ray([Job("run", config)], ended.append, address="auto")
    ((job, packed, log, _),) = ended
    assert (job.name, packed, log.read_text()) == ("run", None, "error: the worker died\n")
    assert cluster.starts > 1, "a node may be taken away"


@pytest.fixture
def cluster() -> Any:
    utils = pytest.importorskip("ray.cluster_utils", reason="needs the extra `sweep`: pip install 'tool-gym[sweep]'")
    two_nodes = utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    two_nodes.add_node(num_cpus=1)
    yield two_nodes
    two_nodes.shutdown()


def test_a_cluster_gives_the_table_of_this_machine_also_when_a_node_dies(
    cluster: Any, tmp_path: Path, tiny_cold_starts: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = SMALL | {"run.steps": "12", "run.eval_every": "6"}
    local = SweepConfig(out=tmp_path / "local", seeds=(0, 1), set=settings, grid=GRID, processes=2)
    tiny_cold_starts(tmp_path / "local" / "quick")
    assert sweep(local, say()[0]) == 0

    remote = SweepConfig(**{**vars(local), "out": tmp_path / "ray", "executor": "ray", "address": cluster.address})
    victim = next(node for node in cluster.list_all_nodes() if not node.head)
    # Of a node's own, so that what is seen there is of this sweep.
    monkeypatch.setattr(executors, "_sources", lambda: f"test-{os.getpid()}")
    place = node_folder(executors._sources())
    busy: list[int] = []

    def kill() -> None:
        """The other node, while both train: each has one processor, and so one run."""
        for _ in range(1200):
            training = [run for run in place.glob("*/metrics.jsonl") if not (run.parent / "summary.json").exists()]
            if len(training) == 2:
                busy.append(len(training))
                break
            time.sleep(0.05)
        cluster.remove_node(victim, allow_graceful=False)

    killer = threading.Thread(target=kill)
    killer.start()
    console, out = say()
    try:
        assert sweep(remote, console) == 0, out.getvalue()
        assert busy, "the node was not killed during a run"
        assert [path.name for path in place.iterdir()] == [".cache"]
    finally:
        killer.join()
        shutil.rmtree(place, ignore_errors=True)
    assert results(tmp_path / "ray" / "quick").equals(results(tmp_path / "local" / "quick"))
    revisions = {run.revision for place in ("ray", "local") for run in read_runs(tmp_path / place / "quick" / "store")}
    assert len(revisions) == 1
