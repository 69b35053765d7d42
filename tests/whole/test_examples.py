"""The examples: the data set and training of seed 004, and the classifier of seed 002."""

import random
import re
import sys
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import pytest
import torch

for library in ("matplotlib", "names", "sklearn"):  # found here, and read where a test runs
    if find_spec(library) is None:
        pytest.skip(f"{library} is not installed", allow_module_level=True)

from kit.command import ROOT, run  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import derive  # noqa: E402
from derive.examples import curve, data, makemore, model, softmax_regression  # noqa: E402
from derive.examples.program import ExampleError  # noqa: E402

SEED_NAMES = ROOT.parent / "shared" / "data" / "names.txt"
NAMES = "ada bob cleo dana eve finn gil hal ida jon kim lou".split()


@pytest.fixture
def names(tmp_path: Path) -> Path:
    path = tmp_path / "names.txt"
    path.write_text("\n".join(NAMES) + "\n")
    return path


@pytest.fixture
def small() -> tuple[model.Parameters, torch.Tensor, torch.Tensor]:
    """Parameters, X and Y for the names above."""
    found = data.data_set(NAMES)
    generator = torch.Generator().manual_seed(7)
    return model.initial_parameters(len(found.characters), generator), *found.splits["train"]


def is_png(path: Path) -> bool:
    return path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


def test_the_names_of_the_seed_give_its_counts_and_its_first_loss():
    if not SEED_NAMES.is_file():
        pytest.skip("the names of seed 004 are not here")
    found = data.data_set(data.read_names(SEED_NAMES))
    X, Y = found.splits["train"]
    sizes = {part: (tuple(X.shape), tuple(Y.shape)) for part, (X, Y) in found.splits.items()}
    assert sizes == {
        "train": ((182625, 3), (182625,)),
        "val": ((22655, 3), (22655,)),
        "test": ((22866, 3), (22866,)),
    }
    assert "".join(found.characters) == ".abcdefghijklmnopqrstuvwxyz"
    generator = torch.Generator().manual_seed(makemore.SEED)
    parameters = model.initial_parameters(27, generator)
    assert sum(p.numel() for p in parameters.values()) == 12297
    (first,) = model.train(parameters, X, Y, steps=1, generator=generator)
    assert first == pytest.approx(3.7932, abs=0.005)


def test_a_name_is_one_example_for_each_character_and_its_end():
    found = data.data_set(["emma"] * 10)
    assert found.characters == (".", "a", "e", "m")
    X, Y = found.splits["val"]
    assert X.tolist() == [[0, 0, 0], [0, 0, 2], [0, 2, 3], [2, 3, 3], [3, 3, 1]]
    assert Y.tolist() == [2, 3, 3, 1, 0]
    assert {part: len(Y) // 5 for part, (_, Y) in found.splits.items()} == {
        "train": 8,
        "val": 1,
        "test": 1,
    }


def test_names_are_shuffled_as_random_does_after_seed_42_and_nothing_else_is_touched():
    given, state = list(NAMES), random.getstate()
    found = data.data_set(given)
    assert given == NAMES
    assert random.getstate() == state
    random.seed(42)
    random.shuffle(given)
    random.setstate(state)
    _, Y = found.splits["train"]
    text = "".join(found.characters[number] for number in Y)
    assert text == "".join(f"{name}." for name in given[: int(0.8 * len(given))])


def test_the_default_names_are_first_names_each_once():
    found = data.census_names()
    assert found == sorted(set(found))
    assert len(found) == 5163
    assert {"mary", "james"} <= set(found)
    assert "mcdonald" not in found
    assert all(re.fullmatch("[a-z]+", name) for name in found)


def test_a_file_may_have_blank_lines_and_any_characters(tmp_path):
    path = tmp_path / "names.txt"
    path.write_bytes("Zoé-Maria\r\n\n  Ann \n\t\nо'нил".encode())
    assert data.read_names(path) == ["Zoé-Maria", "Ann", "о'нил"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"ann\nst. john\n", "names.txt:2: 'st. john' contains '.', which marks the end of a name"),
        (b"ann\n\xff\n", "names.txt: not UTF-8 text, at byte 4"),
        (b"\n \n", "0 names are too few for the train split; give ten or more"),
        (b"ann\nbob\neve\n", "3 names are too few for the val split; give ten or more"),
    ],
)
def test_a_file_that_cannot_be_used_is_an_error_that_says_why(tmp_path, capsys, content, message):
    path = tmp_path / "names.txt"
    path.write_bytes(content)
    assert makemore.main(["--names", str(path), "--out", str(tmp_path / "c.png")]) == 2
    assert message in capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir()] == ["names.txt"]


def test_a_missing_file_is_named(tmp_path, capsys):
    assert makemore.main(["--names", str(tmp_path / "none.txt")]) == 2
    err = capsys.readouterr().err
    assert err.startswith("makemore: ")
    assert "No such file" in err
    assert "none.txt" in err


def seed_loss(parameters, X, Y):
    """The network of seed 004 in torch's own operations."""
    C, W1, b1, W2, b2, bngain, bnbias = parameters.values()
    hprebn = C[X].view(X.shape[0], -1) @ W1 + b1
    mean, var = hprebn.mean(0, keepdim=True), hprebn.var(0, keepdim=True, unbiased=True)
    hpreact = bngain * (hprebn - mean) * (var + 1e-5) ** -0.5 + bnbias
    return F.cross_entropy(torch.tanh(hpreact) @ W2 + b2, Y)


def test_training_takes_the_steps_that_autograd_takes(small):
    parameters, X, Y = small
    theirs = {name: p.clone().requires_grad_() for name, p in parameters.items()}
    generator = torch.Generator().manual_seed(11)
    expected = []
    for rate in (0.2, 0.2, 0.02, 0.02):
        batch = torch.randint(0, X.shape[0], (32,), generator=generator)
        loss = seed_loss(theirs, X[batch], Y[batch])
        for p, gradient in zip(
            theirs.values(), torch.autograd.grad(loss, [*theirs.values()]), strict=True
        ):
            p.data -= rate * gradient
        expected.append(loss.item())
    generator = torch.Generator().manual_seed(11)
    losses = list(model.train(parameters, X, Y, steps=4, generator=generator, rate=0.2))
    assert losses == pytest.approx(expected, rel=1e-5)
    for name, p in parameters.items():
        torch.testing.assert_close(p, theirs[name].detach(), rtol=1e-4, atol=1e-5)


def test_training_asks_autograd_for_nothing(small, monkeypatch):
    def refuse(*args, **options):
        raise AssertionError("autograd was used")

    parameters, X, Y = small
    for place, name in (
        (torch.Tensor, "backward"),
        (torch.autograd, "backward"),
        (torch.autograd, "grad"),
        (torch, "enable_grad"),
    ):
        monkeypatch.setattr(place, name, refuse)
    generator = torch.Generator().manual_seed(3)
    losses = list(model.train(parameters, X, Y, steps=40, generator=generator))
    assert sum(losses[-10:]) < sum(losses[:10])
    calibrated = model.calibrate(parameters, X)
    model.loss(calibrated, X, Y)
    model.sample(calibrated, generator)
    assert not any(p.requires_grad for p in calibrated.values())


def test_the_learning_rate_is_a_tenth_in_the_second_half(small, monkeypatch):
    parameters, X, Y = small

    def value_and_grad(op):
        gradients = {name: torch.ones_like(p) for name, p in parameters.items()}
        return lambda *tensors: (torch.zeros(()), gradients)

    monkeypatch.setattr(derive, "value_and_grad", value_and_grad)
    b1 = [parameters["b1"][0].item()]
    for _ in model.train(parameters, X, Y, steps=5, generator=torch.Generator()):
        b1.append(parameters["b1"][0].item())
    taken = [before - after for before, after in pairwise(b1)]
    assert taken == pytest.approx([0.1, 0.1, 0.01, 0.01, 0.01], abs=1e-6)


def test_the_calibrated_model_is_batch_norm_with_the_statistics_of_all_examples(small):
    parameters, X, Y = small
    C, W1, b1, W2, b2, bngain, bnbias = parameters.values()
    hprebn = C[X].view(X.shape[0], -1) @ W1 + b1
    mean, var = hprebn.mean(0), hprebn.var(0, unbiased=True)
    calibrated = model.calibrate(parameters, X)
    torch.testing.assert_close(calibrated["bnmean"], mean)
    torch.testing.assert_close(calibrated["bnvar"], var)
    hpreact = bngain * (hprebn - mean) * (var + 1e-5) ** -0.5 + bnbias
    expected = F.cross_entropy(torch.tanh(hpreact) @ W2 + b2, Y)
    assert model.loss(calibrated, X, Y) == pytest.approx(expected.item(), rel=1e-5)


def test_names_are_sampled_from_the_distribution_of_the_next_character(small):
    """A model that has but one character to say; it may never end a name."""
    parameters, X, _ = small
    calibrated = model.calibrate(parameters, X)
    generator = torch.Generator().manual_seed(5)
    calibrated["W2"], calibrated["b2"] = torch.zeros_like(calibrated["W2"]), calibrated["b2"] * 0
    calibrated["b2"][0] = 1e4
    assert model.sample(calibrated, generator) == [0]
    calibrated["b2"][3] = 2e4
    assert model.sample(calibrated, generator) == [3] * model.LONGEST


def test_a_run_prints_counts_losses_and_names_and_draws_the_curve(names, tmp_path, capsys):
    out = tmp_path / "curve.png"
    arguments = ["--names", str(names), "--steps", "60", "--out", str(out)]
    assert makemore.main(arguments) == 0
    first = capsys.readouterr()
    assert first.err == ""
    head, table, tail = (
        first.out.splitlines()[part] for part in (slice(5), slice(5, 25), slice(25, None))
    )
    assert head == [
        "12 names of 17 characters",
        "train 39 examples",
        "val 4 examples",
        "test 8 examples",
        "10398 parameters",
    ]
    for number, line in enumerate(table):
        assert re.fullmatch(rf"{3 * number:7d}/     60: \d\.\d{{4}}", line)
    assert tail[0] == f"loss curve in {out}"
    for part, line in zip(("train", "val", "test"), tail[1:4], strict=True):
        assert re.fullmatch(rf"{part} \d+\.\d{{4}}", line)
    assert len(tail[4:]) == 20
    assert all(line.endswith(".") or len(line) == model.LONGEST for line in tail[4:])
    assert is_png(out)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["curve.png", "names.txt"]
    assert makemore.main(arguments) == 0
    assert capsys.readouterr().out == first.out


def test_the_loss_is_printed_every_10_000_steps(names, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(
        makemore, "train", lambda *given, steps, **more: iter([3.7932] + [2.1] * (steps - 1))
    )
    assert makemore.main(["--names", str(names), "--out", str(tmp_path / "curve.png")]) == 0
    table = [line for line in capsys.readouterr().out.splitlines() if "/ 200000: " in line]
    assert table[0] == "      0/ 200000: 3.7932"
    assert [int(line.split("/")[0]) for line in table] == list(range(0, 200_000, 10_000))


def test_a_loss_that_is_no_number_stops_the_run_and_keeps_what_was_written(names, tmp_path, capsys):
    out = tmp_path / "curve.png"
    arguments = ["--names", str(names), "--steps", "60", "--out", str(out), "--rate", "1e38"]
    assert makemore.main(arguments) == 1
    told = capsys.readouterr()
    assert re.search(r"makemore: the loss is (nan|inf) at step [1-9]\d*, where", told.err)
    assert told.err.endswith(": try --rate 1e+37\n")
    assert re.search(r"^      0/     60: \d\.\d{4}$", told.out, re.MULTILINE)
    assert is_png(out)
    assert told.out.splitlines()[-1] == f"loss curve in {out}"
    arguments[3] = "1"
    assert makemore.main(arguments) == 1
    assert "the loss is nan over the train names: try" in capsys.readouterr().err


def test_an_interrupted_run_keeps_what_was_written(names, tmp_path, capsys, monkeypatch):
    def interrupted(*given, **more):
        yield 3.5
        yield 3.25
        raise KeyboardInterrupt

    monkeypatch.setattr(makemore, "train", interrupted)
    out = tmp_path / "curve.png"
    assert makemore.main(["--names", str(names), "--out", str(out)]) == 130
    told = capsys.readouterr()
    assert "      0/ 200000: 3.5000\n" in told.out
    assert told.err == "makemore: interrupted\n"
    assert is_png(out)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--steps", "0"), "--steps: 0 is not a positive integer"),
        (("--steps", "1e3"), "--steps: 1e3 is not a positive integer"),
        (("--device", "abacus"), "--device: abacus: "),
        (("--device", "meta"), "--device: meta: "),
    ],
)
def test_a_wrong_argument_ends_with_2(capsys, arguments, message):
    with pytest.raises(SystemExit) as end:
        makemore.main(arguments)
    assert end.value.code == 2
    assert message in capsys.readouterr().err


def test_a_curve_that_cannot_be_written_is_told_before_training(tmp_path, capsys):
    assert makemore.main(["--out", str(tmp_path / "none" / "curve.png")]) == 2
    assert "does not exist" in capsys.readouterr().err
    assert makemore.main(["--out", str(tmp_path)]) == 2
    assert "this is a folder" in capsys.readouterr().err


@pytest.mark.parametrize("library", ["torch", "matplotlib"])
def test_a_missing_library_is_named_with_the_extra_that_has_it(library, tmp_path):
    code = (
        f"import runpy, sys; sys.modules[{library!r}] = None; sys.argv = ['makemore']\n"
        "runpy.run_module('derive.examples.makemore', run_name='__main__')"
    )
    done = run(sys.executable, "-c", code, cwd=tmp_path)
    assert done.returncode == 2
    wanted = f"the examples need {library}: pip install 'derive-backward[examples]'\n"
    assert done.stderr == wanted


def test_the_curve_is_the_mean_of_the_logarithms_over_windows():
    assert curve.window_means([10, 1000, 100, 100, 0.1], 2) == pytest.approx([2, 2, -1])
    assert curve.window_means([0.0], 1) == [-12]


def test_a_curve_that_fails_half_way_leaves_the_former_one(tmp_path, monkeypatch):
    out = tmp_path / "curve.png"
    curve.write_curve([2.5, 2.25], out)
    former = out.read_bytes()

    def half(self, path, **options):
        Path(path).write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", half)
    with pytest.raises(OSError, match="disk full"):
        curve.write_curve([1.0], out)
    assert out.read_bytes() == former
    assert [p.name for p in tmp_path.iterdir()] == ["curve.png"]


def test_softmax_regression_learns_the_digits_on_generated_functions(capsys):
    assert softmax_regression.main([]) == 0
    out = capsys.readouterr().out
    assert "logits.grad_fn _LinearBackward\n" in out
    assert "cost.grad_fn   DivBackward0\n" in out and "_CrossEntropyBackward\n" in out
    assert "AccumulateGrad (10, 64)" in out
    assert "two backwards are twice one: True" in out
    assert "after zero_grad: None" in out
    compared = re.findall(r"approximate: (\w+) *\| maxdiff: (\S+)", out)
    assert len(compared) == 8
    assert all(close == "True" and float(maxdiff) <= 1e-7 for close, maxdiff in compared)
    costs = [float(cost) for cost in re.findall(r"epoch +\d+/30: cost (\d\.\d{4})", out)]
    assert len(costs) == 30
    assert costs[-1] < 0.2 < costs[0]
    accuracy = re.search(r"test accuracy (\d+\.\d\d) %", out)
    assert float(accuracy[1]) > 94


def test_softmax_regression_starts_at_zero_and_stops_at_a_cost_that_is_no_number(capsys):
    (X, Y), (X_test, _) = softmax_regression.digits()
    assert (len(X), len(X_test)) == (1437, 360)
    start = softmax_regression.SoftmaxRegression(64, 10)
    assert all(not p.any() for p in start.parameters())
    with pytest.raises(ExampleError, match="the cost is inf in epoch 1, where"):
        softmax_regression.train(start, X, Y, epochs=2, rate=1e38)
    assert softmax_regression.main(["--epochs", "2", "--rate", "1e38"]) == 1
    assert "softmax_regression: the cost is inf in epoch 1" in capsys.readouterr().err
