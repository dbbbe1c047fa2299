"""The published datasets: their files in the data folder, where they come from, their sizes and licences.

Only hosts of the datasets' own authors and the mirrors that they are commonly fetched from are named here.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from polyfed.data.sources.label_names import EMNIST

MNIST_HOSTS = ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/")
QMNIST_HOSTS = ("https://raw.githubusercontent.com/facebookresearch/qmnist/master/",)
FASHION_HOSTS = ("https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",)
CIFAR_HOSTS = ("https://www.cs.toronto.edu/~kriz/",)
EMNIST_HOSTS = ("https://biometrics.nist.gov/cs_links/EMNIST/",)
PLAYS_HOSTS = ("https://www.ibiblio.org/xml/examples/shakespeare/",)
LIBSVM_HOSTS = ("https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary/",)


@dataclass(frozen=True)
class Download:
    """One file to fetch. `size` is exact where there is a checksum, else approximate."""

    path: str
    """Where it goes: a path from the data folder."""
    hosts: tuple[str, ...]
    size: int
    checksum: str | None
    """"sha256:..." or "md5:..."; None: not known, so the file that came is only described."""
    members: tuple[str, ...] = ()
    """For an archive: the files that are taken out of it, as paths from the data folder; the archive is not kept."""

    @property
    def urls(self) -> tuple[str, ...]:
        return tuple(host + Path(self.path).name for host in self.hosts)

    @property
    def results(self) -> tuple[str, ...]:
        """The files that are there afterwards, as paths from the data folder."""
        return self.members or (self.path,)


@dataclass(frozen=True)
class Dataset:
    """A dataset that `polyfed data fetch` and `data list` know."""

    name: str
    source: str
    """The data source that reads it."""
    licence: str
    downloads: tuple[Download, ...] = ()
    by_hand: str = ""
    """How to get it, where what is published must be converted first."""
    maker: str = "LEAF's script makes it"
    """Who makes it, in short, for a dataset without downloads."""
    files: tuple[str, ...] = ()
    """What must be there, for a dataset without downloads; a folder counts if it is not empty."""

    @property
    def size(self) -> int:
        return sum(download.size for download in self.downloads)

    @property
    def exact(self) -> bool:
        """Whether every file has a known checksum."""
        return all(download.checksum for download in self.downloads)

    def missing(self, folder: Path) -> list[str]:
        """The files that this data folder lacks, as paths from there."""
        wanted = [result for download in self.downloads for result in download.results] or list(self.files)
        return [name for name in wanted if not _there(folder / name)]

    def state(self, folder: Path) -> str:
        """In words: whether it is in this data folder, or how much there is to fetch."""
        missing = self.missing(folder)
        if not missing:
            return "there"
        if not self.downloads:
            return f"absent; {self.maker}"
        have = sum(len(download.results) for download in self.downloads) - len(missing)
        need = sum(d.size for d in self.downloads if any(result in missing for result in d.results)) / 1e6
        return f"{f'{have} files there' if have else 'absent'}; {max(need, 1):.0f} MB to fetch"


def _there(path: Path) -> bool:
    return path.is_file() or (path.is_dir() and any(path.iterdir()))


def _mnist_kind(folder: str, hosts: tuple[str, ...], files: dict[str, tuple[int, str]]) -> tuple[Download, ...]:
    return tuple(
        Download(f"{folder}/{name}.gz", hosts, size, f"sha256:{digest}") for name, (size, digest) in files.items()
    )


MNIST = _mnist_kind(
    "mnist",
    MNIST_HOSTS,
    {
        "train-images-idx3-ubyte": (9912422, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
        "train-labels-idx1-ubyte": (28881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
        "t10k-images-idx3-ubyte": (1648877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
        "t10k-labels-idx1-ubyte": (4542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
    },
)
QMNIST = _mnist_kind(
    "mnist",
    QMNIST_HOSTS,
    {"qmnist-train-labels-idx2-int": (463024, "2c05dc77f6b916b38e455e97ab129a42a444f3dbef09b278a366f82904e0dd9f")},
)
FASHION = _mnist_kind(
    "fashion-mnist",
    FASHION_HOSTS,
    {
        "train-images-idx3-ubyte": (26421880, "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"),
        "train-labels-idx1-ubyte": (29515, "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"),
        "t10k-images-idx3-ubyte": (4422102, "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"),
        "t10k-labels-idx1-ubyte": (5148, "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"),
    },
)
CIFAR_FOLDER = "cifar-10-batches-bin"
CIFAR_BATCHES = (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin")
EMNIST_FILES = tuple(
    f"emnist/emnist-{version}-{part}-{kind}-ubyte.gz"
    for version in EMNIST
    for part in ("train", "test")
    for kind in ("images-idx3", "labels-idx1")
)
# Sizes of the copies that this was written with; the published ones may differ by a few bytes.
PLAYS = {
    "a_and_c": 252, "all_well": 210, "as_you": 192, "com_err": 137, "coriolan": 260, "cymbelin": 247, "dream": 145,
    "hamlet": 280, "hen_iv_1": 215, "hen_iv_2": 235, "hen_v": 226, "hen_vi_1": 196, "hen_vi_2": 226, "hen_vi_3": 220,
    "hen_viii": 218, "j_caesar": 183, "john": 178, "lear": 246, "lll": 207, "m_for_m": 203, "m_wives": 207,
    "macbeth": 163, "merchant": 182, "much_ado": 195, "othello": 249, "pericles": 169, "r_and_j": 218, "rich_ii": 193,
    "rich_iii": 271, "t_night": 186, "taming": 194, "tempest": 155, "timon": 177, "titus": 180, "troilus": 249,
    "two_gent": 165, "win_tale": 217,
}  # fmt: skip
"""The 37 plays, each with about how many thousand bytes it has."""
LIBSVM: dict[str, tuple[int, str | None]] = {
    "mushrooms": (879712, "sha256:f39a4eb628dc61a7d43760815b061c9e497aa728ce1ad8bde57a09ef6043b538"),
    "a6a": (803000, None),
    "a6a.t": (1527000, None),
    "a9a": (2329875, "sha256:f5d5ffd8d865ff41328e7ee043e4b020816914ff6843ff15b98905ddbedce906"),
    "w7a": (1729000, None),
    "w7a.t": (1749000, None),
    "w8a": (3478238, "sha256:6a9fa8fd5f524303240a5db07d4b3d4a51e8b7b4b20a914105d8e3e8c81640f2"),
}
UCI, WEB = "CC BY 4.0 (UCI)", "none stated (J. Platt 1998)"
LICENCES = {name: WEB if name.startswith("w") else UCI for name in LIBSVM}
LEAF = (
    "{0} is not published in this form: run LEAF's data/{1}/preprocess.sh -s niid --sf 1.0 -t sample, and copy its "
    "data/train and data/test to {{folder}}/{2}"
)

DATASETS: dict[str, Dataset] = {
    dataset.name: dataset
    for dataset in (
        Dataset("mnist", "mnist", "CC BY-SA 3.0", MNIST),
        Dataset("mnist_by_writer", "mnist_by_writer", "CC BY-SA 3.0; writer ids BSD-style", MNIST + QMNIST),
        Dataset("fashion_mnist", "fashion_mnist", "MIT", FASHION),
        Dataset(
            "emnist",
            "emnist",
            "none stated (NIST, Cohen et al. 2017)",
            (
                Download(
                    "emnist/gzip.zip",
                    EMNIST_HOSTS,
                    561753746,
                    "md5:58c8d27c78d21e728a6bc7b3cc06412e",
                    EMNIST_FILES,
                ),
            ),
        ),
        Dataset(
            "femnist",
            "femnist",
            "none stated (NIST; LEAF's code BSD-2)",
            by_hand=LEAF.format("FEMNIST", "femnist", "femnist"),
            files=("femnist/train",),
        ),
        Dataset(
            "cifar10",
            "cifar10",
            "none stated; cite Krizhevsky 2009",
            (
                Download(
                    "cifar-10-binary.tar.gz",
                    CIFAR_HOSTS,
                    170052171,
                    "sha256:c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
                    tuple(f"{CIFAR_FOLDER}/{name}" for name in CIFAR_BATCHES),
                ),
            ),
        ),
        Dataset(
            "shakespeare",
            "shakespeare",
            "public domain; markup free to copy (Bosak)",
            tuple(Download(f"shakespeare/{play}.xml", PLAYS_HOSTS, size * 1000, None) for play, size in PLAYS.items()),
        ),
        Dataset(
            "shakespeare_leaf",
            "shakespeare_leaf",
            "public domain (Gutenberg; LEAF's code BSD-2)",
            by_hand=LEAF.format("LEAF's Shakespeare", "shakespeare", "shakespeare_leaf"),
            files=("shakespeare_leaf/train",),
        ),
        Dataset(
            "debtags",
            "debtags",
            "facts of Debian 12's package lists",
            by_hand=(
                "debtags is not published as one file: put its words, tags and rows, each [client, word ids, tag ids], "
                "into {folder}/debtags/debtags.json"
            ),
            maker="to be made from Debian's package lists",
            files=("debtags/debtags.json",),
        ),
        *(
            Dataset(name, "libsvm", LICENCES[name], (Download(f"libsvm/{name}", LIBSVM_HOSTS, size, checksum),))
            for name, (size, checksum) in LIBSVM.items()
        ),
        Dataset(
            "libsvm",
            "libsvm",
            f"a*, mushrooms: {UCI}; w*: {WEB}",
            tuple(Download(f"libsvm/{name}", LIBSVM_HOSTS, *facts) for name, facts in LIBSVM.items()),
        ),
    )
}

EMBEDDED = {
    "synthetic": "Apache-2.0",
    "quadratics": "Apache-2.0",
    "sines": "Apache-2.0",
    "airlines": "CC0",
    "digits": "CC BY 4.0 (UCI)",
}
"""The sources that need no files, with their licences."""


def dataset_of(path: str) -> Dataset | None:
    """The first dataset that has this file (a path from the data folder)."""
    for dataset in DATASETS.values():
        if any(path in download.results for download in dataset.downloads):
            return dataset
    return None
