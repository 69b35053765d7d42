"""The race: its command, and what it counts. No time is asserted."""

import itertools
import json
from dataclasses import replace

import pytest
import torch
from campaigns.race import main
from kit.race.agree import DifferError, hold
from kit.race.jobs import one_by_one
from kit.race.measure import Saved, passes, peak, saved
from kit.race.row import Row
from kit.race.rows import EXTRA, ROWS
from kit.race.step import Step

SILU = next(row for row in ROWS if row.name == "silu")
FLOATS = 4


def test_the_command_writes_what_it_found(tmp_path, capsys):
    arguments = ["--only", "silu", "--size", "small", "--rounds", "1", "--out", str(tmp_path)]
    assert main(arguments) == 0
    results = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    (entry,) = results["entries"]
    assert (entry["name"], entry["size"], entry["sizes"]) == ("silu", "small", [8, 8])
    assert set(entry["ways"]) == {"ours", "torch", "composite"}
    for way, ratio in entry["ratios"].items():
        assert ratio == entry["ways"]["ours"]["seconds"] / entry["ways"][way]["seconds"]
    assert "| silu | small |" in (tmp_path / "table.md").read_text(encoding="utf-8")
    assert (tmp_path / "race-small.png").read_bytes().startswith(b"\x89PNG")
    printed = capsys.readouterr()
    assert "derive / torch: median" in printed.out
    assert "] silu, small\n" in printed.err
    assert f"wrote {tmp_path / 'race-small.png'}" in printed.err


def test_the_race_says_its_dtype(tmp_path, capsys):
    arguments = ["--only", "relu", "--size", "small", "--rounds", "1", "--dtype", "bfloat16"]
    assert main([*arguments, "--out", str(tmp_path)]) == 0
    results = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert results["dtype"] == "bfloat16"
    (entry,) = results["entries"]
    assert entry["ways"]["torch"]["saved"]["outputs"] == 8 * 8 * 2
    assert "eager code, bfloat16." in capsys.readouterr().err


def test_processes_side_by_side_find_the_same(tmp_path, capsys):
    arguments = ["--only", "silu", "--only", "relu", "--size", "small", "--rounds", "1"]
    assert main([*arguments, "--jobs", "2", "--out", str(tmp_path)]) == 0
    results = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert [entry["name"] for entry in results["entries"]] == ["relu", "silu"]
    assert "relu" in capsys.readouterr().out


def test_an_interrupted_race_keeps_what_it_found(tmp_path, capsys, monkeypatch):
    def stopped(jobs, plan):
        yield from itertools.islice(one_by_one(jobs, plan), 1)
        raise KeyboardInterrupt

    monkeypatch.setattr("campaigns.race.one_by_one", stopped)
    arguments = ["--only", "silu", "--only", "relu", "--size", "small", "--rounds", "1"]
    assert main([*arguments, "--out", str(tmp_path)]) == 1
    results = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert [entry["name"] for entry in results["entries"]] == ["relu"]
    assert "interrupted: 1 of 2 jobs are not done" in capsys.readouterr().err


def test_a_way_that_is_compiled_wrongly_is_left_out_alone(tmp_path, capsys, monkeypatch):
    # Nothing is compiled: one way is another function, which the comparison finds.
    wrong = {"ours": lambda *x: x[0].detach().requires_grad_() * 2}
    ways = SILU.ways()
    name = {id(f): n for n, f in ways.items()}
    monkeypatch.setattr(Row, "ways", lambda row: ways)
    monkeypatch.setattr("kit.race.run.compiled", lambda f: wrong.get(name[id(f)], f))
    arguments = ["--only", "silu", "--size", "small", "--rounds", "1", "--compiled"]
    assert main([*arguments, "--out", str(tmp_path)]) == 1
    (entry,) = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))["entries"]
    assert set(entry["ratios"]) == {"torch", "composite"}
    assert "ours compiled is left out" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("device", "says"),
    [
        ("tpu", "--device is cpu or cuda, not tpu"),
        pytest.param(
            "cuda",
            "torch finds no CUDA device here",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is one"),
        ),
    ],
)
def test_a_device_that_is_not_there_is_wrong_usage(tmp_path, capsys, device, says):
    with pytest.raises(SystemExit, match="2"):
        main(["--device", device, "--out", str(tmp_path)])
    assert says in capsys.readouterr().err


def test_a_name_that_no_row_has_is_wrong_usage(tmp_path, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["--only", "silly", "--out", str(tmp_path)])
    assert "silly" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda x: x * torch.sigmoid(x) + 1e-4, "output 0 of composite"),
        (lambda x: x * torch.sigmoid(x).detach(), "gradient 0 of composite"),
        (lambda x: x[:1] * torch.sigmoid(x[:1]), "has shape"),
    ],
)
def test_a_way_that_computes_something_else_is_an_error(wrong, says):
    row = replace(SILU, composite=wrong)
    with pytest.raises(DifferError, match=says):
        hold(row, "small", row.ways(), torch.float64)


def test_a_row_that_differs_leaves_the_others_in_the_race(monkeypatch, tmp_path, capsys):
    # Of the name of a row whose call is measured too.
    wrong = replace(SILU, name="gelu", ours=torch.sin)
    monkeypatch.setattr("campaigns.race.ROWS", (wrong, SILU))
    assert main(["--size", "small", "--rounds", "1", "--out", str(tmp_path)]) == 1
    results = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert [entry["name"] for entry in results["entries"]] == ["silu"]
    assert results["calls"] == []
    said = capsys.readouterr().err
    assert "race: gelu, small, torch.float64: output 0 of torch is" in said
    assert "race: gelu, small, torch.float64: output 0 of minimal is" in said


def test_what_is_counted():
    row = Row(
        "a power of an exponential",
        lambda draw, *shape: [draw.normal(*shape), draw.normal(*shape)],
        ours=lambda x, y: torch.exp(x * y) ** 1.5,
        small=(5, 7),
    )
    function = row.ways()["ours"]
    step = Step.of(row, "small")
    full = 5 * 7 * FLOATS
    assert saved(step, function) == Saved(inputs=2 * full, outputs=0, others=full)
    assert passes(lambda: step.forward(function), step.full()) == [
        *("aten.mul.Tensor", "aten.exp.default", "aten.pow.Tensor_Scalar")
    ]
    x = step.tensors[0].detach()
    # The sine is there while the exponential is computed, and gone before the cosine is.
    assert peak(lambda: torch.exp(torch.sin(x)).sum()) == 2 * full
    assert peak(lambda: torch.cos(torch.exp(torch.sin(x)))) == 2 * full


def test_rows_have_names_of_their_own():
    names = [(row.name, size) for row in (*ROWS, *EXTRA) for size in row.sizes()]
    assert len(set(names)) == len(names)
    assert len({row.name for row in ROWS if row.composite or row.own}) >= 60
