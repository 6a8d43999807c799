"""The model: bytes and messages of an update, and its time, as functions of network, batch and processes.

An update makes two collective calls (`pscd.distributed`): the energies of both phases are gathered, so that every
process computes the loss of the whole batch, and the gradients are summed. Both go around a ring, as in gloo: of p
processes each sends p - 1 messages to gather and 2 (p - 1) to sum. A message takes its latency, and a time for each
byte.
"""

from dataclasses import dataclass

FLOAT = 4  # bytes
PHASES = 2  # energies of data and of samples


@dataclass(frozen=True)
class Network:
    """What connects the processes."""

    name: str
    latency: float  # seconds of a message without content
    seconds_per_byte: float

    @property
    def gigabytes_per_second(self) -> float:
        return 1e-9 / self.seconds_per_byte


@dataclass(frozen=True)
class Work:
    """What an update computes, in seconds of one process with one thread."""

    parameters: int
    statistics: int  # scalars that are averaged with the gradients
    fixed: float  # however many rows there are
    per_row: float  # of the process's own part of the batch: chains, forward, backward
    per_energy: float  # loss and statistics of one gathered energy, which every process computes for all

    def alone(self, rows: float) -> float:
        """An update of one process."""
        return self.fixed + self.per_row * rows + self.per_energy * PHASES * rows


def gathered_bytes(rows: float) -> float:
    """What a process gives to be gathered: the energies of its rows of data and of samples."""
    return FLOAT * PHASES * rows


def summed_bytes(work: Work) -> float:
    """What a process gives to be summed: gradients and statistics, whatever the batch."""
    return FLOAT * (work.parameters + work.statistics)


def messages(processes: int) -> int:
    """That a process sends per update."""
    return 3 * (processes - 1)


def bytes_sent(work: Work, processes: int, rows: float) -> float:
    """By each process per update, where `rows` are its own."""
    others = processes - 1
    return others * gathered_bytes(rows) + 2 * others / processes * summed_bytes(work)


def communication(work: Work, network: Network, processes: int, rows: float) -> float:
    """Seconds of both collective calls."""
    return messages(processes) * network.latency + bytes_sent(work, processes, rows) * network.seconds_per_byte


def together(work: Work, network: Network, processes: int, rows: float) -> float:
    """Seconds of an update of several processes with `rows` rows each."""
    replicated = work.per_energy * PHASES * rows * (processes - 1)
    return work.alone(rows) + replicated + communication(work, network, processes, rows)


def efficiency_growing(work: Work, network: Network, processes: int, rows: float) -> float:
    """Weak scaling: each process keeps its rows, the batch grows; 1 if an update takes as long as that of one."""
    return work.alone(rows) / together(work, network, processes, rows)


def efficiency_fixed(work: Work, network: Network, processes: int, batch: float) -> float:
    """Strong scaling: the batch is divided; 1 if p processes are p times as fast."""
    return work.alone(batch) / (processes * together(work, network, processes, batch / processes))
