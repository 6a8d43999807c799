import sys

import pytest

from pscd import extensions
from pscd.errors import UserError

MODULE = "part_of_ones_own"


@pytest.fixture
def written(tmp_path, monkeypatch):
    (tmp_path / f"{MODULE}.py").write_text("class Outer:\n    class Inner:\n        pass\n")
    monkeypatch.chdir(tmp_path)
    yield f"{MODULE}:Outer.Inner"
    sys.modules.pop(MODULE, None)


def test_what_a_person_names_is_imported_from_the_current_folder(written):
    kind = extensions.load(written)
    assert kind.__qualname__ == "Outer.Inner"
    assert extensions.path_of(kind) == written
    assert not any(str(place) == str(extensions.Path.cwd()) for place in sys.path[1:])


def test_what_a_file_names_is_not_imported(written):
    with pytest.raises(UserError, match=f"{written} is not loaded; import {MODULE} first"):
        extensions.loaded(written)
    assert MODULE not in sys.modules
    extensions.import_module(MODULE)
    assert extensions.loaded(written) is sys.modules[MODULE].Outer.Inner


@pytest.mark.parametrize("path", ["no_such_module_at_all:Name", "pscd.errors:Nobody", "pscd.errors:UserError.nothing"])
def test_a_path_that_leads_nowhere_is_told_in_one_line(path):
    with pytest.raises(UserError, match=r"cannot import|there is no"):
        extensions.load(path)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a:B", True),
        ("a.b:C.d", True),
        ("moon", False),
        ("a:", False),
        (":B", False),
        ("a/b:C", False),
        ("a:b:c", False),
    ],
)
def test_what_counts_as_a_path(name, expected):
    assert extensions.is_path(name) == expected


def test_classes_of_the_library_keep_their_bare_name():
    assert extensions.path_of(UserError) == "UserError"
