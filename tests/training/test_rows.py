"""Training on rows that are streamed: the same from memory, a map and a file, resumed, and after a mended shard."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

import pscd
from pscd import distributed
from pscd.data import chunks, streams
from pscd.errors import UserError
from pscd.recipes import tables as prepare
from pscd.recipes.configs import RECIPES
from pscd.rng import generator
from pscd.run_folder import RunFolder
from pscd.training import checkpoint, held_out, loop
from pscd.training.rows import TrainingRows
from pscd.training.state import init_state


@pytest.fixture(autouse=True)
def _small_windows(monkeypatch):
    for module in (chunks, streams):
        monkeypatch.setattr(module, "WINDOW_NUMBERS", 200)
    monkeypatch.setattr(chunks.ArrayChunks, "chunk_bytes", 64)


@pytest.fixture
def tiny(small):
    """Two columns, twelve updates, a streamed table."""
    return small.changed(
        {"rows.data": "", "updates": 36, "guard.checkpoint_every": 8, "batch_size": 16, "rows.stream": "yes"}
    )


@pytest.fixture
def x():
    return pscd.data.TOYS["moon"](300, generator(0)).float()


def weights(model):
    return torch.cat([t.double().flatten() for t in model.state_dict().values()])


def test_memory_map_and_array_give_the_same_model(tiny, x, tmp_path):
    np.save(tmp_path / "x.npy", x.numpy())
    expected = weights(pscd.fit(x, config=tiny))
    for rows in (x.numpy(), np.load(tmp_path / "x.npy", mmap_mode="r"), TensorDataset(x)):
        assert torch.equal(weights(pscd.fit(rows, config=tiny)), expected)
    assert not torch.equal(weights(pscd.fit(x, config=tiny.changed({"rows.stream": "no"}))), expected)


class Items(Dataset):
    def __init__(self, x):
        self.x = x

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], 0


def test_datasets_loaders_and_batches_are_trained_on(tiny, x):
    for rows in (
        Items(x),
        DataLoader(Items(x), 20, shuffle=True),
        list(x.split(20)),
        lambda: iter(x.numpy().reshape(-1, 20, 2)),
    ):
        one, two = (pscd.fit(rows, config=replace(tiny, updates=18)) for _ in range(2))
        assert torch.equal(weights(one), weights(two))
        assert torch.allclose(one.shift, x.double().mean(0), atol=1e-6)


def test_a_run_goes_on_at_the_same_row(tiny, x, tmp_path):
    whole = weights(pscd.fit(x, config=tiny, folder=tmp_path / "whole"))

    def stop(row):
        if row["step"] == 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pscd.fit(x, config=tiny, folder=tmp_path / "run", callbacks=[lambda at: stop(at["stats"])])
    assert pscd.training.checkpoint.load(tmp_path / "run")["step"] == 16
    assert torch.equal(weights(pscd.fit(x, config=tiny, folder=tmp_path / "run")), whole)
    with pytest.raises(UserError, match="holds a run on other rows"):
        pscd.fit(x + 1, config=tiny, folder=tmp_path / "run")


def shards(folder, x):
    folder.mkdir()
    for i, part in enumerate(x.split(60)):
        pd.DataFrame(part.numpy(), columns=["a", "b"]).to_parquet(folder / f"{i}.parquet", row_group_size=16)


def test_a_shard_that_breaks_loses_nothing(tiny, x, tmp_path):
    shards(tmp_path / "x", x)
    config = tiny.changed({"rows.data": str(tmp_path / "x"), "rows.stream": "auto"})
    whole = weights(pscd.load(pscd.train(config, tmp_path / "whole", progress=False)))
    good, broken = {}, []

    def breaks(at):
        if at["step"] == 10:
            for path in (tmp_path / "x").iterdir():
                good[path] = path.read_bytes()
                path.write_bytes(good[path][:50] + bytes(len(good[path]) - 50))
            broken.append(at["stats"])

    with pytest.raises(UserError, match=r"\.parquet: damaged.*the same run resumes from update (16|32)"):
        pscd.train(config, tmp_path / "run", progress=False, callbacks=[breaks])
    assert broken
    for path, content in good.items():
        path.write_bytes(content)
    assert torch.equal(weights(pscd.load(pscd.train(config, tmp_path / "run", progress=False))), whole)


def test_what_was_learnt_before_a_shard_broke_is_kept_by_the_first_process_alone(tiny, x, tmp_path, monkeypatch):
    state = init_state(x, tiny, None, torch.device("cpu"))
    for rank, kept in ((1, None), (0, 7)):
        monkeypatch.setattr(distributed, "rank", lambda rank=rank: rank)
        for step, folder in ((7, None), (0, RunFolder(tmp_path))):  # nowhere to keep it, or nothing learnt
            state.step = step
            with pytest.raises(UserError, match=r"^broken$"):
                loop._save_and_raise(state, UserError("broken"), folder)
        state.step = 7
        with pytest.raises(UserError, match=r"^broken; after that, the same run resumes from update 7$"):
            loop._save_and_raise(state, UserError("broken"), RunFolder(tmp_path))
        found = checkpoint.load(tmp_path)
        assert (found and found["step"]) == kept


def test_a_streamed_run_is_measured_and_drawn(tiny, x, tmp_path):
    np.save(tmp_path / "x.npy", x.numpy())
    config = tiny.changed({"rows.data": str(tmp_path / "x.npy")})
    model = pscd.load(pscd.train(config, tmp_path / "run", progress=False))
    samples, floor = pscd.evaluate(model, n=20)
    assert (samples.n_real, floor.n_fake) == (20, 20)
    np.save(tmp_path / "x.npy", x.numpy() + 1)
    with pytest.raises(UserError, match="has changed since"):
        pscd.evaluate(model, n=20)


def test_large_tables_in_memory_are_prepared_from_a_sample_and_copied_once(monkeypatch):
    x = torch.randn(3000, 3, generator=generator(0))
    x[:, 2] = x[:, 2].round()
    config = RECIPES["table"].changed({"objective.gamma": 0.3, "rows.hold_out": 0.2})
    before = x.clone()
    for module in (prepare, held_out):
        monkeypatch.setattr(module, "SAMPLE_ROWS", 1000)
    found, config = prepare.prepare(x, config)
    assert "from a sample of 1,000 of 3,000 rows" in found.notes[-1]
    assert (found.z.shape, found.clean.shape) == ((3000, 3), (3000,))
    back = found.coordinates.inverse(found.z)
    torch.testing.assert_close(back[:, :2], x[:, :2].double(), rtol=1e-4, atol=1e-4)
    assert (back[:, 2] - x[:, 2]).abs().max() < 0.51
    together = found.z.clone()
    storage = found.z.data_ptr()
    train, held, index = held_out.hold_out(found, config)
    assert (len(train.z), len(held.z), len(train.clean)) == (2800, 200, 2800)
    assert train.z.data_ptr() == storage  # no second copy
    assert torch.equal(held.z, together[index])
    rows = torch.cat([train.z, held.z])
    assert torch.equal(rows[rows[:, 0].argsort()], together[together[:, 0].argsort()])
    clean = found.mixture.p_clean(held.z.double())
    torch.testing.assert_close(held.clean.double(), clean, rtol=1e-3, atol=1e-5)
    assert torch.equal(x, before)


def test_what_a_sample_was_taken_from_is_told(monkeypatch):
    x = torch.randn(500, 2, generator=generator(0))
    config = pscd.TrainConfig(rows=pscd.RowSettings(stream="yes"))
    rows = TrainingRows.of(x, None, stream="yes", seed=0, labelled=False)
    assert rows.notes(prepare.prepare(rows.sample, config)[0]) == ()
    assert torch.equal(rows.sample, x)  # few rows: all of them, as in memory
    monkeypatch.setattr("pscd.training.rows.sample_size", lambda shape: 100)
    rows = TrainingRows.of(x, None, stream="yes", seed=0, labelled=False)
    assert rows.notes(prepare.prepare(rows.sample, config)[0]) == (prepare.sampled_note(100, 500),)
    rest = rows.without(torch.tensor([0, 5]))
    assert rest.source.n_rows == 498
    assert rest.source.left_out.tolist() == sorted(rows.chosen.position[[0, 5]].tolist())
    with pytest.raises(UserError, match="needs a label for each row"):
        rows.check_label(
            torch.zeros(3), config.changed({"energy.name": "conv", "energy.classes": 2}), torch.device("cpu")
        )
