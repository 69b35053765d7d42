"""The verdict on one Function: check its examples and variants of them, and explain mistakes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import torch

from derive.auditing.conditions import Judge, runs, widened
from derive.auditing.examples import (
    call_groups,
    counterexample,
    kept_on_ctx,
    told_constants,
    with_wide_modules,
)
from derive.auditing.explanation import Explanation, explanation
from derive.auditing.findings import (
    FRAGILE,
    REMARK,
    SECOND_ORDER,
    WRONG,
    AuditFinding,
    ByLevel,
    by_how_much,
    by_level,
)
from derive.auditing.forward import Subject, check_reference, unjudged
from derive.auditing.gradients import (
    Outcome,
    error_line,
    narrowest,
    near,
    outcome,
    random_cotangents,
    second_order,
    silent_outputs,
    with_raw,
)
from derive.auditing.isolation import LAST, Enter, isolated, none_if_raises
from derive.auditing.model import Reference
from derive.auditing.points import is_float, is_tensor, random_like
from derive.auditing.report import InputVerdict, Report
from derive.auditing.structure import structure_of
from derive.notation.advice import plural
from derive.tracing.graph import uncompiled

_TURNS = 3
"""How many perturbed copies of the first example are checked."""
_LARGEST = 20_000
"""If an example has more elements, only one perturbed copy is checked."""


@dataclass(frozen=True)
class AuditRequest:
    """The arguments of an audit."""

    subject: Subject
    examples: list[tuple[Any, ...]]
    names: tuple[str, ...]
    reference: Reference
    constants: frozenset[int]
    explain: bool

    def report(self, enter: Enter) -> Report:
        """Run the audit and return the report; called in the forked process."""
        import logging

        # Silence torch's logging of traces and fake tensors.
        logging.disable(logging.ERROR)
        try:
            with uncompiled():
                return Audit(self, enter).report()
        finally:
            logging.disable(logging.NOTSET)


class Audit:
    """The audit of one Function at its examples."""

    def __init__(self, given: AuditRequest, enter: Enter) -> None:
        self.given = given
        self.names = given.names
        self.enter = enter
        self.remarks: list[str] = []
        self.unread: set[int] = set()
        self.examples, owned = with_wide_modules(given.examples)
        told = told_constants(self.examples, owned)
        self.is_told = told is not None
        subject = replace(given.subject, owned=owned, constants=given.constants | (told or set()))
        if not subject.wanted(self.examples[0]):
            raise unjudged("no float argument is left that has a gradient: all are constants")
        self.subject = self._runnable(subject, widened(self.examples[0]))
        kept = frozenset((n,) for n in owned)
        self.structure = structure_of(self.examples, kept)
        self.outcomes = [self._outcome(args, n) for n, args in enumerate(self._points())]
        self.subject = replace(self.subject, believed=not any(o.doubt for o in self.outcomes))
        if not self.outcomes:
            raise unjudged(
                f"{self.subject.name} cannot be judged: its forward gives no finite numbers for "
                "the example inputs, in float64 or in their own dtype; give inputs from its domain"
            )

    # ------------------------------------------------------------- beforehand

    def _runnable(self, subject: Subject, args: tuple[Any, ...]) -> Subject:
        """Run the first example; return the subject with its dtype, context and precision."""
        subject = self._in_its_dtype(subject, args)
        check_reference(subject, args)
        context = none_if_raises(lambda: subject.context(args))
        if context is not None:
            kept, inputs, outputs = context
            subject = replace(subject, copied=bool(kept.dirty))
            self.remarks += kept_on_ctx(kept, inputs, outputs, self.names)
        subject = self._without_refused(subject, args)
        self._refuse_complex(subject, args)
        if silent := none_if_raises(silent_outputs, subject, args):
            subject = replace(subject, silent=silent)
            self.remarks += [
                f"output {n} is detached by forward, and its cotangent is not used: call "
                "ctx.mark_non_differentiable for it"
                for n in sorted(silent)
            ]
        cotangents = random_cotangents(subject, args, 1)
        bits = 32 if subject.dtype is not None else narrowest(subject, args, cotangents)
        subject = replace(subject, bits=bits)
        if bits < 64:
            self.remarks.append(
                f"judged in {bits} bits, as forward or backward computes in no more: errors below "
                f"{subject.tolerance:g} of the largest element are not seen"
            )
        return subject

    def _in_its_dtype(self, subject: Subject, args: tuple[Any, ...]) -> Subject:
        """Return the subject with the dtype of its examples, if it does not support float64."""
        given = next(a.dtype for a in self.examples[0] if is_float(a))
        narrow = replace(subject, dtype=given)
        try:
            subject.own(args)
        except Exception as error:
            try:
                narrow.own(args)
            except Exception:
                raise unjudged(
                    f"{subject.name} cannot be judged: its forward fails on the example inputs: "
                    f"{error_line(error)}"
                ) from error
            return narrow

        def ended(own: Subject) -> Outcome | None:
            # Copied, because torch refuses to change a leaf in place.
            found: Outcome | None = none_if_raises(
                lambda: outcome(
                    own, args, random_cotangents(own, args, 1), copied=True, right=({}, 0.0)
                )
            )
            return found

        made = ended(subject)
        if made is not None and made.error and made.args[0] is not None:
            low = ended(narrow)
            if low is not None and not low.error:
                name = str(given).removeprefix("torch.")
                self.remarks.append(f"backward fails in float64, and is judged in {name}")
                return narrow
        return subject

    def _refuse_complex(self, subject: Subject, args: tuple[Any, ...]) -> None:
        """Raise a DeriveError if a complex input has a gradient: those of real ones are judged."""
        for n, arg in enumerate(args):
            if not is_tensor(arg) or not arg.is_complex() or n in subject.constants:
                continue
            if self.is_told and not self.examples[0][n].requires_grad:
                continue
            leaf = arg.detach().clone().requires_grad_()
            outputs = none_if_raises(
                lambda n=n, leaf=leaf: subject.applied([*args[:n], leaf.clone(), *args[n + 1 :]])
            )
            for y in outputs or ():
                if is_tensor(y) and y.requires_grad:
                    y.backward(random_like(y, 1), retain_graph=True)
            if leaf.grad is not None:
                raise unjudged(
                    f"{subject.name} cannot be judged: {self.names[n]} is complex, and only "
                    "gradients of real inputs are judged; write a Function of its real and "
                    f"imaginary parts, or call {self.names[n]} a constant"
                )

    def _without_refused(self, subject: Subject, args: tuple[Any, ...]) -> Subject:
        """Return the subject with inputs as constants for which forward rejects requires_grad."""
        try:
            random_cotangents(subject, args, 1)
            return subject
        except Exception as error:
            wanted = subject.wanted(args)

            def takes(some: Sequence[int]) -> bool:
                others = frozenset(n for n in wanted if n not in some)
                alone = replace(subject, constants=subject.constants | others)
                return none_if_raises(lambda: random_cotangents(alone, args, 1)) is not None

            taken = [n for n in wanted if takes([n])]
            if not taken or not takes(taken):
                raise unjudged(
                    f"{subject.name} cannot be judged: a call fails where its inputs need "
                    f"gradients: {error_line(error)}"
                ) from error
            refused = [n for n in wanted if n not in taken]
            names = " or ".join(self.names[n] for n in refused)
            self.remarks.append(
                f"forward raises where {names} needs a gradient, so it is a constant: "
                f"{error_line(error)}"
            )
            return replace(subject, constants=subject.constants | frozenset(refused))

    def _points(self) -> Iterable[tuple[Any, ...]]:
        """Yield the examples, and perturbed copies."""
        for example in self.examples:
            args = self.structure.exact(example)
            if runs(self.subject, args):
                yield args
        for turn in range(_TURNS):
            moved = self.structure.resized({}, turn)
            if runs(self.subject, moved):
                yield moved
            if sum(a.numel() for a in moved if is_tensor(a)) > _LARGEST:
                break

    def _outcome(self, args: tuple[Any, ...], n: int) -> Outcome:
        cotangents = random_cotangents(self.subject, args, 7 * n + 1)
        return with_raw(self.subject, outcome(self.subject, args, cotangents))

    # ------------------------------------------------------------ the verdict

    def report(self) -> Report:
        """Return the verdict, with explanations of wrong gradients."""
        found = [*self._at_the_examples()]
        constant = self._constant()
        wrong = [f.n for f in found if f.n is not None and f.level == WRONG]
        at_all = [n for n in dict.fromkeys(wrong) if n not in constant]
        if not any(f.n is None and f.level == WRONG for f in found):
            found += self._judge(frozenset([*at_all, *constant, *self.unread])).all()
        if state := dict.fromkeys(name for o in self.outcomes for name in o.state):
            self.remarks.append(f"changed in place, without a gradient: {', '.join(state)}")
        told = by_level(found, constant)
        second = ""
        if not told[WRONG]:
            first = self.outcomes[0]
            # An argument for which backward returns None is constant in the second derivative too.
            kept = self.subject.constants | frozenset(constant)
            judged = replace(self.subject, constants=kept)
            second = second_order(judged, first.args, first.cotangents)
            self.remarks += [SECOND_ORDER[second]] if second in SECOND_ORDER else []
        explained = self._explained(at_all)
        made = self._made(told, constant, at_all, second, explained)
        return replace(made, rows=(*made.rows, *self._jvp(constant)))

    def _jvp(self, constant: Iterable[int]) -> Iterator[InputVerdict]:
        """Yield the row of the Function's own jvp, judged at the examples and at other sizes."""
        base: Any = torch.autograd.Function
        if self.subject.function.jvp is base.jvp or not self.enter("in jvp"):
            return
        judge, certain = self._judge(frozenset(constant)), False
        for made, where in chain(((o, "") for o in self.outcomes), judge.of_other_sizes()):
            try:
                told = judge.wrong_jvp(made)
            except NotImplementedError as error:
                yield InputVerdict("jvp", True, unjudged=error_line(error))
                return
            except Exception as error:
                failed = f"it fails{where and ' '}{where}: {error_line(error)}"
                context = none_if_raises(self.subject.context, made.args)
                if context and context[0].saved_tensors and not context[0].kept_for_forward:
                    failed += "; what jvp reads is saved by save_for_forward, which is not called"
                yield InputVerdict("jvp", True, fragile=failed)
                return
            if told:
                wrong, fragile = ("", f"{where}: {told}") if where else (told, "")
                yield InputVerdict("jvp", not wrong, wrong, fragile)
                return
            certain |= told is not None
        why = "" if certain else "no derivative of the forward is certain at the examples"
        yield InputVerdict("jvp", True, unjudged=why)

    def _judge(self, skipped: frozenset[int]) -> Judge:
        own = self.subject, self.structure, self.examples, self.names
        return Judge(*own, skipped, self._without(), self.enter)

    def _at_the_examples(self) -> Iterable[AuditFinding]:
        """Yield what is wrong at the examples and at the perturbed copies."""
        judge = self._judge(frozenset())
        constant = self._constant()
        for made in self.outcomes:
            if failure := self._failure(made):
                yield AuditFinding(None, failure, WRONG)
                return
            for n in self._wrong(made):
                if n in constant or judge.is_kept(made, n, self.subject.tolerance):
                    continue
                if judge.is_kink(made, n, self.subject.tolerance):
                    text = judge.which_slope(made, n, self.subject.tolerance)
                    if text:
                        yield AuditFinding(n, text, REMARK)
                    continue
                if self._is_unread(made, n):
                    self.unread.add(n)
                    text = "forward does not read it, and backward returns a gradient for it"
                    yield AuditFinding(n, text, REMARK)
                    continue
                yield AuditFinding(n, "", WRONG)
            for text in made.changed:
                yield AuditFinding(None, text, WRONG)
            if made.refused:
                yield AuditFinding(None, made.refused, FRAGILE)

    def _failure(self, made: Outcome) -> str:
        """Describe why there are no numbers; '' if there are: the engine may still reject them."""
        if not made.error:
            return ""
        if made.raw is None:
            shapes = ", ".join(
                f"{name}: {list(a.shape)}"
                for name, a in zip(self.names, made.args, strict=False)
                if is_tensor(a)
            )
            return f"backward fails: {made.error} ({shapes})"
        # With setup_context, torch adds the defaults that a call leaves out.
        left_out = self.subject.defaults(len(made.args)) if self.subject.has_setup else ()
        wanted = len(made.args) + len(left_out)
        given = _count(made.raw, wanted)
        if given == wanted:
            return ""
        takes = plural(wanted, "argument") + (" with its defaults" if left_out else "")
        return f"backward returns {plural(given, 'gradient')} where forward takes {takes}"

    def _wrong(self, made: Outcome) -> list[int]:
        found = made.wrong(self.subject.tolerance)
        found += [n for n in made.right if made.shape_error(n) and n not in found]
        return sorted(found)

    def _constant(self) -> dict[int, str]:
        """Return why float arguments are constant: given as such, or backward returns None.

        If an example input requires a gradient, exactly the inputs that do are checked.
        """
        args = self.examples[0]
        found = {n: "as given" for n in sorted(self.subject.constants) if n < len(args)}
        if self.is_told:
            return found
        for n in sorted(self._without()):
            if any(n in self._wrong(o) for o in self.outcomes):
                found[n] = (
                    "backward returns None for it; give it requires_grad in the examples to have "
                    "it judged"
                )
        if len(found) >= len(self.subject.wanted(args)) + len(self.subject.constants):
            return {n: why for n, why in found.items() if n in self.subject.constants}
        return found

    def _without(self) -> frozenset[int]:
        """Return the arguments for which backward returns None at every example.

        Empty if requires_grad of the examples says which inputs are checked.
        """
        if self.is_told:
            return frozenset()
        every = self.outcomes[0].right
        return frozenset(n for n in every if all(_is_none(o, n) for o in self.outcomes))

    def _is_unread(self, made: Outcome, n: int) -> bool:
        """True if forward's outputs do not depend on the argument."""
        right = made.right[n]
        if bool(right.nan_to_num(1).any()) or n in self.subject.owned:
            return False
        large = torch.randn_like(made.args[n]) + 3 * made.args[n].abs() + 1
        try:
            before = self.subject.own(made.args)
            # Of one sign, a comparison may not change.
            for other in (large, -large):
                changed = tuple(other if k == n else a for k, a in enumerate(made.args))
                after = self.subject.own(changed)
                pairs = zip(before, after, strict=True)
                if not all(torch.equal(a, b) for a, b in pairs if is_tensor(a)):
                    return False
            return True
        except Exception:
            return False

    # ---------------------------------------------------------- what is known

    def _explained(self, at_all: Sequence[int]) -> Explanation | None:
        if (not at_all and not self.given.explain) or not self.enter(LAST):
            return None
        calls = [(made, self._wrong(made)) for made in self.outcomes]
        found: Explanation | None = None
        for kind in call_groups(self.structure, self.examples, self.names, calls, at_all):
            made = explanation(
                self.subject, self.names[: kind.count], kind, self.given.reference
            ).where(kind.condition)
            found = made if found is None else replace(found, why={**made.why, **found.why})
        return found

    def _made(
        self,
        told: ByLevel,
        constant: dict[int, str],
        at_all: Sequence[int],
        second: str,
        explained: Explanation | None,
    ) -> Report:
        rows: list[InputVerdict] = []
        every = [n for n, a in enumerate(self.examples[0]) if is_float(a)]
        of_all = told[WRONG].get(None, [])
        for n in every:
            wrong = [t for t in told[WRONG].get(n, []) if t]
            if n in at_all:
                why = "" if explained is None else explained.why.get(n)
                wrong = [why or self._unexplained(n), *wrong]
            wrong += of_all
            if n in constant and n not in at_all:
                rows.append(InputVerdict(self.names[n], True, constant=constant[n]))
                continue
            fragile = "" if wrong else "; ".join(told[FRAGILE].get(n, []))
            if all(row.right for row in rows):
                # Refer to the first argument instead of repeating its error message.
                parts = (text.partition(": ") for text in of_all)
                of_all = [f"{what} as for {self.names[n]}" if c else what for what, c, _ in parts]
            said = "; ".join(dict.fromkeys(wrong))
            rows.append(InputVerdict(self.names[n], not wrong, said, fragile))
        remarks = [*self.remarks]
        for of, texts in told[REMARK].items():
            kinks = [t for t in texts if "the slope jumps" in t]
            texts = [t for t in texts if t not in kinks[1:]]
            remarks += [t if of is None else f"{self.names[of]}: {t}" for t in texts]
        if explained is not None and explained.unread and at_all:
            remarks.append(
                f"no term is named: {explained.unread}; give the operation of the forward as "
                "reference="
            )
        small = none_if_raises(lambda: self._counterexample(at_all[0])) if at_all else ""
        return Report(
            self.subject.name,
            tuple(rows),
            tuple(dict.fromkeys(remarks)),
            () if explained is None else explained.formulas,
            small or "",
            self._judged(second),
            second,
            "" if explained is None else explained.fixed,
            () if explained is None or not at_all else explained.written,
            tuple(told[FRAGILE].get(None, [])),
        )

    def _unexplained(self, n: int) -> str:
        if all(not bool(o.right[n].nan_to_num(0).any()) for o in self.outcomes):
            return (
                "it is 0 everywhere, as forward only jumps, and backward gives another; if that is "
                "meant, as in a straight-through estimator, give reference= with "
                "value.detach() + smooth - smooth.detach()"
            )
        for made in self.outcomes:
            if n not in self._wrong(made):
                continue
            refused = made.shape_error(n)
            if refused:
                return refused
            given = made.given.get(n)
            given = torch.zeros_like(made.right[n]) if given is None else given
            if made.error and near(given, made.right[n], self.subject.tolerance):
                return f"backward fails: {made.error}"
            return by_how_much(made, n).removeprefix(": ")
        return "it is wrong"

    def _counterexample(self, n: int) -> str:
        def found(enter: Enter) -> str:
            return counterexample(self.subject, self.structure, self.names, n)

        # Fork again: in a new process, no earlier call has changed state kept by backward.
        return isolated(found, 20.0)[0]

    def _judged(self, second: str) -> tuple[str, ...]:
        count = len(self.outcomes)
        kinds = ["needs_input_grad", "layouts", "flags", "dtypes", "large values", "other sizes"]
        kinds += [f"second order: {second}"] if second else []
        return f"{count} calls of the examples' structure", *kinds


def _is_none(made: Outcome, n: int) -> bool:
    """True if backward returned None for an argument."""
    if made.raw is not None:
        return n < len(made.raw) and made.raw[n] is None
    return not made.error and made.given.get(n) is None


def _count(raw: Sequence[Any], wanted: int) -> int:
    """Count the returned gradients; torch ignores surplus trailing None."""
    count = len(raw)
    while count > wanted and raw[count - 1] is None:
        count -= 1
    return count
