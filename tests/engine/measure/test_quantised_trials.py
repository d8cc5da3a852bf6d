"""Trials of quantised builds on a real tiny model: what is told, measured, judged and stopped."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch
from rounded_weights import rounded
from scripted_trials import CAPABILITIES, MACHINE, spec

from engine.capabilities import Capabilities
from engine.domains import KnobError
from engine.measure.quantising import slow_matrices, told
from engine.measure.shelf import Shelf
from engine.measure.timing import system_clock
from engine.measure.trial_runner import Instruments, TrialRunner
from engine.messages import Event, Pressed, Progress
from engine.metrics import Evidence, point_estimates
from engine.model.config import ModelConfig
from engine.model.weights import Weights
from engine.quant.quantise import quantise
from engine.quant.weights import QuantisedWeights
from engine.quantised import Notice
from engine.recipe import Recipe
from engine.resolve import resolve
from engine.serve.failures import Aborted
from engine.trial import Bound, TrialResult
from engine.weight_format import FUSED, FUSED_FIRST
from kernels.linear import low_bit_forms

Configs = Callable[..., ModelConfig]
Tensors = Callable[[ModelConfig], dict[str, torch.Tensor]]
Make = Callable[..., TrialRunner]

PLAIN = {"workload.prompt": 16, "workload.output": 6, "run.precision": "bfloat16"}
FOUR = PLAIN | {"weights.bits": 4}
FORMS = {
    precision: low_bit_forms.available_low_bit_forms(dtype)
    for precision, dtype in (("float32", torch.float32), ("bfloat16", torch.bfloat16))
}
MACHINE_HERE: Capabilities = msgspec.structs.replace(CAPABILITIES, low_bit_forms=FORMS)


@pytest.fixture
def make_runner(tiny_config: Configs, tiny_tensors: Tensors, byte_tokenizer: Any) -> Make:
    """make_runner(events, aborted, quantise): on one tiny model."""
    config = tiny_config()
    tensors = tiny_tensors(config)

    def really(
        loaded: Any, recipe: Recipe, precision: str, pressed: Any, check: Any
    ) -> QuantisedWeights:
        return quantise(
            loaded.tensors,
            loaded.config,
            recipe,
            calibration_ids=list(range(recipe.calibration)) if recipe.calibration else (),
            on_pressed=pressed,
            check=check,
        )

    def make(
        events: list[Event],
        aborted: Callable[[], bool] = lambda: False,
        made_by: Any = really,
        tools: Any = None,
    ) -> TrialRunner:
        loaded = SimpleNamespace(
            config=config,
            tensors=tensors,
            tokenizer=byte_tokenizer,
            digest="a" * 64,
            name="tiny",
        )
        shelf = Shelf(loaded, quantise=made_by)
        return TrialRunner(shelf, MACHINE, MACHINE_HERE, events.append, aborted, instruments=tools)

    return make


def paired(**changes: Any) -> Any:
    fields = {"build": FOUR, "reference": PLAIN, "looks": (2,), "bounds": ()}
    return spec(**{**fields, **changes})


def test_a_four_bit_build_from_spec_to_figures(make_runner: Make, tiny_config: Configs) -> None:
    events: list[Event] = []
    goal = Bound("four_bit_gain", ">=", 0.01)
    result = make_runner(events).run(1, paired(quality=True, bounds=(goal,)))
    assert {fault.code for fault in result.faults} <= {"noise", "unstable"}
    model = tiny_config()
    memory = result.memory
    assert memory.weight_elements == sum(
        model.hidden * n
        for n in [model.vocabulary]
        + model.layers * [2 * model.query_width + 2 * model.kv_width, 3 * model.intermediate]
    )
    assert memory.predicted["weights"] == memory.allocated["weights"]
    assert memory.predicted_bytes == pytest.approx(memory.allocated_bytes, rel=0.02)
    assert result.quantised is not None
    assert (result.quantised.method, result.quantised.bits) == ("rtn", 4)
    assert not result.quantised.cached and result.quantised.seconds > 0
    assert len(result.quantised.errors) == 4 * model.layers
    assert result.kernel_path["linear"].startswith("int4-group")
    assert result.reference_kernel_path["linear"].startswith(("onednn-packed", "plain"))
    figures = point_estimates(Evidence.of(result))
    assert figures["four_bit_gain"] == pytest.approx(1 / figures["tpot_ratio"])
    assert 4 < figures["average_bits"] < 8 and 0.25 < figures["weight_share"] < 0.5
    assert figures["average_bits"] / 16 == pytest.approx(figures["weight_share"])
    assert result.quantised.average_bits == pytest.approx(figures["average_bits"], rel=0.05)
    assert result.quality is not None and result.quality.kl > 0.001
    assert msgspec.json.decode(msgspec.json.encode(result), type=TrialResult) == result


def test_every_matrix_is_told_as_it_is_pressed(make_runner: Make, tiny_config: Configs) -> None:
    """All are told or told of together: twenty a second at most, the last always."""
    events: list[Event] = []
    make_runner(events).run(1, paired(looks=(1,)))
    pressed = [event for event in events if isinstance(event, Pressed)]
    total = 4 * tiny_config().layers
    assert pressed and {event.build for event in pressed} == {"candidate"}
    assert pressed[-1].done == pressed[-1].total == total
    assert [event.done for event in pressed] == sorted({event.done for event in pressed})
    drawn = [event.histogram for event in pressed if event.histogram is not None]
    assert drawn and all(sum(one.before) == sum(one.after) for one in drawn)
    phases = [event.phase for event in events if isinstance(event, Progress)]
    assert phases.index("quantising") < phases.index("loading") < phases.index("warmup")


def test_the_second_trial_of_a_recipe_finds_its_weights(make_runner: Make) -> None:
    runner = make_runner([])
    first, second = (runner.run(job, paired(looks=(1,))) for job in (1, 2))
    assert first.quantised is not None and second.quantised is not None
    assert second.quantised.cached and second.quantised.seconds == 0
    assert second.quantised.errors == first.quantised.errors


def test_loading_is_timed_apart_from_quantising(make_runner: Make, tiny_config: Configs) -> None:
    """A clock that quantising moves on by minutes: nothing of it is loading."""
    jump = [0]
    config = tiny_config()

    def slowly(loaded: Any, recipe: Any, precision: str, pressed: Any, check: Any) -> Any:
        jump[0] += 90 * 10**9
        return rounded(config, loaded.tensors, recipe)

    tools = Instruments(clock=lambda: system_clock() + jump[0])
    runner = make_runner([], made_by=slowly, tools=tools)
    result = runner.run(1, paired(looks=(1,), kind="timeline", repeats=1))
    assert jump[0] and result.load_seconds < 60
    assert result.quantised is not None and result.quantised.seconds == 1.5


@pytest.mark.parametrize("after", [0, 1, 5])
def test_a_player_who_stops_is_heard_between_two_matrices(make_runner: Make, after: int) -> None:
    events: list[Event] = []

    def aborted() -> bool:
        return sum(isinstance(event, Pressed | Progress) for event in events) > after

    with pytest.raises(Aborted):
        make_runner(events, aborted).run(1, paired())
    assert not [e for e in events if isinstance(e, Progress) and e.phase == "warmup"]


def test_a_kernel_that_multiplies_by_something_else_is_found(
    make_runner: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The judge has the codes' values from the codes, not from what was laid out."""
    honest = Weights._low_bit

    def wrong(self: Weights, name: str, shape: tuple[int, int], bias: Any) -> Any:
        made = honest(self, name, shape, bias)
        if name == "layers.1.down":
            made.scales_and_zeros = made.scales_and_zeros.roll(1, dims=1)
        return made

    monkeypatch.setattr(Weights, "_low_bit", wrong)
    result = make_runner([]).run(1, paired(looks=(2,)))
    (fault,) = [fault for fault in result.faults if fault.code == "wrong_output"]
    assert fault.details["what"].startswith("candidate, run ")
    assert fault.details["what"].endswith("allowed in bfloat16 with 4-bit weights")


TWO = PLAIN | {"weights.bits": 2, "weights.embedding": 2, "workload.output": 16}


def test_an_honest_build_of_two_bits_is_not_called_wrong(make_runner: Make) -> None:
    """What it says is far from what the full model would: that is quality's to tell."""
    result = make_runner([]).run(1, paired(build=TWO, looks=(6,), quality=True))
    assert "wrong_output" not in {fault.code for fault in result.faults}
    assert result.quality is not None and result.quality.kl > 0.05


def test_a_build_of_two_bits_that_hardly_ever_agrees_with_its_codes_is(
    make_runner: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Single tokens tell nothing at that width; a hundred do."""
    honest = Weights._low_bit

    def wrong(self: Weights, name: str, shape: tuple[int, int], bias: Any) -> Any:
        made = honest(self, name, shape, bias)
        if name != "embedding":
            made.scale = -made.scale
        return made

    monkeypatch.setattr(Weights, "_low_bit", wrong)
    result = make_runner([]).run(1, paired(build=TWO, looks=(6,)))
    (fault,) = [fault for fault in result.faults if fault.code == "wrong_output"]
    assert re.fullmatch(
        r"candidate: \d of 96 tokens have the best score of their position, "
        "20% expected in bfloat16 with 2-bit weights",
        fault.details["what"],
    )
    few = make_runner([]).run(2, paired(build=TWO, looks=(5,)))
    assert "wrong_output" not in {fault.code for fault in few.faults}, "too few to tell"


def test_both_builds_may_be_quantised(make_runner: Make) -> None:
    events: list[Event] = []
    reference = PLAIN | {"weights.bits": 8}
    result = make_runner(events).run(1, paired(reference=reference, looks=(1,)))
    assert "wrong_output" not in {fault.code for fault in result.faults}
    assert result.reference_kernel_path["linear"].startswith("int8-row")
    assert {event.build for event in events if isinstance(event, Pressed)} == {
        "candidate",
        "reference",
    }


def test_smoothquant_runs_on_quantised_activations(make_runner: Make) -> None:
    build = PLAIN | {
        "weights.bits": 8,
        "weights.method": "smoothquant",
        "weights.calibration": 64,
    }
    events: list[Event] = []
    result = make_runner(events).run(1, paired(build=build, looks=(1,)))
    assert "wrong_output" not in {fault.code for fault in result.faults}
    assert result.kernel_path["linear"].startswith("int8-dynamic")
    assert result.quantised is not None and result.quantised.calibration_tokens == 64
    assert "calibration_short" in {notice.code for notice in result.quantised.notices}
    assert "64 tokens" in result.reasons["weights.calibration"]
    phases = [event.phase for event in events if isinstance(event, Progress)]
    assert phases.index("calibrating") < phases.index("quantising")


def test_a_build_that_cannot_be_is_refused_before_anything_is_quantised(
    make_runner: Make,
) -> None:
    events: list[Event] = []
    with pytest.raises(KnobError, match=r"nearest: weights.group=32"):
        make_runner(events).run(1, paired(build=FOUR | {"weights.group": 31}))
    assert events == []


def test_a_width_that_a_grid_keeps_from_its_kernel_is_noticed(tiny_config: Configs) -> None:
    forms = ("int4-group", "int8-row", "int8-dynamic", "packed")
    report = rounded(tiny_config(), _anything(tiny_config()), Recipe("rtn", 0, ())).report

    def notices(build: dict[str, int | str]) -> tuple[Notice, ...]:
        config = resolve(build, MACHINE_HERE, tiny_config()).config
        return told(report, config, tiny_config(), forms).notices

    assert notices({"weights.bits": 4}) == notices({"weights.bits": 8}) == ()
    assert notices({"weights.bits": 3}) == (), "three bits have no kernel to be kept from"
    (slow,) = notices({"weights.bits": 4, "weights.group": 16})
    assert slow.code == "slow_form"
    assert slow.details == {"bits": "4", "matrices": "8", "form": "packed"}
    config = resolve({"weights.bits": 8, "weights.group": 32}, MACHINE_HERE, tiny_config()).config
    assert len(slow_matrices(config, tiny_config(), forms)) == 8
    assert slow_matrices(config, tiny_config(), ("packed",)) == ()


def test_what_the_fused_product_takes_is_not_slow(tiny_config: Configs) -> None:
    """Whole runs and panels of 32 miss nothing; groups of 16 do not come to it."""
    config = tiny_config(hidden=64, intermediate=128, heads=2, kv_heads=1, head_dim=32)
    forms = ("int4-group", "int8-row", "packed", FUSED, FUSED_FIRST)
    for build, slow in (({"group": 32}, 0), ({"group": 64}, 0), ({"group": 16}, 8)):
        knobs = {"weights.bits": 4} | {f"weights.{name}": value for name, value in build.items()}
        asked = resolve(knobs, MACHINE_HERE, config).config
        assert len(slow_matrices(asked, config, forms)) == slow


def _anything(config: ModelConfig) -> dict[str, torch.Tensor]:
    return {"embedding": torch.ones(config.vocabulary, config.hidden)}
