"""A sweep on a Ray cluster: the same table as on this machine, and a node that dies loses no run."""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from experiments.sweep import SweepConfig, sweep
from tests.test_experiments import SMALL, results, say
from tool_gym.errors import ConfigError

GRID = {"algo.selector": "roc,stratified", "noise.correlation": "0.0", "env.answers": "2"}


def test_without_ray_or_a_cluster_the_executor_is_refused(tmp_path: Path) -> None:
    config = SweepConfig(out=tmp_path, seeds=(0,), set=SMALL, grid=GRID, executor="ray", address="127.0.0.1:1")
    with pytest.raises(ConfigError, match=r"executor: got 'ray'|address: got '127\.0\.0\.1:1'"):
        sweep(config, say()[0])


@pytest.fixture
def cluster() -> Any:
    utils = pytest.importorskip("ray.cluster_utils", reason="needs the extra `sweep`: pip install 'tool-gym[sweep]'")
    two_nodes = utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    two_nodes.add_node(num_cpus=1)
    yield two_nodes
    two_nodes.shutdown()


def test_a_cluster_gives_the_table_of_this_machine_also_when_a_node_dies(
    cluster: Any, tmp_path: Path, tiny_cold_starts: Callable[[Path], Path]
) -> None:
    settings = SMALL | {"run.steps": "12", "run.eval_every": "6"}
    local = SweepConfig(out=tmp_path / "local", seeds=(0, 1), set=settings, grid=GRID, processes=2)
    tiny_cold_starts(tmp_path / "local" / "quick")
    assert sweep(local, say()[0]) == 0

    remote = SweepConfig(**{**vars(local), "out": tmp_path / "ray", "executor": "ray", "address": cluster.address})
    victim = next(node for node in cluster.list_all_nodes() if not node.head)
    killer = threading.Thread(target=lambda: (time.sleep(12), cluster.remove_node(victim, allow_graceful=False)))
    killer.start()
    console, out = say()
    try:
        assert sweep(remote, console) == 0, out.getvalue()
    finally:
        killer.join()
        for place in Path(tempfile.gettempdir()).glob("tool_gym-*"):
            shutil.rmtree(place, ignore_errors=True)
    assert results(tmp_path / "ray" / "quick").equals(results(tmp_path / "local" / "quick"))
