"""The configs of a project, without its keys: they are no secret, and need nothing that only deployment needs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from polyfed.core.errors import PolyfedError
from polyfed.deploy.protocol.names import checked_sites

PORT = 8443
RUN_KEYS = ("rounds", "participation", "seed", "init", "dtype", "compute")
"""What [run] of server.toml may say."""
SERVER_TOML = """[federation]
run = "study"             # sites keep the run's state under this name
sites = {sites}
host = "127.0.0.1"        # where the server listens
port = 8443
deadline = 600.0          # seconds that a round waits for its sites
minimum = {minimum}               # the fewest uploads that a round needs
secure = false            # true: masks on the uploads, so that the server learns their sum alone

[problem]
model = "linear"
loss = "logistic"
l2 = 0.01

[algorithm]               # any of `polyfed algorithms`
name = "scafflix"
alpha = 0.5               # the weight of the global model; or the name of a column of the sites' configs
even = true               # with `batch`: batches of nearly equal size, as sites refuse steps on few rows

[run]
rounds = 10
seed = 0
dtype = "float64"

# [privacy]               # needs polyfed[privacy]: uploads are clipped, and their sum gets noise
# clip = 1.0
# noise = 1.0             # in multiples of clip
# delta = 1e-5
"""
SITE_TOML = """[site]
name = "{name}"
server = "{address}"
certificate = "ca.pem"    # proves to this site that the server is the server
key = "{name}.key"        # proves to the server that this site is '{name}'; keep it secret
own_certificate = "{name}.pem"  # issued by the server's operator for this key

[data]                    # the rows never leave this machine
source = "csv"
path = "data.csv"
target = "y"

[columns]                 # this site's own values of hyper-parameters, such as alpha = 0.3

[allow]                   # what may leave beside what the algorithm uploads
smoothness = true         # L and mu of this site's objective, where the theory's stepsize is asked for
class_rows = true         # its training rows of each class, where class weights are to be balanced
sums = true               # counts, sums and categories of its columns, where tables are to be prepared
metrics = false           # how well the models do on this site's rows
model = false             # this site's personal model
plain = true              # uploads that the server can read one by one; false: only masked ones (federation.secure)

[policy]                  # terms beyond these limits get no answer
algorithms = []           # those that may run here; none named: any
smallest_batch = 8        # the fewest rows in a step, and left out by a round's steps: one row alone is told
fewest_steps = 1          # the fewest steps in a round
fewest_sites = {fewest}          # the fewest sites in a sum
most_rounds = 1000        # the most rounds of a run
min_count = 5             # the fewest rows that a category must have to be named to others
noise = 0.0               # the least noise of a private run, in multiples of its clip; above 0: private runs only
pinned_sites = {pinned}      # masked sums only with sites whose keys are in roster/: compare them with their owners
changes = "ask"           # terms unlike the first run's wait for `polyfed deploy accept`; "allow": they do not
"""
README = """# A federation of {count} sites

`server/` goes to the server's machine, each other folder to its site. `*.key` files are secrets: give each to its
owner only.

| where | command |
| --- | --- |
| on the server | `polyfed deploy server server` |
| at each site | `polyfed deploy site NAME` |
| on the server, once | `polyfed deploy run server` |
| to try all of it on one machine | `polyfed deploy up .` |

{keys}"""
KEYS = """Certificates and keys were made by `polyfed deploy init`, for these names of the server: {hosts}. A site that
prefers to make its own key runs `ssh-keygen -t ecdsa -b 384 -N "" -f NAME.key` and sends `NAME.key.pub` to the server's
operator, who runs `polyfed deploy admit server NAME NAME.key.pub` and sends the `NAME.pem` that this writes back.

`server/certificates/ca.key` lets whoever has it into the federation. It is needed for `admit` alone: keep it offline.
"""
NO_KEYS = """There are no keys here yet, so this folder may be shown around. Look at `server/server.toml` and at each
site's `site.toml`. Then make the keys, with the server's name as the sites reach it:

    polyfed deploy init . --host fed.example.org
"""


def refuse_filled(folder: Path) -> None:
    """A project goes into a new or an empty folder."""
    if folder.exists() and any(folder.iterdir()):
        raise PolyfedError(f"{folder}: not empty")


def write_configs(folder: Path, sites: Sequence[str]) -> None:
    """server.toml, a site.toml for each site, and README.md: a project that has no keys."""
    checked_sites(sites, "sites")
    names, minimum = "[" + ", ".join(f'"{site}"' for site in sites) + "]", max(1, len(sites) - 1)
    (folder / "server").mkdir(parents=True)
    (folder / "server" / "server.toml").write_text(SERVER_TOML.format(sites=names, minimum=minimum))
    for site in sites:
        (folder / site).mkdir()
        (folder / site / "site.toml").write_text(site_toml(site, fewest=min(2, minimum), pinned=len(sites) > 1))
    (folder / "README.md").write_text(README.format(count=len(sites), keys=NO_KEYS))


def site_toml(site: str, address: str = f"127.0.0.1:{PORT}", fewest: int = 2, pinned: bool = True) -> str:
    """The text of a new site.toml."""
    return SITE_TOML.format(name=site, address=address, fewest=fewest, pinned=str(pinned).lower())


def has_no_keys(folder: Path) -> bool:
    """Whether this is a project that waits for its keys, such as `polyfed advise` leaves."""
    server = folder / "server"
    return (server / "server.toml").is_file() and not (server / "certificates").exists()
