"""Getting the files of image sets from known addresses, checked by published checksums."""

import tarfile
from pathlib import Path

from pscd.data.pictures import data_root
from pscd.errors import UserError
from pscd.files import writing_to
from studies.images.sets import IMAGE_SETS, Download

DOWNLOADS = tuple(name for name, images in IMAGE_SETS.items() if images.files)  # sets that a command can get


def download(name: str, *, root: Path | str | None = None, progress: bool = True) -> list[Path]:
    """Get the files of a set; those that are there with the right checksum are not fetched again.

    Args:
        name: a key of `IMAGE_SETS`.
        root: folder of all sets (see `load_images`).
        progress: whether to show how far it is.

    Returns:
        The files, and for archives the folders of their contents.

    Raises:
        UserError: no command gets this set, no mirror has its files, or they cannot be written.
    """
    if name not in IMAGE_SETS:
        raise UserError(f"unknown images {name!r}; there are: {', '.join(DOWNLOADS)}")
    images = IMAGE_SETS[name]
    if images.by_hand is not None:
        raise UserError(f"{name} has to be fetched by hand, from {images.by_hand}")
    if not images.files:
        raise UserError(f"{name} needs no download")
    folder = data_root(root)
    try:
        with writing_to(folder):
            return [_get(file, folder / file.folder, progress) for file in images.files]
    except tarfile.TarError as error:
        raise UserError(f"the archive of {name} is not what it should be: {error}") from None


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
