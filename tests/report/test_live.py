"""A report that follows training: on time, never in the way."""

from dataclasses import replace

import numpy as np
import pytest

import pscd
from pscd.errors import UserError
from pscd.report import live
from pscd.report.live import LiveReport
from pscd.report.plane import FRAMES, Frames, read_frames
from pscd.run_folder import RunFolder
from tests.report.helpers import read


@pytest.fixture
def folder(tmp_path):
    return RunFolder(tmp_path / "run")


def test_the_file_is_there_while_training_and_complete_afterwards(small, folder, monkeypatch):
    monkeypatch.setattr(live, "EVERY", 0.0)
    monkeypatch.setattr(live, "SHARE", 1e9)
    report, seen = LiveReport(folder), []

    class Spy:
        checkpointed = report.checkpointed

        def logged(self, row):
            report.logged(row)
            seen.append(read(folder.report))

    pscd.train(replace(small, steps=20), folder.path, progress=False, watch=Spy())
    assert len(seen) == 2
    assert all(page.data["running"] for page in seen)
    assert "state training" in seen[0].text
    assert "updates 10 of 20" in seen[0].text
    assert report.finished()
    page = read(folder.report)
    assert not page.data["running"]
    assert "state finished" in page.text
    assert read_frames(folder.snapshots).updates == (0, 20)


def test_a_report_that_cannot_be_written_is_told_once_and_training_goes_on(small, folder, monkeypatch, capsys):
    def fails(*args):
        raise UserError("no space left")

    monkeypatch.setattr(live, "EVERY", 0.0)
    monkeypatch.setattr(live, "write_page", fails)
    monkeypatch.setattr(live, "write_frames", fails)
    pscd.train(replace(small, steps=20), folder.path, progress=False, watch=LiveReport(folder))
    assert capsys.readouterr().err.count("the report is not written: no space left") == 1
    assert folder.model.is_file()


def test_nothing_is_written_before_the_run_itself_writes(small, folder):
    class Stop(Exception):
        pass

    report = LiveReport(folder)

    class Fails:
        logged = report.logged

        def checkpointed(self, model, step):
            report.checkpointed(model, step)
            raise Stop

    with pytest.raises(Stop):
        pscd.train(small, folder.path, progress=False, watch=Fails())
    assert not folder.path.exists()  # free for the corrected command
    assert not report.finished()


def test_frames_are_thinned_and_those_after_a_roll_back_replaced():
    frames = Frames((), (), (0.0, 1.0, 0.0, 1.0))
    for update in range(FRAMES + 5):
        frames = frames.with_one(np.zeros((2, 2)), update)
        assert len(frames.grids) == len(frames.updates) <= FRAMES
    assert frames.updates[0] == 0
    assert list(frames.updates) == sorted(set(frames.updates))
    assert frames.with_one(np.zeros((2, 2)), 7).updates == (0, 2, 4, 6, 7)
