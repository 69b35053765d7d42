"""Checks of arguments.

A module makes one test of a call. Where it fails, ``explained`` finds the first fault from the
signature, such as

    x[n,(g c),*q], t[n]: int64, w[c]=None; groups=size(g); c=(g c)/g; eps>0

A signature has the tensors with the indices of their axes, where ``i=j`` is an index i with the
size of j, and then clauses:

    dim=axis(k)             dim is the position of axis k
    keepdim=keep(k)         keepdim is a bool
    groups=size(g)          groups is the size of index g
    eps>0                   a bound of a number; the signs are > >= < <= !=
    stride is a divisor     a positive number, by which a size is divided
    stride is positive, padding is not negative
    reduction in mean|sum   a choice
    k=3, d=g*c, c=(g c)/g   a size: a product of others, or a quotient without remainder

Each function comes before those that it calls.

Read as text by ``derive.module.runtime``. ``derive.module.name_mangling`` knows all builtin names.
"""

import math

import torch


def explained(name, signature, /, *values, **given):
    """The error of a call that does not fit the signature: its first fault.

    The values are the tensors, then the parameters that clauses begin with, in this order.
    """
    first, *clauses = signature.split("; ")
    clauses, count = _signature_clauses(clauses), len(first.split(", "))
    lefts = {
        left: None for left, sign, _ in clauses if sign != "=" and left.isidentifier()
    }
    given = {left: x for left, x in zip(lefts, values[count:], strict=True)} | given
    inputs = _signature_tensors(first, values)
    for check in _checks():
        for error, message in check(inputs, clauses, given):
            return error(f"{name}: {message}")
    return ValueError(f"{name}: the arguments do not fit {signature}")


def floating(x, *others):
    """Whether all are floating-point tensors on one device."""
    if not isinstance(x, torch.Tensor) or not x.is_floating_point():
        return False
    for y in others:
        if not isinstance(y, torch.Tensor) or not y.is_floating_point():
            return False
        if y.device != x.device:
            return False
    return True


def floating_if_given(x, *others):
    """Whether all are floating-point tensors on one device, where others may be None."""
    if not isinstance(x, torch.Tensor) or not x.is_floating_point():
        return False
    for y in others:
        if y is not None:
            if not isinstance(y, torch.Tensor) or not y.is_floating_point():
                return False
            if y.device != x.device:
                return False
    return True


def _signature_tensors(text, tensors):
    """(name, axes, dtype, whether optional, tensor) of each tensor in a signature."""
    found = []
    for part, x in zip(text.split(", "), tensors, strict=False):
        whole, _, dtype = part.removesuffix("=None").partition(": ")
        arg, _, axes = whole.removesuffix("]").partition("[")
        found.append(
            (arg, axes.split(",") if axes else [], dtype, part.endswith("=None"), x)
        )
    return found


def _signature_clauses(texts):
    """(left side, sign, right side) of each clause of a signature."""
    found = []
    words = "=axis(", "=size(", "=keep(", " in ", " is "
    signs = (*words, ">=", "<=", "!=", ">", "<", "=")
    for text in texts:
        sign, *_ = [s for s in signs if s in text]
        left, _, right = text.partition(sign)
        found.append((left, sign, right[:-1] if sign[-1] == "(" else right))
    return found


def _checks():
    """The checks in their order; each yields (error, message) of what does not fit."""
    return (
        _types,
        _flags,
        _ranks,
        _places,
        _bounds,
        _dtypes,
        _devices,
        _divisors,
        _shapes,
        _optional,
        _signs,
        _choices,
    )


def _types(inputs, clauses, given):
    """Yield the faults of required arguments that are no tensors."""
    for t in _required(inputs):
        yield from _type_faults(t)


def _flags(inputs, clauses, given):
    """Yield the faults of flags."""
    for left, sign, _ in clauses:
        if sign == "=keep(" and type(given[left]) is not bool:
            yield TypeError, f"{left} must be True or False, not {given[left]!r:.60}"


def _ranks(inputs, clauses, given):
    """Yield the faults of the ranks of required tensors."""
    for t in _required(inputs):
        yield from _rank_faults(t)


def _bounds(inputs, clauses, given):
    """Yield the faults of bounds of numbers."""
    signs = "=size(", ">=", "<=", "!=", ">", "<"
    yield from _number_faults(clauses, given, signs)


def _dtypes(inputs, clauses, given):
    """Yield the faults of the dtypes of required tensors."""
    for t in _required(inputs):
        yield from _dtype_faults(t)


def _devices(inputs, clauses, given):
    """Yield the faults of the devices of required tensors."""
    first, *others = _required(inputs)
    for t in others:
        yield from _device_faults(t, first)


def _divisors(inputs, clauses, given):
    """Yield the faults of numbers by which a size is divided."""
    yield from _number_faults(clauses, given, (" is a divisor",))


def _shapes(inputs, clauses, given):
    """Yield the faults of the shapes of required tensors."""
    yield from _shape_faults(inputs, clauses, given, _required(inputs))


def _shape_faults(inputs, clauses, given, asked):
    """Yield the faults of the groups and sizes of the asked tensors."""
    required, named = _required(inputs), _named_axes(inputs, clauses, given)
    rules = {left: right for left, sign, right in clauses if sign == "="}
    rules |= {right: left for left, sign, right in clauses if sign == "=size("}
    known = required, named, _group_shapes(required, named), rules, given
    for check in _shape_checks():
        yield from check(inputs, asked, known)


def _shape_checks():
    """The checks of groups, of sizes that quotients or products say, and of equal sizes."""
    return (_groups, _quotients, _products, _equals)


def _optional(inputs, clauses, given):
    """Yield the faults of optional tensors that are given."""
    for t in [t for t in inputs if t[3] and t[4] is not None]:
        for faults in (_type_faults, _rank_faults, _dtype_faults):
            yield from faults(t)
        yield from _device_faults(t, _required(inputs)[0])
        yield from _shape_faults(inputs, clauses, given, [t])


def _signs(inputs, clauses, given):
    """Yield the faults of the signs of numbers."""
    yield from _number_faults(clauses, given, (" is positive", " is not negative"))


def _choices(inputs, clauses, given):
    """Yield the faults of choices."""
    for left, sign, right in clauses:
        names = right.split("|")
        if sign == " in " and not (
            isinstance(given[left], str) and given[left] in names
        ):
            words = ", ".join([f"{word!r}" for word in names])
            yield ValueError, f"{left} must be one of {words}, not {given[left]!r}"


def _required(inputs):
    """The tensors that are not optional."""
    return [t for t in inputs if not t[3]]


def _named_axes(inputs, clauses, given):
    """(parameter, value, index, tensor, place) of each axis whose position a parameter says."""
    named = []
    for left, sign, letter in clauses:
        if sign == "=axis(":
            home, *_ = [t for t in inputs if letter in t[1]]
            named.append((left, given[left], letter, home, home[1].index(letter)))
    return named


def _type_faults(t):
    """Yield the fault of an argument that is no tensor."""
    if not isinstance(t[4], torch.Tensor):
        yield TypeError, f"{t[0]} must be a tensor, not {type(t[4]).__name__}"


def _rank_faults(t):
    """Yield the fault of a number of axes that does not fit any groups."""
    arg, axes, _, _, x = t
    rank, letters = len([axis for axis in axes if axis[0] != "*"]), _axis_letters(axes)
    grouped = rank < len(axes)
    if x.dim() < rank or (x.dim() > rank and not grouped):
        words = f"{rank} axis" if rank == 1 else f"{rank} axes"
        words = f"at least {words}" if grouped else words
        yield ValueError, f"{arg} must have {words} [{letters}], not {x.dim()}"


def _dtype_faults(t):
    """Yield the fault of a dtype."""
    arg, _, dtype, _, x = t
    if dtype and x.dtype != getattr(torch, dtype):
        yield TypeError, f"{arg} must be {dtype}, not {x.dtype}"
    if not dtype and not x.is_floating_point():
        yield TypeError, f"{arg} must be a floating-point tensor, not {x.dtype}"


def _device_faults(t, first):
    """Yield the fault of two devices."""
    here, there = t[4].device, first[4].device
    if here != there:
        yield ValueError, f"{t[0]} is on {here}, but {first[0]} is on {there}"


def _places(inputs, clauses, given):
    """Yield the faults of parameters that are positions of axes."""
    named = _named_axes(inputs, clauses, given)
    for left, value, letter, (arg, axes, _, _, x), n in named:
        rank, letters = x.dim(), _axis_letters(axes)
        if not -rank <= value < rank:
            words = f"must be in [{-rank}, {rank}) for {arg}"
            yield ValueError, f"{left} {words}, not {value}"
        least = len([axis for axis in axes[:n] if axis[0] != "*"])
        most = rank - len([axis for axis in axes[n:] if axis[0] != "*"])
        before, after = [any(side) for side in _group_sides(axes, n)]
        low, high = least if after or not before else most, most if before else least
        if not low <= value % rank <= high:
            words = f"the position of axis {letter} in {arg}[{letters}]"
            yield ValueError, f"{left} must be {words}, not {value}"
    for _, _, _, t, _ in named:
        own = [row for row in named if row[3][0] == t[0]]
        own = [row for n in range(len(t[1])) for row in own if row[4] == n]
        for n in range(len(own) - 1):
            yield from _turn_faults(own[n], own[n + 1])


def _turn_faults(one, two):
    """Yield the fault of two positions that are not in the order of the axes."""
    (left, at, letter, t, n), (right, then, other, _, m) = one, two
    arg, axes, _, _, x = t
    single, letters = (
        len([axis for axis in axes[n + 1 : m] if axis[0] != "*"]),
        _axis_letters(axes),
    )
    if m - n - 1 > single and at % x.dim() + single >= then % x.dim():
        words = f"the positions of axes {letter} and {other} in {arg}[{letters}]"
        words = f"{left} and {right} must be {words}, in this order"
        yield ValueError, f"{words}, not {at} and {then}"


def _number_faults(clauses, given, signs):
    """Yield the faults of numbers in the clauses with one of the signs."""
    words = {">=": "at least", "<=": "at most", "!=": "different from"}
    words |= {">": "greater than", "<": "less than"}
    for left, sign, right in clauses:
        if sign not in signs and sign + right not in signs:
            continue
        value = math.prod(
            [int(p) if p.isdigit() else given[p] for p in left.split("*")]
        )
        if sign in words:
            bound = float(right)
            holds = {">=": value >= bound, "<=": value <= bound, "!=": value != bound}
            if not (holds | {">": value > bound, "<": value < bound})[sign]:
                yield ValueError, f"{left} must be {words[sign]} {right}, not {value}"
        elif right != "not negative" and value < 1:
            yield ValueError, f"{left} must be positive, not {value}"
        elif value < 0:
            yield ValueError, f"{left} must not be negative, not {value}"


def _group_shapes(required, named):
    """{group: (tensor, shape)}; each is read from the first tensor that determines it."""
    groups: dict[str, tuple[str, torch.Size]] = {}
    pending = required
    while pending:
        for t in pending:
            cuts = _group_cuts(t, named, groups)
            if cuts is not None:
                break
        else:
            return groups
        for group, start, stop in cuts:
            groups[group] = t[0], t[4].shape[start:stop]
        pending = [other for other in pending if other[0] != t[0]]
    return groups


def _group_cuts(t, named, groups):
    """(group, start, stop) of the unknown groups; None if these cannot be told apart."""
    _, axes, _, _, x = t
    places = [
        n
        for n in range(len(axes))
        if axes[n][0] == "*" and _size_key(axes[n]) not in groups
    ]
    places = [n for n in places if axes.index(axes[n]) == n]
    if not places:
        return []
    starts, stops = [_axis_count(axes[: places[0]], groups)], []
    for k in range(len(places) - 1):
        left, right = places[k], places[k + 1]
        between = [row for row in named if row[2] in axes[left + 1 : right]]
        if not between:
            return None
        n, at = axes.index(between[0][2]), between[0][1] % x.dim()
        stops.append(at - _axis_count(axes[left + 1 : n], groups))
        starts.append(at + _axis_count(axes[n + 1 : right], groups) + 1)
    stops.append(x.dim() - _axis_count(axes[places[-1] + 1 :], groups))
    return list(zip([_size_key(axes[n]) for n in places], starts, stops, strict=True))


def _groups(inputs, asked, known):
    """Yield the faults of groups, and of axes between them."""
    required, _, groups, rules, _ = known
    for t in asked:
        arg, axes, _, _, x = t
        others = [other for other in required if other[0] != arg]
        met = [_size_key(axis) for other in others for axis in other[1]]
        if not any(axis[0] == "*" for axis in axes):
            continue
        rank, letters = _axis_count(axes, groups), _axis_letters(axes)
        if x.dim() != rank:
            yield ValueError, f"{arg} must have {rank} axes [{letters}], not {x.dim()}"
        for n in range(len(axes)):
            key, start = _size_key(axes[n]), _axis_count(axes[:n], groups)
            letter = axes[n].partition("=")[0]
            if axes[n][0] == "*":
                home, shape = groups[key]
                own = tuple(x.shape[start : start + len(shape)])
                if own != tuple(shape):
                    words = f"{tuple(shape)} in {home} but {own} in {arg}"
                    words = f"index {letter} has shape {words}, from axis {start} on"
                    yield ValueError, words
            elif _axis_place(t, n, known) is None and (key in met or key in rules):
                want, own = _size_of(key, (others, *known[1:])), x.shape[start]
                if own != want:
                    words = f"{want} but {own} on axis {start} of {arg}"
                    yield ValueError, f"index {letter} has size {words}"


def _places_of_sizes(inputs, known):
    """{size: its (tensor, position, axis) in all tensors that are given}."""
    given = [t for t in inputs if not t[3]]
    given += [t for t in inputs if t[3] and t[4] is not None]
    keys = [_own_size_key(t, axis) for t in inputs for axis in t[1] if axis[0] != "*"]
    places = {
        key: [
            (t, _axis_place(t, n, known), t[1][n])
            for t in given
            for n in range(len(t[1]))
            if _own_size_key(t, t[1][n]) == key and _axis_place(t, n, known) is not None
        ]
        for key in keys
    }
    return {key: found for key, found in places.items() if found}


def _divided(places, rules):
    """{size of a quotient: the size that is divided}."""
    divided: dict[str, str] = {}
    for key, found in places.items():
        for left, rule in rules.items():
            if "/" in rule and rule.partition("/")[0] == _size_key(found[0][2]):
                divided.setdefault(left, key)
    return divided


def _rule_of(key, found, rules):
    """The product that a size must be, of a composite axis that of its parts; "" for none."""
    parts = "*".join([_size_key(part) for part in found[0][2].strip("()").split()])
    return parts if found[0][2][0] == "(" else rules.get(key, "")


def _quotients(inputs, asked, known):
    """Yield the faults of sizes that others do not divide."""
    rules, given, names = known[3], known[4], [t[0] for t in asked]
    places = _places_of_sizes(inputs, known)
    divided = _divided(places, rules)
    for key, found in places.items():
        (arg, _, _, _, x), at, axis = found[0]
        for rule in [rules[left] for left in divided if divided[left] == key]:
            below = rule.partition("/")[2]
            own, other = x.shape[at], _value_of_rule(below, known)
            if arg not in names or (other != 0 and own % other == 0):
                continue
            words = _composite_words(axis)
            words = f"axis {at}{words} of {arg} has size {own}"
            sizes = {part: rules.get(part, "") for part in below.split("*")}
            parts = [
                sizes[p] if sizes[p] in given else f"size({p})"
                for p in below.split("*")
            ]
            words = f"{words}, which is not divisible by {'*'.join(parts)} = {other}"
            yield ValueError, words


def _products(inputs, asked, known):
    """Yield the faults of axes that do not have the size of a rule."""
    rules, names = known[3], [t[0] for t in asked]
    places = _places_of_sizes(inputs, known)
    divided = _divided(places, rules)
    for key, found in places.items():
        rule = "" if key in divided.values() else _rule_of(key, found, rules)
        if not rule:
            continue
        want, parts = _value_of_rule(rule, known), rule.split("*")
        asks = f"{rule} is" if rule in known[4] else "must have size"
        reason = f"but {asks} {want}"
        numbers = [part for part in parts if part.isdigit() or part in known[4]]
        if len(parts) > 1 and not numbers and "/" not in rule:
            reason = f"but {'*'.join([f'size({part})' for part in parts])} is {want}"
        for (arg, _, _, _, x), at, axis in found:
            if arg in names and x.shape[at] != want:
                words = _composite_words(axis)
                words = f"axis {at}{words} of {arg} has size {x.shape[at]}"
                yield ValueError, f"{words}, {reason}"


def _equals(inputs, asked, known):
    """Yield the faults of axes of one index with two sizes."""
    names = [t[0] for t in asked]
    for key, found in _places_of_sizes(inputs, known).items():
        (first, _, _, _, y), there, _ = found[0]
        for (arg, _, _, _, x), at, _ in found[1:]:
            if arg in names and x.shape[at] != y.shape[there]:
                sizes = f"{y.shape[there]} on axis {there} of {first}"
                sizes = f"{sizes} but {x.shape[at]} on axis {at} of {arg}"
                words = _axis_letters([key])
                yield ValueError, f"index {words} has size {sizes}"


def _axis_place(t, n, known):
    """The position of axis n: from the side without a group, or a parameter; else None."""
    sides = _group_sides(t[1], n)
    before, after = [any(side) for side in sides]
    if not before or not after:
        return n - len(t[1]) if before else n
    for _, value, _, home, m in known[1]:
        if _group_sides(home[1], m) == sides:
            return value
    return None


def _group_sides(axes, n):
    """The groups before and after axis n, with "" in place of single axes."""
    kept = [_size_key(axis) if axis[0] == "*" else "" for axis in axes]
    return kept[:n], kept[n + 1 :]


def _value_of_rule(rule, known):
    """The value of a rule: a product, or a quotient by a product."""
    whole, _, below = rule.partition("/")
    if below:
        return _size_of(whole, known) // _value_of_rule(below, known)
    return math.prod([_size_of(part, known) for part in whole.split("*")])


def _size_of(part, known):
    """The size of an index, of a composite axis, or a parameter, or a number."""
    required, _, groups, rules, given = known
    if part in given or part.isdigit():
        return given[part] if part in given else int(part)
    rule = rules.get(part, "")
    if rule in given or rule.isdigit():
        return _size_of(rule, known)
    for _, axes, _, _, x in required:
        keys = [_size_key(axis) for axis in axes]
        if part in keys:
            return x.shape[_axis_count(axes[: keys.index(part)], groups)]
        if f"*{part}" in keys:
            return math.prod(groups[f"*{part}"][1])
    return _value_of_rule(rule, known)


def _axis_count(axes, groups):
    """The number of axes that the indices have."""
    found = [len(groups[_size_key(axis)][1]) if axis[0] == "*" else 1 for axis in axes]
    return len([None for count in found for _ in range(count)])


def _own_size_key(t, axis):
    """A name for the size of an axis, also for a composite one."""
    return f"{t[0]} {axis}" if axis[0] == "(" else _size_key(axis)


def _size_key(axis):
    """The index, or composite axis, that has the size of an axis."""
    other = "" if axis[0] == "(" else axis.partition("=")[2]
    return other or axis


def _composite_words(axis):
    """A composite axis for a message; nothing for others."""
    return " " + _axis_letters([axis]) if axis[0] == "(" else ""


def _axis_letters(axes):
    """The indices of axes, as in a specification."""
    found = []
    for axis in axes:
        parts = [part.partition("=")[0] for part in axis.strip("()").split()]
        found.append(f"({' '.join(parts)})" if axis[0] == "(" else parts[0])
    return ", ".join(found)
