"""`latency-wall sweep` from the command line: its table, its JSON, what it refuses beforehand."""

from __future__ import annotations

import importlib.util
import json
import xml.etree.ElementTree as ElementTree

import pytest
from canned_trials import make_result

from engine.messages import RunTrial
from game import cli
from game.session import Session


def specs(worker):
    return [command.spec for command in worker.commands if isinstance(command, RunTrial)]


def test_a_sweep_runs_the_grid_and_prints_a_row_each(machine, capsys):
    worker = machine(make_result("pendulum", "fail"), make_result("pendulum", "pass"))
    status = cli.run(
        ["sweep", "pendulum", "--over", "batch=1,8", "--set", "precision=bfloat16", "--seed", "5"]
    )
    told = capsys.readouterr()
    assert status == 0
    assert [spec.build["schedule.batch"] for spec in specs(worker)] == [1, 8]
    assert {spec.build["run.precision"] for spec in specs(worker)} == {"bfloat16"}
    assert {spec.seed for spec in specs(worker)} == {5}
    lines = told.out.splitlines()
    assert sum(line.lstrip("* ").startswith(("fail", "pass")) for line in lines) == 2
    assert "pendulum 2/2" in told.err
    assert worker.stopped


def test_json_is_the_only_thing_on_stdout(machine, capsys):
    machine(make_result("pendulum", "pass"), make_result("pendulum", "fail"))
    assert cli.run(["sweep", "pendulum", "--over", "batch=8,1", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [row["verdict"] for row in told["rows"]] == ["pass", "fail"]
    assert told["rows"][0]["memory_bytes"] > 0
    assert told["rows"][0]["kernel_path"]
    assert {"metric", "better"} <= told["axes"][0].keys()


def test_a_build_that_cannot_run_is_a_row(machine, capsys):
    worker = machine()
    arguments = ["sweep", "pendulum", "--over", "precision=float16,bfloat16", "--json"]
    assert cli.run(arguments) == 0
    told = json.loads(capsys.readouterr().out)
    assert [row["verdict"] for row in told["rows"]] == ["refused", "pass"]
    assert "float16" in told["rows"][0]["refused"]
    assert len(specs(worker)) == 1


def test_nothing_is_recorded(machine, capsys, tmp_path):
    machine()
    assert cli.run(["sweep", "pendulum", "--over", "batch=8"]) == 0
    capsys.readouterr()
    assert Session.open().records() == ()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["sweep", "pendulum"], "--over"),
        (["sweep", "pendulum", "--over", "batch"], "knob=a,b,c"),
        (["sweep", "pendulum", "--over", "batch=0,1"], "nearest: 1"),
        (["sweep", "pendulum", "--over", "bacth=1"], "schedule.batch"),
        (["sweep", "pendulum", "--over", "batch=1", "--over", "batch=2"], "twice"),
        (["sweep", "pendulum", "--over", "batch=1", "--set", "batch=2"], "--set"),
        (["sweep", "pendulum", "--over", "batch=1,2,3", "--limit", "2"], "3 builds"),
        (["sweep", "pendulum", "--over", "batch=1", "--plot", "chart.png"], "chart.png.svg"),
        (["sweep", "pendulum", "--over", "batch=1", "--plot", "no/where/a.svg"], "written"),
        (["sweep", "pendulm", "--over", "batch=1"], "pendulum"),
    ],
)
def test_bad_input_is_told_before_any_trial(machine, capsys, arguments, said):
    worker = machine()
    assert cli.run(arguments) == 2
    told = capsys.readouterr()
    assert said in told.err
    assert "Traceback" not in told.err
    assert worker.commands == []


def test_a_chart_without_matplotlib_says_how_to_get_it(machine, capsys, monkeypatch, tmp_path):
    worker = machine()
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "matplotlib" else found(name)
    )
    chart = str(tmp_path / "a.svg")
    assert cli.run(["sweep", "pendulum", "--over", "batch=1", "--plot", chart]) == 2
    assert "latency-wall[report]" in capsys.readouterr().err
    assert worker.commands == []


def test_the_chart_is_written_where_it_was_asked_for(machine, capsys, tmp_path):
    machine(make_result("pendulum", "fail"), make_result("pendulum", "pass"))
    chart = tmp_path / "a.svg"
    arguments = ["sweep", "pendulum", "--over", "batch=1,8", "--plot", str(chart)]
    assert cli.run(arguments) == 0
    capsys.readouterr()
    assert ElementTree.parse(chart).getroot().tag.endswith("svg")


def test_an_interrupted_sweep_prints_what_it_measured(machine, capsys, monkeypatch):
    worker = machine(make_result("pendulum", "pass"))
    answer = worker._tell

    def tell(canned):
        if len(specs(worker)) == 2:
            raise KeyboardInterrupt
        return answer(canned)

    monkeypatch.setattr(worker, "_tell", tell)
    status = cli.run(["sweep", "pendulum", "--over", "batch=8,4,2", "--json"])
    told = capsys.readouterr()
    assert status == 130
    assert [row["verdict"] for row in json.loads(told.out)["rows"]] == ["pass"]
    assert "1 of 3" in told.err
