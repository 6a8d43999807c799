import pytest

from pscd.cli.reading import device
from pscd.errors import UserError


def test_a_device_that_is_not_there_is_refused():
    assert device("cpu").type == "cpu"
    for name in ("tpu9", "meta"):
        with pytest.raises(UserError, match="cpu always is"):
            device(name)
