"""The functions that call the stages of an operation in order: forward and backward."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from derive.module.pretty_printer import (
    all_none,
    call_lines,
    indented,
    return_statement,
    unpacked_tuple,
)
from derive.module.stage_codegen import StageFunction
from derive.module.stage_functions import Scheduled, Stages


class Driver(Stages):
    """Generates the functions that call the stages of one option."""

    def forward(self) -> list[str]:
        """Return the function that computes the outputs."""
        return self._forward(f"{self.prefix}_forward", self.forwards)

    def formed(self) -> list[str]:
        """Return the fused function of outputs and gradients; the gradients wait for backward."""
        return self._forward(f"{self.prefix}_formed", self._forming(), self.formed_arguments())

    def _forming(self) -> list[StageFunction]:
        return [one or two for one, two in zip(self.formeds, self.forwards, strict=True)]

    def formed_arguments(self) -> list[str]:
        """Return the arguments of the fused function beyond those of the forward."""
        return [*(["low"] if self.uses_low else []), "wide", "formed"]

    def _forward(
        self, name: str, parts: Sequence[StageFunction], more: Sequence[str] = ()
    ) -> list[str]:
        arguments = [*self.inputs, *self.parameters, "block", *more]
        lines = self.dtypes(indent=4)
        if more:
            lines = lines[len(self.dtypes(backward=True, indent=4)) :]
        lines.append(f"size = {self.size_of(self.plan.index.extent)}")
        if more:
            each = [
                f"{'' if t.default is None else f'{t.name} is not None and '}{t.name}.requires_grad"
                for t in self.plan.operation.inputs
            ]
            lines += call_lines("wanted = (", each, ",)" if len(each) == 1 else ")", 4)
        for s, part in zip(self.stages, parts, strict=True):
            lines += self._run(s, part, part in self.formeds)
        if more:
            values = self._recomputed()
            if values:
                end = ",)" if len(values) == 1 else ")"
                lines += call_lines('formed["values"] = (', values, end, 4)
        op = self.plan.operation
        rows = {n for s in self.stages for n in s.stage.rows}
        results = [n if n in rows else self.rounded(n, n) for n in op.outputs]
        lines += return_statement(results, 4)
        return [*call_lines(f"def {name}(", arguments, "):", 0), *indented(lines, 4), "", ""]

    def _run(
        self, s: Scheduled, part: StageFunction, forming: bool = False, left: Sequence[str] = ()
    ) -> list[str]:
        """Return the lines that run a stage; results in ``left`` are discarded.

        With ``forming``, the stage also accumulates its gradients.
        """
        stage = s.stage
        values = self.values(s)
        if not stage.looped:
            names = ["_" if n in left else n for n in stage.outputs]
            return call_lines(f"{', '.join(names)} = {part.name}(", self.call(part, values), ")", 4)
        lines: list[str] = []
        entries = [(n, self.placed(n, stage.rows.get(n))) for n in stage.outputs]
        own: list[tuple[str, str | None]] = []
        if forming:
            own = [(self.own(g), self.placed(g.tensor, g.axis)) for g in self.pulled(s)]
            lines += self.asked(s)
        names = [n for n, _ in (*entries, *own)]
        lines += all_none([n for n in names if n not in left], 4)
        lines.append("for start, length in rt.blocks(size, block):")
        totals = {r: name for r, name in zip(part.results, names, strict=True) if r in part.totals}
        inner = call_lines(f"parts = {part.name}(", self.call(part, values | totals), ")", 8)
        single = len(names) == 1
        for n, (name, axis) in enumerate((*entries, *own)):
            value = "parts" if single else f"parts[{n}]"
            if part.results[n] in totals:
                inner.append(f"{name} = {value}")
            elif n >= len(entries):
                inner += self._gathered_gradient(name, axis, value)
            elif name not in left:
                rounded = value if axis is None else self.rounded(name, value)
                inner += self._gathered(name, axis, rounded)
        lines += indented(inner, 4)
        if forming:
            given = [name for name, _ in own]
            key = f'formed["{stage.outputs[0]}"] = ('
            lines += call_lines(key, given, ",)" if len(given) == 1 else ")", 4)
        return lines

    @staticmethod
    def _gathered(name: str, axis: str | None, value: str) -> list[str]:
        """Return the lines that add a block's result to a total, or write it to its rows."""
        if axis is None:
            return call_lines(f"{name} = rt.accumulate(", [name, value], ")", 8)
        return call_lines(f"{name} = rt.write_block(", [name, value, axis, "start", "size"], ")", 8)

    def _gathered_gradient(self, name: str, axis: str | None, value: str) -> list[str]:
        """Return the same for a gradient, which stays unrounded until it is complete."""
        value = value if axis is None or not self.uses_low else f"rt.at_least_float32({value})"
        return self._gathered(name, axis, value)

    def _recomputed(self) -> list[str]:
        """Return intermediate results that the backward of a stage reads."""
        names: list[str] = []
        outputs = self.plan.operation.outputs
        made = {n for s in self.stages for n in s.stage.outputs}
        for s, part in zip(self.stages, self.backwards, strict=True):
            if part is None or (self.is_formed and s.stage.looped):
                continue
            names += self.read(s, part, made)
        return [n for n in dict.fromkeys(names) if n not in outputs]

    def again(self) -> list[tuple[Scheduled, StageFunction]]:
        """Return the stages that the backward recomputes to get intermediates."""
        made = {n for s in self.stages for n in s.stage.outputs}
        outputs = set(self.plan.operation.outputs)
        needed: set[str] = set()
        for s, part in zip(self.stages, self.backwards, strict=True):
            if part is not None:
                needed |= set(self.read(s, part, made)) - outputs
        found: list[tuple[Scheduled, StageFunction]] = []
        for s, part in zip(reversed(self.stages), reversed(self.forwards), strict=True):
            if needed & set(s.stage.outputs):
                found.append((s, part))
                needed |= set(self.read(s, part, made)) - outputs
        return found[::-1]

    def saved(self) -> tuple[list[str], list[str]]:
        """Return (inputs and outputs to save, parameters to keep) for the backward."""
        read: set[str] = set()
        parts = [(s, p) for s, p in zip(self.stages, self.backwards, strict=True) if p is not None]
        formed = zip(self.stages, self._forming(), strict=True)
        for s, part in (*parts, *self.again(), *(formed if self.is_formed else ())):
            values = self.values(s)
            for argument in (a for a in part.arguments if a not in part.totals):
                tensors = {g.name: g.tensor for g in s.stage.given}
                tensors |= {n: n for n in s.stage.outputs}
                read.add(tensors.get(argument, values[argument]))
                if argument in s.stage.sizes:
                    read.add(values[argument].partition(".")[0])
        read.add(self.size_of(self.plan.index.extent).partition(".")[0])
        outputs = self.plan.operation.outputs
        read |= set(self.floats if self.is_formed else ())
        kept = [n for n in (*self.inputs, *outputs) if n in read]
        return kept, [p for p in self.parameters if p in read]

    def backward_arguments(self) -> list[str]:
        tensors, parameters = self.saved()
        arguments = ["wanted", *tensors, *parameters, "block"]
        arguments += ["low"] if self.uses_low else []
        arguments += ["wide"]
        arguments += [c for _, c in self.whole.cotangents if c is not None]
        return arguments + (["formed"] if self.is_formed else [])

    def backward(self) -> list[str]:
        """Return the function that computes the gradients of all float inputs."""
        lines = [f"size = {self.size_of(self.plan.index.extent)}"]
        contributed: set[str] = set()
        for output, cotangent in self.whole.cotangents:
            if cotangent is not None:
                lines.append(f"{self.gradients[output]} = {cotangent}")
                contributed.add(output)
        again = self.again()
        if again:
            left = self.plan.operation.outputs
            made = [line for s, part in again for line in self._run(s, part, left=left)]
            if self.is_formed:
                values = self._recomputed()
                lines += ["if formed is None:", *indented(made, 4)]
                if values:
                    lines += ["else:", *indented(unpacked_tuple(values, 'formed["values"]', 8), 4)]
            else:
                lines += made
        for s, part in zip(reversed(self.stages), reversed(self.backwards), strict=True):
            if part is not None:
                lines += self._pull(s, part, contributed)
        floats = (n for n in self.inputs if self.plan.kinds[n] == "float")
        results = [self.gradients[n] if n in contributed else "None" for n in floats]
        lines += return_statement([*results, ""] if len(results) == 1 else results, 4)
        lines[-1] = lines[-1].rstrip() if len(results) == 1 else lines[-1]
        head = call_lines(f"def {self.prefix}_backward(", self.backward_arguments(), "):", 0)
        return [*head, *indented(lines, 4), "", ""]

    def _pull(self, s: Scheduled, part: StageFunction, contributed: set[str]) -> list[str]:
        """Return the lines that add the gradients of a stage to those of its inputs."""
        given = self.pulled(s)
        read = [g for g in given if g.read]
        if not read:
            return []
        values = self.values(s)
        lines = self.asked(s)
        tensors = Counter(g.tensor for g in read)
        # From another stage, or twice from this one.
        again = {g for g in read if g.tensor in contributed or tensors[g.tensor] > 1}
        fresh = {g: f"{self.own(g)}_part" if g in again else self.own(g) for g in read}
        lines += all_none([fresh[g] for g in read], 4)
        single = len(given) == 1
        parts = call_lines(f"parts = {part.name}(", self.call(part, values), ")", 8)
        places = {g: "parts" if single else f"parts[{n}]" for n, g in enumerate(given)}
        body: list[str] = []
        if s.stage.looped:
            inner = list(parts)
            for g in read:
                inner += self._gathered_gradient(fresh[g], self.placed(g.tensor, g.axis), places[g])
            body += ["for start, length in rt.blocks(size, block):", *indented(inner, 4)]
        else:
            body += [*parts, *(f"{fresh[g]} = {places[g]}" for g in read)]
        if s.formed is not None:
            cotangent = self.gradients[s.stage.outputs[0]]
            scaled = [f'parts = formed["{s.stage.outputs[0]}"]']
            for n, g in ((n, g) for n, g in enumerate(given) if g.read):
                call = f"{fresh[g]} = rt.scale_gradient("
                scaled += call_lines(call, [f"parts[{n}]", cotangent], ")", 8)
            lines += ["if formed is not None and any(asked):", *indented(scaled, 4)]
            lines += ["elif any(asked):", *indented(body, 4)]
        else:
            lines += ["if any(asked):", *indented(body, 4)]
        for g in read:
            target = self.gradients[g.tensor]
            if g.tensor in contributed:
                lines.append(f"{target} = rt.sum_gradients({target}, {fresh[g]})")
            elif fresh[g] != target:
                lines.append(f"{target} = {fresh[g]}")
            contributed.add(g.tensor)
        return lines

    def parts(self) -> Iterator[str]:
        """Yield the functions of the stages, then those that call them."""
        for group in zip(self.forwards, self.backwards, self.formeds, strict=True):
            for part in group:
                if part is not None:
                    yield from part.lines
        if self.is_formed:
            yield from self.formed()
        yield from self.backward()
