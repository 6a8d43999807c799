import torch
from torch import nn

from pscd.fast import cpp
from pscd.fast.torch_layers import (
    LAYERS,
    WITH_WEIGHTS,
    Evaluator,
    channels_last,
    has_hooks,
    layers_of,
    prefer_channels_last,
)
from pscd.rng import generator


def rows(batch, shape):
    return torch.randn(batch, *shape, generator=generator(batch))


def images(*, channels):
    return nn.Sequential(nn.Conv2d(channels, 8, 3), nn.SiLU(), nn.Flatten(), nn.Linear(8 * 4, 1))


def test_one_channel_is_last_too():
    """Only strides change, without which torch would use channels first; numbers are not moved."""
    x = rows(2, (1, 3, 4))
    last = channels_last(x)
    assert torch.equal(last, x)
    assert last.stride() == (12, 1, 4, 1)
    assert last.data_ptr() == x.data_ptr()
    first = nn.Conv2d(1, 8, 3).to(memory_format=torch.channels_last)
    assert first(last).stride()[1] == 1
    colours = channels_last(rows(2, (3, 3, 4)))
    assert colours.stride() == (36, 1, 12, 3)
    assert torch.equal(colours, rows(2, (3, 3, 4)))


def test_preferring_channels_last_changes_no_value():
    net = images(channels=3)
    before = {name: t.clone() for name, t in net.state_dict().items()}
    assert prefer_channels_last(net) is net
    assert net[0].weight.stride()[1] == 1
    assert all(torch.equal(t, before[name]) for name, t in net.state_dict().items())


def test_layers_of_a_nested_sequence_in_order():
    known = nn.Sequential(nn.Linear(4, 8), nn.Sequential(nn.SiLU(), nn.Sequential(nn.Linear(8, 1))))
    assert [type(layer).__name__ for layer in layers_of(known)] == ["Linear", "Activation", "Linear"]
    assert list(layers_of(nn.Sequential(nn.Dropout(0.1)))) == [None]


def test_hooks_make_a_layer_unknown():
    for register in ("register_forward_hook", "register_forward_pre_hook"):
        layer = nn.Linear(2, 1)
        assert not has_hooks(layer)
        getattr(layer, register)(lambda *args: None)
        assert has_hooks(layer)
        assert list(layers_of(layer)) == [None]


def test_a_layer_goes_back_as_autograd_does():
    """Each known layer alone, on images or rows, with the gradient of its output given."""
    made = {
        nn.Linear: (nn.Linear(5, 3), (5,)),
        nn.Conv2d: (nn.Conv2d(5, 3, (2, 3), stride=(2, 1), padding=(1, 2)), (5, 6, 7)),
        nn.AvgPool2d: (nn.AvgPool2d((2, 3), stride=1, padding=1, count_include_pad=False), (2, 6, 7)),
        nn.Flatten: (nn.Flatten(), (2, 3, 4)),
    }
    for kind in (*WITH_WEIGHTS, *LAYERS):
        module, shape = made.get(kind, (kind() if kind not in made else None, (2, 3, 4)))
        x = rows(3, shape).requires_grad_(True)
        y = module(x)
        grad = rows(3, y.shape[1:])
        (expected,) = torch.autograd.grad(y, x, grad)
        (layer,) = layers_of(module)
        with torch.no_grad():
            torch.testing.assert_close(layer.forward(x.detach()), y.detach())
            torch.testing.assert_close(layer.backward(grad), expected)


def test_few_channels_go_back_by_matrix_products():
    for stride, padding, size in (((1, 1), (0, 0), (6, 7)), ((2, 3), (2, 1), (9, 8)), ((2, 2), (2, 2), (28, 28))):
        module = nn.Conv2d(3, 4, (5, 3), stride=stride, padding=padding)
        x = rows(2, (3, *size)).requires_grad_(True)
        y = module(x)
        grad = rows(2, y.shape[1:])
        (expected,) = torch.autograd.grad(y, x, grad)
        (layer,) = layers_of(module)
        assert layer._few_channels
        with torch.no_grad():
            layer.forward(x.detach())
            torch.testing.assert_close(layer.backward(grad), expected, rtol=1e-5, atol=1e-5)


def test_which_convolutions_go_back_by_matrix_products():
    for channels, settings, few in (
        (4, {}, True),
        (5, {}, False),
        (4, {"dilation": 2}, False),
        (4, {"groups": 2}, False),
    ):
        (layer,) = layers_of(nn.Conv2d(channels, 4, 2, **settings))
        assert layer._few_channels is few


def test_layers_that_are_not_known():
    for module in (nn.Conv2d(1, 1, 3, padding="same"), nn.Conv2d(1, 1, 3, padding=1, padding_mode="reflect"),
                   nn.Flatten(0), nn.Flatten(1, 2), nn.Flatten(2), nn.Dropout()):  # fmt: skip
        assert list(layers_of(module)) == [None]
    layer = nn.Linear(2, 1)
    layer.forward = lambda x: x
    assert has_hooks(layer)


def test_activations_know_themselves_in_cpp():
    kinds = {nn.SiLU: (cpp.SILU, 0.0), nn.Tanh: (cpp.TANH, 0.0), nn.ReLU: (cpp.LEAKY, 0.0), nn.Softplus: None}
    for kind, known in kinds.items():
        (layer,) = layers_of(kind())
        assert layer.in_cpp == known
    (layer,) = layers_of(nn.LeakyReLU(0.3))
    assert layer.in_cpp == (cpp.LEAKY, 0.3)


def test_an_evaluator_without_a_cheaper_way_takes_the_energy_beside_the_gradient():
    x = torch.ones(3, 2)
    both = Evaluator(lambda x: (x.sum(1), x), "any way")
    assert both.energy(x).tolist() == [2, 2, 2]
    alone = Evaluator(lambda x: (x.sum(1), x), "any way", alone=lambda x: x.sum(1) + 1)
    assert alone.energy(x).tolist() == [3, 3, 3]
    assert (both.moves, both.alone) == (None, None)


def test_pooling_has_its_own_settings():
    x = rows(2, (3, 7, 8))
    for module in (nn.AvgPool2d(2), nn.AvgPool2d((2, 3), stride=(1, 2)), nn.AvgPool2d(3, 2, 1, ceil_mode=True),
                   nn.AvgPool2d(3, 2, 1, count_include_pad=False), nn.AvgPool2d(2, divisor_override=3)):  # fmt: skip
        (layer,) = layers_of(module)
        torch.testing.assert_close(layer.forward(x), module(x))


def test_parametrised_weights_are_those_of_evaluation_and_training_goes_on():
    layer = nn.utils.parametrizations.spectral_norm(nn.Linear(3, 2))
    for training in (True, False):
        layer.train(training)
        (result,) = layers_of(layer)
        assert layer.training is training
        assert torch.equal(result.weight, layer.eval().weight)
        assert not result.weight.requires_grad
    (bare,) = layers_of(nn.Linear(3, 2, bias=False))
    assert bare.bias is None


def test_only_networks_with_convolutions_are_put_into_another_order():
    flat = nn.Sequential(nn.Linear(4, 4))
    prefer_channels_last(flat)
    assert flat[0].weight.stride() == (4, 1)
