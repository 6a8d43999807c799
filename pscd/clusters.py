"""Clusters of Dask and Ray as joblib sees them: connected to within a stated time, and honest about lost workers."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import joblib
from joblib.externals.loky.process_executor import BrokenProcessPool

from pscd.errors import UserError
from pscd.files import needs, one_line
from pscd.version import __version__

T = TypeVar("T")
NO_TOKEN = "InvalidAuthToken"  # how Ray says that a cluster does not know us
RETURN = 300  # seconds for workers that were all lost to come back
DASK, RAY = "pscd-dask", "pscd-ray"  # names of joblib's backends, with what we add to them


@contextmanager
def dask(address: str, patience: float) -> Iterator[None]:
    """Let joblib compute on the workers of a Dask scheduler, for the block.

    Args:
        address: of the scheduler.
        patience: seconds to wait for it.

    Raises:
        UserError: it does not answer, or has no workers, or they have another version of this package.
    """
    distributed = needs("distributed", "dask", "--backend dask")
    late = f"no Dask scheduler answers at {address} within {patience:g} s; is it running, and is the address right?"
    # Its own timeout does not count while a server that is none, or hangs, keeps the connection open.
    with _within(patience, lambda: distributed.Client(address, timeout=patience), late) as client:
        try:
            client.wait_for_workers(1, timeout=patience)
        except TimeoutError:
            raise UserError(
                f"the Dask scheduler at {address} has no workers: dask worker {address} starts some"
            ) from None
        _check_versions(client, address)
        joblib.register_parallel_backend(DASK, _dask_backend())
        with joblib.parallel_config(backend=DASK, client=client, wait_for_workers_timeout=RETURN):
            try:
                yield
            except TimeoutError:  # joblib's, after all that time without any
                gone = f"the Dask scheduler at {address} has no workers any more"
                raise UserError(f"{gone}; what is done is kept, and the same command goes on") from None


def _check_versions(client: Any, address: str) -> None:
    try:
        found = set(client.run(version_here).values())
    except ImportError:
        found = {"none"}
    if others := sorted(found - {__version__}):
        theirs = ", ".join(others)
        raise UserError(f"workers of {address} have pscd {theirs}, this is {__version__}; install the same everywhere")


def version_here() -> str:
    """The version of this package, where it is called."""
    return __version__


def _dask_backend() -> type:
    from joblib._dask import DaskDistributedBackend

    class Failed:
        def __init__(self, error: BaseException) -> None:
            self.error = error

    class Backend(DaskDistributedBackend):  # type: ignore[misc]  # joblib has no types
        """joblib's own, which would wait for ever for a task whose workers were all killed."""

        def effective_n_jobs(self, n_jobs: int) -> int:
            # For one, joblib would compute here and not on the cluster: its only worker, or the last that is alive.
            return max(2, super().effective_n_jobs(n_jobs))

        def submit(self, func: Any, callback: Any = None) -> Any:
            future = super().submit(func, callback)

            def tell(done: Any) -> None:
                if done.exception() is not None:
                    callback(Failed(done.exception()))

            future.add_done_callback(tell)
            return future

        def retrieve_result_callback(self, out: Any) -> Any:
            if isinstance(out, Failed):
                raise out.error
            return super().retrieve_result_callback(out)

    return Backend


@contextmanager
def ray(address: str, patience: float) -> Iterator[None]:
    """Let joblib compute on a Ray cluster, for the block.

    Args:
        address: of its head; `auto` finds one on this machine.
        patience: seconds to wait for it.

    Raises:
        UserError: it does not answer.
    """
    library = needs("ray", "ray", "--backend ray")
    # Ray's pool hands results over as they are ready, as we need them; only the class does not say so.
    kind = needs("ray.util.joblib.ray_backend", "ray", "--backend ray").RayBackend
    joblib.register_parallel_backend(RAY, type("Backend", (kind,), {"supports_return_generator": True}))
    late = f"no Ray answers at {address} within {patience:g} s; is it running, and is the address right?"
    was_on = library.is_initialized()
    if not was_on:
        _within(patience, lambda: library.init(address=address, logging_level="ERROR", log_to_driver=False), late)
    try:
        with joblib.parallel_config(backend=RAY):
            yield
    finally:
        if not was_on:
            library.shutdown()


def lost_kinds(backend: str) -> tuple[type[BaseException], ...]:
    """The errors that mean: a process that computed was lost, and nothing is known about its work.

    Args:
        backend: `cores`, `dask` or `ray`.

    Returns:
        Classes, to be caught.
    """
    if backend == "dask":
        return (BrokenProcessPool, needs("distributed", "dask").KilledWorker)
    if backend == "ray":
        errors = needs("ray.exceptions", "ray")
        names = ("RayActorError", "WorkerCrashedError", "OutOfMemoryError", "NodeDiedError")
        return (BrokenProcessPool, *(getattr(errors, name) for name in names if hasattr(errors, name)))
    return (BrokenProcessPool,)


def _within(seconds: float, connect: Callable[[], T], late: str) -> T:
    """What `connect` returns, unless it fails or takes too long."""
    found: list[T] = []
    errors: list[BaseException] = []

    def attempt() -> None:
        try:
            found.append(connect())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=attempt, daemon=True)
    thread.start()
    thread.join(seconds + 1)  # a little more than its own limit
    if errors and isinstance(errors[0], ValueError):  # an address that is none
        raise UserError(f"{late} ({one_line(errors[0])})")
    if errors and NO_TOKEN in f"{errors[0]} {errors[0].__cause__}":
        asked = "the cluster asks for a token: set RAY_AUTH_MODE=token, and have its token in ~/.ray/auth_token"
        raise UserError(f"{late.partition(';')[0]}; {asked}")
    if not found:
        raise UserError(late)
    return found[0]
