"""Real engines, in processes of their own; `make test-scale` installs them.

The tests of Dask and Ray start clusters, and take seconds; they are skipped where the engine is not installed.
"""

import os
import pickle
import signal
import time

import numpy as np
import pandas as pd
import pytest

import pscd
from pscd import EnergyDetector, UserError, engines

PARTS = 8


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(400, 3)).round(3), columns=["a", "b", "c"])
    frame = frame.assign(count=rng.integers(0, 5, 400), colour=rng.choice(["red", "blue"], 400), key=range(400))
    frame["c"] = frame["a"] + frame["b"] + 0.1 * frame["c"]
    frame.loc[::40, "a"] = 30.0
    frame.loc[::50, "b"] = np.nan
    return frame


@pytest.fixture(scope="module")
def detector(rows):
    return EnergyDetector(updates=5, kinds={"key": "skip"}).fit(rows)


@pytest.fixture(scope="module")
def model(rows):
    import torch

    config = pscd.TrainConfig(
        updates=5, batch_size=32, energy=pscd.Architecture("quadratic"), chains=pscd.ChainSettings(buffer_size=100)
    )
    return pscd.fit(torch.tensor(rows[["a", "c"]].to_numpy()), config=config)


def in_one_process(work, rows):
    """The same partitions, one after the other."""
    size = len(rows) // PARTS
    return pd.concat([work(rows[i : i + size]) for i in range(0, len(rows), size)])


def assert_same_rows(found, expected):
    """Equal to the last digit; engines have types of their own for text and for what is missing."""
    pd.testing.assert_frame_equal(found.astype(expected.dtypes.to_dict()), expected)


class Deadly:
    """A detector that kills the first worker that reads the partition of row 200."""

    def __init__(self, detector, flag):
        self.detector, self.flag = detector, str(flag)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.__dict__["detector"], name)

    def score_samples(self, rows):
        time.sleep(0.1)  # so that others are at work meanwhile
        if rows.index[0] == 200 or rows["a"].iloc[0] == self.detector.deadly:
            try:
                os.close(os.open(self.flag, os.O_CREAT | os.O_EXCL))
                os.kill(os.getpid(), signal.SIGKILL)
            except FileExistsError:
                pass
        return self.detector.score_samples(rows)


def deadly(detector, rows, flag):
    """The detector, which kills once; the row by which it knows its partition is the same for every engine."""
    detector.deadly = rows["a"].iloc[200]
    return Deadly(detector, flag)


@pytest.mark.parametrize("repair", [True, False])
@pytest.mark.parametrize("fill", [True, False])
def test_a_frame_of_pandas_is_worked_on_at_once(rows, detector, repair, fill):
    rows = rows.drop(columns="count").assign(count=rows["count"].astype(float))
    found = engines.clean(rows, detector, repair=repair, fill=fill)
    cells = detector.cells(rows)
    wrong, gaps = (cells[cells["problem"] == problem] for problem in ("wrong", "missing"))
    changed = pd.concat([wrong] * repair + [gaps] * fill + [wrong[:0]])
    assert len(wrong) > 5
    assert len(gaps) == 8
    expected = rows.copy()
    for cell in changed.to_dict("records"):
        expected.loc[cell["row"], cell["column"]] = cell["suggestion"]
    pd.testing.assert_frame_equal(found, expected)


def test_energies_outliers_and_reasons(rows, detector, model):
    found = engines.detect(rows, detector)
    np.testing.assert_allclose(found["energy"], -detector.score_samples(rows), rtol=1e-12)
    np.testing.assert_array_equal(found["outlier"], detector.predict(rows) == -1)
    assert found["because"][0].startswith("a = 30 (+")
    assert (found["because"][~found["outlier"]] == "").all()
    scored = engines.score(rows[["a", "c"]], model)
    np.testing.assert_allclose(scored["energy"], model.energy(rows[["a", "c"]].to_numpy()), rtol=1e-6)
    for work in (engines.score, engines.detect, engines.clean):
        none = work(rows[:0], detector)
        assert none.dtypes.to_dict() == work(rows, detector).dtypes.to_dict()


def test_a_model_of_a_frame_takes_the_columns_of_the_frame():
    frame = pd.DataFrame(
        {"hired": pd.date_range("2020-01-01", periods=400), "x": np.random.default_rng(0).normal(size=400)}
    )
    model = pscd.fit(frame, updates=2)
    assert model.columns == ("hired", "x")  # not the numbers that the date became
    scored = engines.score(frame.assign(other="a"), model)
    np.testing.assert_allclose(scored["energy"], model.energy(frame), rtol=1e-6)
    with pytest.raises(UserError, match="the table has no column 'hired'"):
        engines.score(frame[["x"]], model)


def test_bad_tables_are_told_before_anything_runs(rows, detector):
    with pytest.raises(UserError, match="has no column 'b'"):
        engines.score(rows.drop(columns="b"), detector)
    with pytest.raises(UserError, match="expected a Dask DataFrame, a Ray Dataset or a pandas frame, got list"):
        engines.detect([1, 2], detector)


def test_models_and_detectors_can_be_sent(rows, detector, model):
    again = pickle.loads(pickle.dumps(detector))
    np.testing.assert_array_equal(again.score_samples(rows), detector.score_samples(rows))
    assert pickle.loads(pickle.dumps(model)).energy(rows[["a", "c"]].to_numpy()).shape == (400,)


@pytest.fixture(scope="module")
def dask_cluster():
    pytest.importorskip("dask.dataframe", reason="Dask is an extra: make test-scale installs it")
    distributed = pytest.importorskip("distributed", reason="Dask is an extra: make test-scale installs it")
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        assert len({worker["pid"] for worker in client.run(lambda: {"pid": os.getpid()}).values()}) == 2
        yield client


@pytest.mark.scale
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("work", [engines.score, engines.detect, engines.clean])
def test_dask_in_two_processes(dask_cluster, rows, detector, work):
    import dask.dataframe as dd

    table = dd.from_pandas(rows, npartitions=PARTS)
    made = work(table, detector)
    found = made.compute()
    assert made._meta.dtypes.to_dict() == found.dtypes.to_dict()
    assert_same_rows(found, in_one_process(lambda part: work(part, detector), rows))


@pytest.mark.scale
@pytest.mark.filterwarnings("ignore")
def test_a_worker_of_dask_is_killed_in_the_middle(dask_cluster, rows, detector, tmp_path):
    import dask.dataframe as dd

    table = dd.from_pandas(rows, npartitions=PARTS)
    before = set(dask_cluster.run(os.getpid).values())
    found = engines.detect(table, deadly(detector, rows, tmp_path / "killed")).compute()
    assert (tmp_path / "killed").exists()
    dask_cluster.wait_for_workers(2)
    assert set(dask_cluster.run(os.getpid).values()) != before
    assert_same_rows(found, in_one_process(lambda part: engines.detect(part, detector), rows))


@pytest.fixture(scope="module")
def ray_cluster():
    ray = pytest.importorskip("ray", reason="Ray is an extra: make test-scale installs it")
    # Not 15, with which workers would get nothing done on a busy machine.
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112 (Ray spells it so)
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    ray.data.DataContext.get_current().enable_progress_bars = False
    yield ray
    ray.shutdown()


@pytest.mark.scale
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kill", [False, True])
def test_ray_in_two_processes(ray_cluster, rows, detector, tmp_path, kill):
    table = ray_cluster.data.from_pandas(rows).repartition(PARTS)
    used = deadly(detector, rows, tmp_path / "killed") if kill else detector
    for work in (engines.detect,) if kill else (engines.score, engines.detect, engines.clean):
        found = work(table, used).to_pandas().sort_values("key", ignore_index=True)
        expected = in_one_process(lambda part, work=work: work(part, detector), rows)
        assert_same_rows(found, expected)
    assert (tmp_path / "killed").exists() == kill


def test_the_function_for_spark_is_as_in_the_documentation(rows, detector, tmp_path):
    """As Spark calls it: with an iterator of pandas frames."""
    from pathlib import Path
    from types import SimpleNamespace

    page = Path(__file__).parents[1] / "docs" / "how-to" / "score-large-tables.md"
    code = page.read_text().split("## Spark")[1].split("```python\n")[1].split("```")[0]
    detector.save(tmp_path)
    asked = {}

    def map_in_pandas(function, schema):
        asked.update(schema=schema, found=pd.concat(function(iter([rows[:150], rows[150:]]))))

    ddl = SimpleNamespace(toDDL=lambda: "a double")
    table = SimpleNamespace(mapInPandas=map_in_pandas, _jdf=SimpleNamespace(schema=lambda: ddl))
    spark = SimpleNamespace(sparkContext=SimpleNamespace(broadcast=lambda value: SimpleNamespace(value=value)))
    exec(code.replace("runs/my", str(tmp_path)), {"spark": spark, "table": table})
    np.testing.assert_allclose(asked["found"]["energy"], -detector.score_samples(rows), rtol=1e-12)
    assert asked["schema"] == "a double, energy double"
