from pscd.config import RowSettings, TrainConfig
from pscd.report.blocks import Chart, Table, Text
from pscd.report.run import _updates
from pscd.report.training import findings_blocks, settings_section, training_section


def blocks(section, kind):
    return [block for block in section.blocks if isinstance(block, kind)]


def test_curves_hold_what_the_log_holds_and_long_logs_are_thinned():
    rows = [{"step": i, "e_pos": float(i), "e_neg": -1.0, "retries": int(i > 5), "my_own": 2.0} for i in range(1, 1501)]
    section = training_section(rows)
    charts = blocks(section, Chart)
    assert [chart.title for chart in charts] == ["Energies", "My own"]
    data = [row for row in charts[0].spec["datasets"]["rows"] if row["of"] == "data"]
    assert len(data) == 750
    assert data[-1] == {"update": 1500, "key": "s0", "of": "data", "value": 1500.0}
    assert charts[0].spec["datasets"]["marks"] == [{"update": 6}]
    assert any("750 of 1,500 rows of the log" in line for text in blocks(section, Text) for line in text.lines)


def test_findings_name_what_was_checked():
    good, bad = ({"step": 1, "ess_pos": 1.0, "ess_neg": ess} for ess in (1.0, 0.001))
    (found,) = findings_blocks([good])
    assert found == Text(("No problem found. Checked: effective sample sizes, roll-backs.",), "good")
    found, notes = findings_blocks([bad], ["gamma 0: all rows have weight 1"])
    assert found.tone == "warning"
    assert "eights collapsed" in found.lines[0]
    assert found.lines[-1] == "Checked: effective sample sizes, roll-backs."
    assert notes.lines == ("Gamma 0: all rows have weight 1.",)


def test_an_empty_log_is_not_called_good():
    (found,) = findings_blocks([])
    assert found.tone == "plain"
    assert "nothing was checked" in found.lines[0]
    (found,) = findings_blocks([{"step": 1, "loss": 0.5}])
    assert found.lines == ("No problem found. Checked: roll-backs.",)


def test_settings_are_compared_with_the_defaults():
    changed, everything, _ = blocks(settings_section(TrainConfig(updates=7, rows=RowSettings("moon")), "abcd"), Table)
    assert changed.rows == (("updates", "7", str(TrainConfig().updates)),)
    assert ("seed", "0") in everything.rows
    usual = settings_section(TrainConfig(rows=RowSettings(data="my.csv")), None)
    assert "All settings are defaults." in [line for text in blocks(usual, Text) for line in text.lines]


def test_updates_of_a_run_that_stopped_early_are_those_of_its_log():
    early = TrainConfig(updates=2000, rows=RowSettings("moon", idle_updates=500))
    assert _updates(early, 650, 2000).startswith("650 of at most 2,000: stopped early")
    assert _updates(early, 2000, 2000) == "2,000 of 2,000"
    assert _updates(early, 0, 2000) == "2,000 of 2,000"  # nothing was logged
    assert _updates(TrainConfig(updates=70, rows=RowSettings("moon")), 50, 70) == "70 of 70"
