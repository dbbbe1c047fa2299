"""The processes that run a simulation together, as --hosts or a cluster's launcher names them."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from polyfed.core.errors import PolyfedError

OFF = "off"
MEETING_SECONDS = 300
"""How long the processes wait for each other at the start."""
RANKS = ("SLURM_PROCID", "OMPI_COMM_WORLD_RANK")
FIRST_PORT, PORTS = 61440, 4096
"""Under a launcher, the port at which the processes meet follows from the job's number: one of the highest."""


@dataclass(frozen=True)
class Team:
    """`count` processes, of which this is number `index`; they meet at process 0, which listens at `host`:`port`."""

    host: str
    port: int
    count: int
    index: int
    names: tuple[str, ...] = ()
    """the host of each, where that is known"""

    def title(self, index: int) -> str:
        """A process, for a sentence."""
        name = f" ({self.names[index]})" if self.names else ""
        return f"process {index} of {self.count}{name}"


def find_team(hosts: str | None, index: int | None) -> Team | None:
    """The processes that --hosts and --host-index name, or else a launcher's variables; None for a single process."""
    if hosts == OFF:
        return None
    if hosts is None:
        if index is not None:
            raise PolyfedError("--host-index needs --hosts HOST:PORT,HOST,...")
        return from_launcher(os.environ)
    names = [name.strip() for name in hosts.split(",")]
    first = re.fullmatch(r"(\[.+\]|[^:]+):(\d{1,5})", names[0])
    if (
        not first
        or not all(names)
        or not 1 <= int(first[2]) <= 65535
        or any(re.search(r":(?!.*\])", name) for name in names[1:])
    ):
        raise PolyfedError(f"--hosts must be HOST:PORT,HOST,..., the port being one of the first host; found '{hosts}'")
    names[0] = first[1]
    if index is None:
        index = _own_index(names)
    if not 0 <= index < len(names):
        raise PolyfedError(f"--host-index must be from 0 to {len(names) - 1}, found {index}")
    return None if len(names) == 1 else Team(names[0], int(first[2]), len(names), index, tuple(names))


def from_launcher(variables: Mapping[str, str]) -> Team | None:
    """The processes that SLURM's srun or Open MPI's mpirun (version 4) has started; None for a single one."""
    try:
        if "SLURM_STEP_NODELIST" in variables and "SLURM_PROCID" in variables:
            count = int(variables.get("SLURM_STEP_NUM_TASKS", variables.get("SLURM_NTASKS", "1")))
            job = int(variables["SLURM_JOB_ID"]) + 61 * int(variables.get("SLURM_STEP_ID", "0"))
            host, index = _first_node(variables["SLURM_STEP_NODELIST"]), int(variables["SLURM_PROCID"])
        elif "OMPI_COMM_WORLD_RANK" in variables and "OMPI_MCA_orte_hnp_uri" in variables:
            count, index = int(variables["OMPI_COMM_WORLD_SIZE"]), int(variables["OMPI_COMM_WORLD_RANK"])
            number, _, address = variables["OMPI_MCA_orte_hnp_uri"].partition(".")
            job, host = int(number) // 4096, re.split(r"tcp6?://\[?", address)[1].split(",")[0].split(":")[0]
        elif int(variables.get("OMPI_COMM_WORLD_SIZE", "1")) > 1:
            raise KeyError("OMPI_MCA_orte_hnp_uri")  # later versions of Open MPI do not say where the first process is
        else:
            return None
        if count > 1 and not 0 <= index < count:
            raise ValueError(f"process {index} of {count}")
    except (KeyError, ValueError, IndexError) as error:
        raise PolyfedError(
            f"the launcher's variables cannot be read ({error}); name the processes with --hosts, or use --hosts {OFF}"
        ) from None
    return Team(host, FIRST_PORT + job % PORTS, count, index) if count > 1 else None


def is_loopback(host: str) -> bool:
    """Whether this name means the machine itself on every machine: then nothing has to listen on the network."""
    return host in ("localhost", "[::1]") or host.startswith("127.")


def _first_node(nodes: str) -> str:
    """The first name in SLURM's list, such as `a,b`, `n[001-004,7],b` or `r[1-2]n[3,4]-ib`."""
    first = re.match(r"(?:[^,\[\]]|\[[^\[\]]+\])+", nodes)
    if not first or not first[0].strip():
        raise ValueError(f"SLURM_STEP_NODELIST={nodes}")
    return re.sub(r"\[([^,\-\]]+)[^\]]*\]", r"\1", first[0])


def _own_index(names: list[str]) -> int:
    """Which of the hosts this is: what the launcher says, or the host whose address is this machine's."""
    for variable in RANKS:
        if variable in os.environ:
            try:
                return int(os.environ[variable])
            except ValueError:
                raise PolyfedError(f"{variable} must be a whole number, found '{os.environ[variable]}'") from None
    here = [index for index, name in enumerate(names) if _is_here(name)]
    if len(here) != 1:
        how_many = "more than one" if here else "none"
        raise PolyfedError(f"--host-index is needed: of {', '.join(names)}, {how_many} is an address of this machine")
    return here[0]


def _is_here(name: str) -> bool:
    with suppress(OSError):
        for family, kind, _, _, address in socket.getaddrinfo(name.strip("[]"), 0, type=socket.SOCK_DGRAM):
            with suppress(OSError), socket.socket(family, kind) as probe:
                probe.bind(address)
                return True
    return False
