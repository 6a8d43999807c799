import pytest

from pscd.detector import estimator


@pytest.fixture(scope="package", autouse=True)
def few():
    """Fewer samples to compare with, which take more than half of the time of a small fit.

    The share of rows beyond 99 % of them is known to 0.3 percentage points, from 0.16.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(estimator, "N_REFERENCE", 1000)
        yield
