"""The command line keeps its contract: exit statuses, JSON, and no traceback for any input."""

from __future__ import annotations

import json

import msgspec
import pytest
from canned_drafts import make_drafted
from canned_trials import MACHINE, make_result

from engine.messages import Chat, Failed, Load
from game import cli
from game.session import Session


@pytest.mark.parametrize(
    ("case", "word", "status"),
    [
        ("pass", "pass", 0),
        ("fail", "fail", 1),
        ("straddle", "inconclusive", 3),
        ("noisy", "invalid", 4),
        ("fault", "invalid", 4),
    ],
)
def test_a_verdict_is_the_exit_status(machine, capsys, case, word, status):
    machine(make_result("pendulum", case))
    assert cli.run(["trial", "pendulum", "--json"]) == status
    told = json.loads(capsys.readouterr().out)
    assert told["verdict"] == word


def test_the_json_of_a_trial_has_the_documented_keys(machine, capsys):
    machine(make_result("pendulum", "pass"))
    arguments = ["trial", "pendulum", "--set", "batch=8", "--set", "precision=bfloat16"]
    assert cli.run([*arguments, "--guess", "18", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    documented = {
        "verdict", "stage", "build", "resolved", "goals", "metrics", "memory", "quality",
        "bound_by", "kernel_path", "guess", "record", "environment",
    }  # fmt: skip
    assert documented <= told.keys()
    assert {"metric", "bound", "measured", "interval", "holds"} <= told["goals"][0].keys()
    assert {"predicted_bytes", "allocated_bytes"} <= told["memory"].keys()
    assert {"kl", "top1", "perplexity_ratio"} <= told["quality"].keys()
    assert told["guess"]["value"] == 18.0
    assert len(told["record"]) == 64
    assert told["build"]["schedule.batch"] == 8


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["trial", "pendulum", "--set", "batch=0"], "nearest: 1"),
        (["trial", "pendulum", "--set", "bacth=8"], "schedule.batch"),
        (["trial", "pendulum", "--set", "precision=bf16"], "bfloat16"),
        (["trial", "pendulum", "--set", "batch"], "knob=value"),
        (["trial", "pendulum", "--set", "batch=2", "--set", "batch=4"], "twice"),
        (["trial", "pendulum", "--set", "output=64"], "workload.output"),
        (["trial", "pendulum", "--guess", "many"], "many"),
        (["trial", "gate", "--guess", "banana"], "bandwidth"),
        (["trial", "pendlum"], "pendulum"),
        (["trial", "loom"], "open: gate, pendulum, abyss, furnace"),
        (["trial"], "STAGE"),
        (["trail", "pendulum"], "trial"),
        (["trial", "pendulum", "--device", "tpu"], "cpu"),
        (["trial", "pendulum", "--nonsense"], "--nonsense"),
        (["lint", "no-such-file.yaml"], "no-such-file.yaml"),
        (["lint", "pendlum"], "pendulum"),
        (["chat", " "], "empty"),
        (["chat", "hi", "--set", "batch=0"], "nearest: 1"),
        (["chat", "hi", "--temperature", "3"], "0.0<=x<=2.0"),
        (["chat", "hi", "--temperature", "1", "--set", "temperature=0.5"], "set twice"),
        (["trial", "plaza", "--set", "temperature=3"], "nearest: 2"),
        (["trial", "pendulum", "--set", "temperature=1"], "cannot be set in this hall"),
        (["model", "info", "nowhere.gguf"], "nowhere.gguf"),
        (["model", "add", "nowhere.gguf"], "nowhere.gguf"),
        (["play"], "terminal"),
        ([], "terminal"),
    ],
)
def test_bad_input_exits_2_and_names_what_would_be_right(machine, capsys, arguments, said):
    machine(make_result("pendulum", "pass"))
    assert cli.run(arguments) == 2
    told = capsys.readouterr()
    assert said in told.err
    assert "Traceback" not in told.err + told.out


@pytest.mark.parametrize(
    ("arguments", "build"),
    [
        (["--temperature", "0.7"], {"sampling.temperature": 0.7}),
        (["--set", "temperature=0.7"], {"sampling.temperature": 0.7}),
        (["--temperature", "1", "--set", "temperature=1"], {"sampling.temperature": 1.0}),
        (["--temperature", "0"], {"sampling.temperature": 0.0}),
        ([], {}),
    ],
)
def test_a_chat_is_sent_its_temperature_with_its_build(monkeypatch, arguments, build):
    sent = []

    class Client:
        def __init__(self, *_, **__): ...

        async def start(self): ...

        async def stop(self): ...

        async def run(self, make, *_, **__):
            sent.append(make(1))
            return Failed(1, "input", "no more") if isinstance(sent[-1], Chat) else None

    monkeypatch.setattr("engine.client.WorkerClient", Client)
    assert cli.run(["chat", "hi", *arguments]) == 2
    assert [one.build for one in sent if isinstance(one, Chat)] == [build]


def test_a_build_the_engine_refuses_exits_2(machine, capsys):
    machine(Failed(1, "input", "run.precision=float16 cannot run here: no kernels"))
    assert cli.run(["trial", "pendulum", "--set", "batch=2"]) == 2
    assert "float16 cannot run here" in capsys.readouterr().err


def test_an_interrupt_exits_130(machine, capsys, monkeypatch):
    machine(make_result("pendulum", "pass"))

    async def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(Session, "trial", interrupted)
    assert cli.run(["trial", "pendulum"]) == 130


def test_a_fault_of_the_program_exits_5_and_keeps_its_traceback(machine, capsys, monkeypatch):
    machine(make_result("pendulum", "pass"))

    async def broken(*args, **kwargs):
        raise RuntimeError("a \x1b[31mred\x1b[0m fault")

    monkeypatch.setattr(Session, "trial", broken)
    assert cli.run(["trial", "pendulum"]) == 5
    told = capsys.readouterr().err
    assert "RuntimeError: a red fault" in told and "Traceback" not in told
    path = told.strip().rsplit(" ", 1)[-1]
    with open(path, encoding="utf-8") as kept:
        assert "Traceback" in kept.read()


def test_practice_is_said_to_be_practice(machine, capsys):
    machine(make_result("pendulum", "pass"))
    assert cli.run(["trial", "pendulum"]) == 0
    assert "practice" in capsys.readouterr().err


def test_stages_list_every_hall_in_order(machine, capsys):
    machine()
    assert cli.run(["stages", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [row["id"] for row in told["stages"]] == [
        "gate", "pendulum", "abyss", "furnace", "paging", "loom", "precision", "plaza",
        "questions", "mirror",
    ]  # fmt: skip
    assert [row["state"] for row in told["stages"]][:3] == ["open", "sealed", "sealed"]


def test_stages_print_as_a_table_too(machine, capsys):
    machine()
    assert cli.run(["stages", "--lang", "zh"]) == 0
    assert "青铜壁" in capsys.readouterr().out
    assert cli.run(["stages"]) == 0
    assert "Bronze Gate" in capsys.readouterr().out, "a headless --lang is for that command alone"


def test_lint_runs_the_claims_of_a_hall(machine, capsys):
    machine(make_result("pendulum", "pass"))  # the default build passes: the stage is broken
    assert cli.run(["lint", "pendulum", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert "the default build should fail and was pass" in told["stages"][0]["findings"][0]


@pytest.mark.parametrize("command", ["lint", "trial"])
@pytest.mark.parametrize(
    ("hall", "bandwidth", "dispatch", "said"),
    [
        ("furnace", 0.4e12, 2.5e-6, "HuggingFaceTB/SmolLM2-1.7B-Instruct can (`--model`)"),
        ("furnace", 0.4e12, 1e-2, "teaches, with any model known here"),
        ("furnace", 40e9, 3e-6, ""),
        ("gate", 0.4e12, 2.5e-6, ""),
    ],
)
def test_a_machine_that_cannot_show_a_lesson_says_so(
    machine, capsys, command, hall, bandwidth, dispatch, said
):
    """1.7 thousand million weights at 0.4 TB/s take 8.6 ms, some fifty calls a layer 3."""
    ceilings = msgspec.structs.replace(
        MACHINE.ceilings, read_bytes_per_second=bandwidth, dispatch_seconds=dispatch
    )
    machine().machine = msgspec.structs.replace(MACHINE, ceilings=ceilings)
    assert cli.run([command, hall]) in (0, 1)
    told = capsys.readouterr().err
    assert said in told and ("cannot show" in told) == bool(said)


def test_a_trial_of_drafts_tells_what_became_of_them(machine, capsys):
    worker = machine(make_drafted(), make_drafted())
    arguments = ["trial", "plaza", "--set", "kind=self4", "--draft-model", "another"]
    assert cli.run([*arguments, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["draft"]["lossless"]["identical"] == 8
    assert [text["kind"] for text in told["draft"]["texts"]] == ["story", "code", "list"]
    assert told["metrics"]["acceptance_rate"] == pytest.approx(249 / 400)
    assert {command.draft for command in worker.commands if isinstance(command, Load)} == {
        "another"
    }
    assert cli.run(arguments) == 0
    lines = capsys.readouterr().out
    assert "1,992 of 3,200 tokens stood, 62 %; 3.49 tokens a step" in lines
    assert "8 answers, the same token by token" in lines
    assert "who lived [alone] <on> the edge of" in lines


def test_lint_of_words_alone_runs_no_trial(machine, capsys):
    worker = machine()
    assert cli.run(["lint", "--words"]) == 0
    assert worker.commands == []


def test_help_names_every_command(machine, capsys):
    assert cli.run(["--help"]) == 0
    told = capsys.readouterr().out
    assert all(name in told for name in cli.COMMANDS)


def test_every_command_can_be_imported_and_explains_itself(machine, capsys):
    for name in cli.COMMANDS:
        assert cli.run([name, "--help"]) == 0
        assert "Usage" in capsys.readouterr().out


FLOOD = ["trial", "abyss", "--set", "batch=8", "--guess", "40 MB"]


def test_a_flood_exits_1_with_its_account_in_json(machine, capsys):
    machine(make_result("abyss", "flooded"))
    assert cli.run([*FLOOD, "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["verdict"] == "fail" and told["bound_by"] == "capacity"
    assert told["remarks"][0]["code"] == "flooded"
    flood = told["flood"]
    assert flood["asked_bytes"] == 1032 * 23_040 > flood["free_bytes"]
    assert (flood["running"], flood["requests"], flood["fits"]) == (7, 8, 7)
    account = flood["ledger"]
    assert sum(account["parts"].values()) <= account["budget"] == told["memory"]["budget_bytes"]
    assert [goal["holds"] for goal in told["goals"]] == [False, None]
    assert told["load"] is None and told["scar"] is True and len(told["record"]) == 64


def test_a_flood_is_told_in_lines(machine, capsys):
    machine(make_result("abyss", "flooded"))
    assert cli.run([*FLOOD, "--lang", "en"]) == 1
    told = capsys.readouterr().out
    assert "The vessel broke" in told and "scar that the hall demands" in told
    assert "weights 326 MB" in told and "not measured" in told
    assert "[" not in told.replace("[x]", "")  # no key without words, no interval without runs


def test_a_practice_flood_leaves_no_scar(machine, capsys):
    machine(make_result("abyss", "flooded"))
    assert cli.run(["trial", "abyss", "--set", "batch=8", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["scar"] is False
    assert cli.run(["stages", "--json"]) == 0
    (row,) = [row for row in json.loads(capsys.readouterr().out)["stages"] if row["id"] == "abyss"]
    assert row["scar"] == {"demanded": "flood", "record": None}


def test_stages_show_the_scar_and_whether_the_goals_were_met(machine, capsys):
    machine(make_result("abyss", "flooded"))
    assert cli.run(["stages"]) == 0
    assert "to come" in capsys.readouterr().out
    assert cli.run([*FLOOD, "--json"]) == 1
    record = json.loads(capsys.readouterr().out)["record"]
    assert cli.run(["stages"]) == 0
    assert "left" in capsys.readouterr().out
    assert cli.run(["stages", "--json"]) == 0
    (row,) = [row for row in json.loads(capsys.readouterr().out)["stages"] if row["id"] == "abyss"]
    assert row["scar"]["record"] == record and row["goals_met"] is False


@pytest.mark.parametrize(("case", "status"), [("pass", 0), ("fail", 1), ("straddle", 3)])
def test_a_served_trial_tells_both_builds_by_kind_of_request(machine, capsys, case, status):
    machine(make_result("paging", case), make_result("paging", case))
    assert cli.run(["trial", "paging", "--json"]) == status
    told = json.loads(capsys.readouterr().out)
    assert told["flood"] is None and told["load"]["requests"] == 16
    assert told["load"]["loads"] == told["pairs"] == (32 if case == "straddle" else 8)
    for build in ("candidate", "reference"):
        figures = told["load"][build]
        kinds = {kind["kind"]: kind for kind in figures["kinds"]}
        assert set(kinds) == {"chat", "document"}
        assert kinds["document"]["prompt_tokens"] > kinds["chat"]["prompt_tokens"]
        for kind in kinds.values():
            assert 0 <= kind["queueing"] < kind["ttft"] and kind["itl"] >= kind["tpot"] > 0
        assert 0 < figures["memory_use"] <= 1
    assert told["metrics"]["memory_use"] == pytest.approx(
        told["load"]["candidate"]["memory_use"], rel=1e-6
    )
    assert cli.run(["trial", "paging", "--lang", "en"]) == status
    lines = capsys.readouterr().out
    assert "short chats" in lines and "long documents" in lines and "TTFT" in lines


def test_what_the_vessel_can_never_hold_exits_2_before_the_run(machine, capsys):
    worker = machine()
    assert cli.run(["trial", "abyss", "--set", "precision=float32"]) == 2
    told = capsys.readouterr()
    assert "bfloat16" in told.err and "Traceback" not in told.err + told.out
    assert not any(type(command).__name__ == "RunTrial" for command in worker.commands)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["trial", "abyss", "--set", "bits=5"], "nearest: 4"),
        (["trial", "abyss", "--set", "budget=400"], "memory.budget cannot be set in this hall"),
        (["trial", "abyss", "--guess", "40%"], "18 MB"),
        (["trial", "abyss", "--set", "prompt=20000"], "context"),
        (["trial", "paging", "--set", "block_size=300"], "nearest: 256"),
        (["trial", "paging", "--set", "prefix_sharing=on"], "paged"),
        (["trial", "paging", "--set", "layout=page"], "nearest: paged"),
    ],
)
def test_bad_builds_of_memory_exit_2_and_name_what_would_be_right(machine, capsys, arguments, said):
    worker = machine()
    assert cli.run(arguments) == 2
    told = capsys.readouterr()
    assert said in told.err and "Traceback" not in told.err + told.out
    assert not any(type(command).__name__ == "RunTrial" for command in worker.commands)
