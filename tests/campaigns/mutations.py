"""Specs with mistakes: every one is an operation that is derived, or a DeriveError, and soon.

``python tests/campaigns mutations --count 20000`` mutates the operations of the catalog and random
ones (characters, tokens, splices of two, nesting, large numbers), prints each text that ends in
another exception, takes above 5 s or above 500 MB, with its seed. A text is read in a process of
its own, so that one that hangs is found; ``--seed`` goes on where a campaign was stopped.
"""

import argparse
import multiprocessing
import random
import re
import resource
import signal
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from queue import Empty

from kit.programs import deep_program, random_program

from derive import catalog

SECONDS = 5
MEGABYTES = 500
_GRACE = 60
"""Seconds of the clock after which a process that does not even hear its alarm is ended."""

_TOKEN = re.compile(r"[^\W\d]\w*|\d+\.?\d*(?:[eE][+-]?\d+)?|\*\*|->|[=!<>]=|\s+|.", re.DOTALL)
_WORDS = (
    *"exp log sqrt abs floor int sum mean max amin argmax prod logsumexp softmax where".split(),
    *"size axis keep concat detach any all not and or op inf pi int bool float".split(),
    *"maximum clamp hypot sum[i] mean[*p] i j k n p x y A T [ ] ( ) , ; : | -> == != <=".split(),
    *"+ - * / ** ^ 0 1 2 -1 1/2 1e308 1e-308 9**9**9 99999999999999999999 ' \" . % @ \\".split(),
    *("\n", " ", "\t", "#", "é", "\0", "\u2028", "i)", "(i", "(i j)", "x[i]", "[i<=j]*"),
)


@dataclass(frozen=True)
class Outcome:
    """What came of one text: its kind, and where it is none of ours the end of the traceback."""

    seed: int
    kind: str
    detail: str = ""
    seconds: float = 0.0

    @property
    def failed(self) -> bool:
        return self.kind in ("crash", "slow", "large", "long error")


@cache
def texts() -> tuple[str, ...]:
    """The operations of the catalog as text, and random ones."""
    found = [str(op) for op in catalog.operations()]
    found += [random_program(seed).text for seed in range(150)]
    found += [deep_program(seed).text for seed in range(50)]
    return tuple(found)


def mutated(seed: int) -> str:
    """The text of that seed."""
    pick = random.Random(seed)
    text = pick.choice(texts())
    for _ in range(pick.choice((1, 1, 1, 2, 3, 6))):
        kind = pick.choice((_character, _token, _token, _token, _splice, _nested, _repeated, _line))
        text = kind(pick, text)
    return text


def _character(pick: random.Random, text: str) -> str:
    at = pick.randrange(len(text) + 1)
    sign = pick.choice("[](){}|,;:=<>!+-*/^%@.#'\"\\ \n\tabijknxyATW019_é")
    return text[:at] + pick.choice(("", sign)) + text[at + pick.randrange(2) :]


def _tokens(text: str) -> list[str]:
    return _TOKEN.findall(text)


def _token(pick: random.Random, text: str) -> str:
    tokens = _tokens(text) or [""]
    at = pick.randrange(len(tokens))
    match pick.randrange(5):
        case 0:
            tokens[at] = ""
        case 1:
            tokens[at] = pick.choice(_WORDS)
        case 2:
            tokens.insert(at, pick.choice(_WORDS))
        case 3:
            other = pick.randrange(len(tokens))
            tokens[at], tokens[other] = tokens[other], tokens[at]
        case 4:
            tokens[at] = pick.choice(tokens)
    return "".join(tokens)


def _splice(pick: random.Random, text: str) -> str:
    """A beginning of one text and an end of another, cut between tokens."""
    one, other = _tokens(text), _tokens(pick.choice(texts()))
    return "".join(one[: pick.randrange(len(one) + 1)] + other[pick.randrange(len(other)) :])


def _nested(pick: random.Random, text: str) -> str:
    """A part in brackets, or an access, within many functions."""
    parts = [m.span() for m in re.finditer(r"\w+\[[^\[\]]*\](?!\()|\([^()]*\)", text)]
    if not parts:
        return text
    start, end = pick.choice(parts)
    around = pick.choice(
        (
            ("exp(", ")"), ("abs(", ")"), ("(", ")"), ("-(", ")"), ("(1 + ", ")**2"),
            ("sqrt(1 + ", ")"), ("[", " > 0]"), ("where(", " > 0, 1, 2)"), ("maximum(", ", 1)"),
            ("tanh(", ")"), ("sum[i](", ")"), ("1/(", ")"), ("not ", ""), ("softmax[k](", ")"),
            ("x[", "]"), ("(0 ", ")"),
        )
    )  # fmt: skip
    times = pick.choice((1, 2, 3, 5, 10, 70, 300))
    return text[:start] + around[0] * times + text[start:end] + around[1] * times + text[end:]


def _repeated(pick: random.Random, text: str) -> str:
    """A term, a factor or a condition again and again."""
    parts = [m.span() for m in re.finditer(r"\w+\[[^\[\]]*\](?!\()", text)]
    if not parts:
        return text
    start, end = pick.choice(parts)
    sign = pick.choice((" + ", "*", " - ", "/", " > ", " and ", ", ", "**", " "))
    times = pick.choice((2, 3, 5, 30))
    return text[:start] + sign.join([text[start:end]] * times) + text[end:]


def _line(pick: random.Random, text: str) -> str:
    """A line left out, doubled or moved."""
    lines = text.split("\n")
    at, to = pick.randrange(len(lines)), pick.randrange(len(lines) + 1)
    line = lines[at]
    if pick.random() < 0.6:
        del lines[at]
    if pick.random() < 0.7:
        lines.insert(to, line)
    return "\n".join(lines)


def examined(seed: int, text: str | None = None) -> Outcome:
    """The text of that seed read, derived, emitted and shown; its seconds are the processor's."""
    text = mutated(seed) if text is None else text
    start = time.process_time()
    signal.signal(signal.SIGPROF, _stop)
    # Again each second: an exception within a weak reference's callback is lost.
    signal.setitimer(signal.ITIMER_PROF, 2 * SECONDS, 1)
    try:
        kind, detail = _tried(text)
    except _Late:
        kind, detail = "slow", f"above {2 * SECONDS} s"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    seconds = time.process_time() - start
    if seconds > SECONDS and kind != "crash":
        kind, detail = "slow", f"{seconds:.1f} s; {detail}"
    return Outcome(seed, kind, detail, seconds)


class _Late(BaseException):
    pass


def _stop(*_: object) -> None:
    raise _Late


def _tried(text: str) -> tuple[str, str]:
    import derive

    stage = "parse"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            op = derive.parse(text)
            stage = "derivation"
            found = derive.derivation(op)
            stage = "shown"
            for formula in (*found.equations, *found.gradients.values()):
                str(formula), formula.latex()
            stage = "source"
            compile(derive.source(op), "module", "exec")
    except derive.DeriveError as error:
        return ("long error" if len(str(error)) > 4000 else type(error).__name__), stage
    except Exception as error:
        places = traceback.extract_tb(error.__traceback__)[-3:]
        shown = ", ".join(f"{p.filename.rpartition('/')[2]}:{p.lineno}" for p in places)
        return "crash", f"{stage}: {type(error).__name__}: {str(error)[:200]} ({shown})"
    return "derived", ""


def _serve(requests: multiprocessing.Queue, results: multiprocessing.Queue) -> None:  # type: ignore[type-arg]
    """A process that examines seeds; one that took too much memory ends."""
    texts()
    import derive

    derive.source(derive.parse("y[n] = exp(x[n])"))
    least = _megabytes()
    results.put(None)
    while True:
        seed = requests.get()
        outcome = examined(seed)
        used = _megabytes()
        if used - least > MEGABYTES and not outcome.failed:
            outcome = Outcome(seed, "large", f"{used:.0f} MB", outcome.seconds)
        results.put((outcome, used - least > MEGABYTES))


def _megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def campaign(seeds: range) -> Iterator[Outcome]:
    """The outcomes in the order of the seeds; a process that hangs is ended and replaced."""
    context = multiprocessing.get_context("spawn")
    process = None
    for seed in seeds:
        if process is None:
            requests, results = context.Queue(), context.Queue()
            process = context.Process(target=_serve, args=(requests, results), daemon=True)
            process.start()
            results.get(timeout=300)
        requests.put(seed)
        try:
            outcome, full = results.get(timeout=_GRACE)
        except Empty:  # the process neither answers nor hears its alarm
            outcome, full = Outcome(seed, "slow", "hangs"), True
        yield outcome
        if full:
            process.kill()
            process = None
    if process is not None:
        process.kill()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000, help="how many texts")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--verbose", action="store_true", help="print every text")
    chosen = parser.parse_args()
    kinds: Counter[str] = Counter()
    slowest = 0.0
    for outcome in campaign(range(chosen.seed, chosen.seed + chosen.count)):
        kinds[outcome.kind] += 1
        slowest = max(slowest, outcome.seconds)
        if outcome.failed or chosen.verbose:
            print(f"seed {outcome.seed}: {outcome.kind}: {outcome.detail}")
            text = mutated(outcome.seed)
            print("    " + text[:1500].replace("\n", "\n    "), flush=True)
        if sum(kinds.values()) % 500 == 0:
            print(f"{dict(kinds)}, next --seed {outcome.seed + 1}", file=sys.stderr, flush=True)
    print(f"{dict(kinds)}; the slowest took {slowest:.1f} s")
    return int(any(Outcome(0, kind).failed for kind in kinds))
