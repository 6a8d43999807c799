import zlib
from dataclasses import replace

import pytest
import torch
from torch import nn

from pscd.config import ChainSettings, OptimizerSettings, TrainConfig
from pscd.energies import local_waves
from pscd.errors import UserError
from pscd.mixtures import Mixture
from pscd.objectives import OBJECTIVES
from pscd.recipes.configs import RECIPES
from pscd.recipes.tables import prepare
from pscd.rng import Stream, generator, seeded
from pscd.sampling import Chains, Mala
from pscd.training.rows import check_label
from pscd.training.state import checksum, init_state

SMALL = {"energy.width": 2, "chains.buffer_size": 50}
CPU = torch.device("cpu")


def test_chains_in_the_box_start_evenly_and_take_a_byte_each():
    x = torch.rand(30, 1, 8, 8, generator=generator(0))
    config = RECIPES["digits"].changed(SMALL)
    state = init_state(x, config, None, CPU)
    assert state.buffer.x.dtype == torch.uint8
    assert state.buffer.x.float().mean() == pytest.approx(127.5, abs=5 * 73.9 / (50 * 64) ** 0.5)  # sd of a byte
    assert isinstance(state.proposal, Chains)
    assert state.buffer.label is None
    assert torch.equal(state.coordinates.scale, torch.ones(1, 8, 8).double())


def test_labelled_chains_keep_to_the_classes():
    x = torch.rand(30, 1, 8, 8, generator=generator(0))
    config = RECIPES["digits"].changed({**SMALL, "energy.classes": 3})
    label = init_state(x, config, None, CPU).buffer.label
    assert set(label.tolist()) == {0, 1, 2}


def test_rows_of_numbers_get_a_mixture():
    state = init_state(
        torch.randn(50, 2, generator=generator(0)), TrainConfig(chains=ChainSettings(buffer_size=10)), None, CPU
    )
    assert isinstance(state.proposal, Mixture)
    assert state.buffer.x.dtype == torch.float32


def test_data_outside_the_box_are_told():
    with pytest.raises(UserError, match=r"\[0, 1\]"):
        init_state(2 * torch.ones(30, 1, 8, 8), RECIPES["digits"].changed(SMALL), None, CPU)


def test_labels_are_checked():
    config = RECIPES["digits"].changed({"energy.classes": 3})
    assert check_label(torch.tensor([5, 6]), 2, TrainConfig(), CPU) is None
    assert check_label(torch.tensor([0, 2]), 2, config, CPU).tolist() == [0, 2]
    with pytest.raises(UserError, match="label for each row"):
        check_label(None, 2, config, CPU)
    with pytest.raises(UserError, match="between 0 and 2"):
        check_label(torch.tensor([0, 3]), 2, config, CPU)


def test_a_proposal_of_ones_own_is_where_chains_jump_to():
    x = torch.randn(80, 3, generator=generator(0)).double()
    own = Mixture.standard(3)
    for start in ("none", "mixture"):
        config = RECIPES["table"].changed(
            {"rows.start": start, "objective.gamma": 0.0, "chains.buffer_size": 20, "rows.hold_out": 0.0}
        )
        config = config.changed({"objective.negatives": "auto"})
        config = config.changed({"energy.name": "mlp"}) if start == "none" else config
        state = init_state(x, config, None, CPU, proposal=own)
        assert torch.equal(state.proposal.means, own.means)
        fitted = init_state(x, config, None, CPU)
        assert len(fitted.proposal.weights) != len(own.weights) or not torch.equal(fitted.proposal.means, own.means)


def test_one_number_a_row():
    x = torch.randn(20, 2, generator=generator(0))
    config = TrainConfig(chains=ChainSettings(buffer_size=10, jump_components=1))
    with pytest.raises(UserError, match=r"must map \(2, 2\) to \(2,\), .* gave \(2, 1\); end it with nn.Flatten\(0\)"):
        init_state(x, config, nn.Linear(2, 1), CPU)
    with pytest.raises(UserError, match=r"it gave \(2, 3\)$"):
        init_state(x, config, nn.Linear(2, 3), CPU)


def test_the_state_before_the_first_update():
    x = torch.randn(50, 2, generator=generator(0)) * 4 + 1
    config = TrainConfig(
        seed=3,
        sampler=Mala(step_size=0.7),
        chains=ChainSettings(buffer_size=40, jump_components=2),
        optimizer=OptimizerSettings(lr=0.5, betas=(0.3, 0.999)),
    )
    state = init_state(x, config, None, CPU)
    assert (state.step, state.retries, state.best, state.aux, state.cumulative_chances) == (0, 0, None, None, None)
    assert len(state.buffer) == 40
    assert state.step_size.item() == pytest.approx(0.7)
    group = state.optimizer.param_groups[0]
    assert (group["lr"], group["betas"]) == (0.5, (0.3, 0.999))
    assert [id(p) for p in group["params"]] == [id(p) for p in state.energy.parameters()]
    assert not any(p.requires_grad for p in state.averaged.parameters())
    assert all(p.requires_grad for p in state.energy.parameters())
    for a, b in zip(state.energy.parameters(), state.averaged.parameters(), strict=True):
        assert torch.equal(a, b)
        assert a is not b
    expected = seeded(lambda: config.energy.build((2,)), 3)
    torch.testing.assert_close(state.energy.state_dict(), expected.state_dict(), rtol=0, atol=0)
    first = state.start.draw(40, generator(3, Stream.BUFFER, 0))
    assert torch.equal(state.buffer.x, first)
    assert state.rows == checksum(x) != checksum(x + 1)
    other = init_state(x, replace(config, seed=4), None, CPU)
    assert not torch.equal(other.buffer.x, state.buffer.x)


def test_what_is_trained_beside_the_energy_is_moved_by_the_same_optimiser():
    x = torch.randn(50, 2, generator=generator(0))
    config = TrainConfig(objective=OBJECTIVES["f-ebm"], chains=ChainSettings(buffer_size=10, jump_components=1))
    state, again = (init_state(x, config, None, CPU) for _ in range(2))
    moved = {id(p) for p in state.optimizer.param_groups[0]["params"]}
    assert moved == {id(p) for p in (*state.energy.parameters(), *state.aux.parameters())}
    torch.testing.assert_close(state.aux.state_dict(), again.aux.state_dict(), rtol=0, atol=0)
    other = init_state(x, replace(config, seed=1), None, CPU)
    mine, theirs = (next(s.aux.network.parameters()) for s in (state, other))
    assert not torch.equal(mine, theirs)


def test_labels_of_chains_are_equally_likely_and_seeded():
    x = torch.rand(30, 1, 8, 8, generator=generator(0))
    config = RECIPES["digits"].changed({"energy.width": 2, "chains.buffer_size": 900, "energy.classes": 3})
    label = init_state(x, config, None, CPU).buffer.label
    # 900 labels of 3 kinds: 300 each, with a deviation of 14.
    assert (torch.bincount(label) - 300).abs().max() <= 5 * 14.2
    assert torch.equal(label, init_state(x, config, None, CPU).buffer.label)


def test_rows_are_drawn_by_their_chance_of_being_clean():
    x = torch.randn(100, 2, generator=generator(0)).double()
    x[:15] += 40 * torch.rand(15, 2, generator=generator(1)).double()
    config = RECIPES["plane"].changed({"objective.gamma": 0.3, "chains.buffer_size": 10})
    prepared, config = prepare(x, config)
    state = init_state(x, config, None, CPU, prepared=prepared)
    torch.testing.assert_close(state.cumulative_chances, prepared.clean.double().cumsum(0))
    assert state.cumulative_chances.dtype == torch.float64


@pytest.mark.parametrize(("d", "waves"), [(10, True), (11, False)])
def test_up_to_ten_columns_have_waves_beside_them(d, waves):
    x = torch.randn(60, d, generator=generator(0), dtype=torch.float64)
    config = RECIPES["table"].changed({**SMALL, "objective.gamma": 0.0})
    prepared, config = prepare(x, config)
    energy = init_state(x, config, None, CPU, prepared=prepared).energy
    n_waves = config.energy.fourier if waves else 0
    expected = local_waves(prepared.learnt_from, n_waves, generator(config.seed, Stream.WAVES))
    own = [t for name, t in energy.state_dict().items() if "wave" in name or "frequenc" in name]
    assert any(t.shape == expected.shape and torch.equal(t, expected.to(t)) for t in own), own


def test_labels_at_the_edges_of_their_range():
    config = RECIPES["digits"].changed({"energy.classes": 3})
    for label in (torch.tensor([-1, 0]), torch.tensor([0, 3])):
        with pytest.raises(UserError, match="labels must lie between 0 and 2"):
            check_label(label, 2, config, CPU)
    for label in (torch.tensor([0, 1, 2]), torch.zeros(2, 1).long()):
        with pytest.raises(UserError, match="needs a label for each row"):
            check_label(label, 2, config, CPU)
    found = check_label(torch.tensor([0, 2], dtype=torch.int32), 2, config, CPU)
    assert (found.dtype, found.tolist()) == (torch.int64, [0, 2])


def test_an_energy_of_one_s_own_gives_one_number_a_row():
    x = torch.randn(60, 2, generator=generator(0))
    for net, hint in ((nn.Linear(2, 1), r"\(2, 1\); end it with nn\.Flatten\(0\)"), (nn.Linear(2, 2), r"\(2, 2\)$")):
        with pytest.raises(UserError, match=rf"must map \(2, 2\) to \(2,\), one number a row; it gave {hint}"):
            init_state(x, TrainConfig(chains=ChainSettings(buffer_size=10)), net, CPU)


def test_the_optimiser_and_the_chains_are_as_the_configuration_says():
    x = torch.randn(60, 2, generator=generator(0))
    config = TrainConfig(
        sampler=Mala(step_size=0.75),
        seed=3,
        chains=ChainSettings(buffer_size=10),
        optimizer=OptimizerSettings(lr=0.25, betas=(0.5, 0.999)),
    )
    state = init_state(x, config, None, CPU)
    (group,) = state.optimizer.param_groups
    assert (group["lr"], group["betas"], group["eps"], group["weight_decay"]) == (0.25, (0.5, 0.999), 1e-8, 0)
    assert sum(p.numel() for p in group["params"]) == sum(p.numel() for p in state.energy.parameters())
    assert state.step_size == 0.75
    assert state.buffer.x.shape == (10, 2)
    assert torch.equal(state.buffer.x, state.start.draw(10, generator(3, Stream.BUFFER, 0)))
    assert not any(p.requires_grad for p in state.averaged.parameters())
    assert state.averaged is not state.energy
    assert (state.rows, state.cumulative_chances, state.aux, state.step) == (checksum(x), None, None, 0)
    assert checksum(x) == f"{zlib.crc32(x.numpy().tobytes()):08x}"
