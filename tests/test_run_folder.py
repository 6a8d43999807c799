import pytest

from pscd.errors import UserError
from pscd.run_folder import RunFolder


def test_every_file_has_a_name_of_its_own(tmp_path):
    run = RunFolder(tmp_path)
    names = [name for name in vars(RunFolder) if isinstance(vars(RunFolder)[name], property) and name != "is_detector"]
    paths = [getattr(run, name) for name in names]
    assert len(set(paths)) == len(paths) > 0
    assert {path.parent for path in paths} == {tmp_path}


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot write to .*file/run"):
        RunFolder(tmp_path / "file" / "run").make()
