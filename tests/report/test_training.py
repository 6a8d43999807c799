from pscd.config import TrainConfig
from pscd.presets import preset
from pscd.report.blocks import Charts, Table, Text
from pscd.report.training import MOST, settings_section, training_section, updates_in_words, verdict_blocks


def blocks(section, kind):
    return [block for block in section.blocks if isinstance(block, kind)]


def test_curves_hold_what_the_log_holds_and_long_logs_are_thinned():
    rows = [{"step": i, "e_pos": float(i), "e_neg": -1.0, "retries": int(i > 5), "my_own": 2.0} for i in range(1, 1501)]
    section = training_section(rows)
    (charts,) = blocks(section, Charts)
    assert [chart.title for chart in charts.charts] == ["Energies", "My own"]
    data = [row for row in charts.charts[0].spec["datasets"]["rows"] if row["name"] == "data"]
    assert len(data) <= MOST
    assert data[-1] == {"update": 1500, "key": "s0", "name": "data", "value": 1500.0}
    assert charts.charts[0].spec["datasets"]["marks"] == [{"update": 6}]
    assert charts.updates == (1, 1500)
    assert any("750 of 1,500 rows of the log" in line for text in blocks(section, Text) for line in text.lines)


def test_a_good_run_is_called_good_and_a_bad_one_not():
    good, bad = ({"step": 1, "ess_pos": 1.0, "ess_neg": ess} for ess in (1.0, 0.001))
    assert verdict_blocks([good])[0].tone == "good"
    verdict = verdict_blocks([bad], ["gamma 0: every row counts"])
    assert verdict[0].tone == "warning"
    assert "weights collapsed" in verdict[0].lines[0]
    assert verdict[1].lines == ("Gamma 0: every row counts.",)


def test_settings_are_compared_with_those_for_such_data():
    (changed, everything) = blocks(settings_section(TrainConfig("moon", steps=7), 2, "abcd"), Table)
    assert changed.rows == (("steps", "7", "4000"),)
    assert ("seed", "0") in everything.rows
    usual = settings_section(preset("table").changed({"data": "my.csv"}), 5, None)
    assert blocks(usual, Text)[0].lines[1] == "Every setting is the default for such data."


def test_updates_of_a_run_that_held_out_rows_ended_are_those_of_its_log():
    early = preset("plane")
    assert updates_in_words(early, 650, 2000).startswith("650 of at most 2,000: by held-out rows none of the last 500")
    assert updates_in_words(early, 2000, 2000) == "2,000 of 2,000"
    assert updates_in_words(early, 0, 2000) == "2,000 of 2,000"  # nothing was logged
    assert updates_in_words(TrainConfig("moon", steps=70), 50, 70) == "70 of 70"
