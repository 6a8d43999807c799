"""Getting the files of image sets: known addresses, published checksums.

The MD5 sums of MNIST, Fashion-MNIST, SVHN and DTD are those in torchvision's `datasets`; that of the binary
CIFAR-10 stands on its authors' page, https://www.cs.toronto.edu/~kriz/cifar.html.
"""

import tarfile
from dataclasses import dataclass
from pathlib import Path

from pscd.data.image_sets import IMAGE_SETS, data_root
from pscd.errors import UserError


@dataclass(frozen=True)
class Download:
    """A file: where it is kept, its MD5 sum, and the folder below the root it goes to.

    Of a `.tar.gz` only the content is kept, in its own folders.
    """

    urls: tuple[str, ...]  # mirrors, in the order in which they are tried
    md5: str
    folder: str

    @property
    def name(self) -> str:
        """The file's name."""
        return self.urls[0].rsplit("/", 1)[1]


_MNIST = ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/")
_FASHION = ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",)
_SVHN = ("http://ufldl.stanford.edu/housenumbers/",)
_CIFAR = ("https://www.cs.toronto.edu/~kriz/",)
_DTD = ("https://www.robots.ox.ac.uk/~vgg/data/dtd/download/",)


def _file(mirrors: tuple[str, ...], name: str, md5: str, folder: str) -> Download:
    return Download(tuple(mirror + name for mirror in mirrors), md5, folder)


DOWNLOADS: dict[str, tuple[Download, ...]] = {
    "mnist": (
        _file(_MNIST, "train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873", "MNIST/raw"),
        _file(_MNIST, "train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432", "MNIST/raw"),
        _file(_MNIST, "t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3", "MNIST/raw"),
        _file(_MNIST, "t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c", "MNIST/raw"),
    ),
    "fashion-mnist": (
        _file(_FASHION, "train-images-idx3-ubyte.gz", "8d4fb7e6c68d591d4c3dfef9ec88bf0d", "FashionMNIST/raw"),
        _file(_FASHION, "train-labels-idx1-ubyte.gz", "25c81989df183df01b3e8a0aad5dffbe", "FashionMNIST/raw"),
        _file(_FASHION, "t10k-images-idx3-ubyte.gz", "bef4ecab320f06d8554ea6380940ec79", "FashionMNIST/raw"),
        _file(_FASHION, "t10k-labels-idx1-ubyte.gz", "bb300cfdad3c16e7a12a480ee83cd310", "FashionMNIST/raw"),
    ),
    "cifar10": (_file(_CIFAR, "cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530", ""),),
    "svhn": (
        _file(_SVHN, "train_32x32.mat", "e26dedcc434d2e4c54c9b2d4a06d8373", "svhn"),
        _file(_SVHN, "test_32x32.mat", "eb5a983be6a315427106f1b164d9cef3", "svhn"),
    ),
    "textures": (_file(_DTD, "dtd-r1.0.1.tar.gz", "fff73e5086ae6bdbea199a49dfb8a4c1", "dtd"),),
}


def download(name: str, *, root: Path | str | None = None, progress: bool = True) -> list[Path]:
    """Get the files of a set; returns where they, or the contents of archives, are.

    Files that are there with the right checksum are not fetched again.
    """
    if name not in DOWNLOADS:
        if name not in IMAGE_SETS:
            raise UserError(f"unknown images {name!r}; there are: {', '.join(DOWNLOADS)}")
        by_hand = IMAGE_SETS[name].by_hand
        raise UserError(
            f"{name} needs no download" if by_hand is None else f"{name} has to be fetched by hand, from {by_hand}"
        )
    folder = data_root(root)
    try:
        return [_get(file, folder / file.folder, progress) for file in DOWNLOADS[name]]
    except tarfile.TarError as error:
        raise UserError(f"the archive of {name} is not what it should be: {error}") from None
    except OSError as error:
        raise UserError(f"cannot write to {folder}: {error.strerror or error}") from None


def _get(file: Download, folder: Path, progress: bool) -> Path:
    archive = file.name.endswith(".tar.gz")
    unpacked = folder / f".{file.name}.unpacked"  # a mark, written last
    if archive and unpacked.exists():
        return folder
    path = _fetch(file, folder, progress)
    if not archive:
        return path
    with tarfile.open(path) as tar:
        tar.extractall(folder, filter="data")  # nothing outside of the folder
    unpacked.touch()
    path.unlink()
    return folder


def _fetch(file: Download, folder: Path, progress: bool) -> Path:
    """The file from the first mirror that has it whole."""
    import pooch
    from requests import RequestException

    pooch.get_logger().setLevel("WARNING")
    faults = []
    for url in file.urls:
        downloader = pooch.HTTPDownloader(progressbar=progress, timeout=60)
        try:
            found = pooch.retrieve(url, f"md5:{file.md5}", file.name, folder, downloader=downloader)
        except RequestException as error:
            reason = f"HTTP {error.response.status_code}" if error.response is not None else "no connection"
            faults.append(f"{url}: {reason}")
        except ValueError:  # pooch's word for a wrong checksum; it has removed the file
            faults.append(f"{url}: not the file that was published (wrong checksum)")
        else:
            return Path(found)
    raise UserError(f"cannot get {file.name}: {'; '.join(faults)}; try again later, or put it into {folder} by hand")
