"""Every rule of the engine: it states its identity, why repeating it ends, and has an example.

That a rule keeps the value is tested where it stands: on terms of its own, and at every step of
every derivation.
"""

import ast
import re

from kit.command import ROOT
from kit.each import each_row
from kit.steps import steps_of

import derive
from derive.algebra.inequalities import Bounds
from derive.algebra.rules import DELTA_RULES, FUNCTION_RULES
from derive.calculus.adjoint import unit_axes
from derive.calculus.bracket_rules import sign_rule, witness_rule, zero_rule
from derive.calculus.build_lets import flatten_operation
from derive.calculus.equality_rules import equality_rules, lookup_rule, shift_rules
from derive.calculus.fold import fold_rules, masked_fold
from derive.calculus.ratio_rules import quotient_rules
from derive.calculus.ring import ring_rule
from derive.calculus.stabilise import LOGARITHMS, POWERS
from derive.calculus.symmetry import symmetry_rule

LETS = flatten_operation(derive.parse("op f(x[n,k]) -> y ; y[n] = logsumexp[k](x[n,k])"))
UNIT = derive.parse("op f(x[n,k]; size(k)=1) -> y ; y[n] = sum[k](x[n,k])")
BOUNDS = Bounds()
EVERY = (
    *(*DELTA_RULES, *FUNCTION_RULES, *fold_rules(LETS, {}), masked_fold(LETS)),
    *(*quotient_rules(LETS), *shift_rules(BOUNDS), *equality_rules(BOUNDS)),
    *(lookup_rule(BOUNDS), witness_rule(LETS), zero_rule(LETS), *unit_axes(UNIT)),
    *(sign_rule(LETS), ring_rule(BOUNDS), symmetry_rule(LETS, {})),
)


@each_row("rule", EVERY)
def test_a_rule_states_an_identity_and_why_it_ends(rule):
    assert rule.name and rule.states and rule.shrinks
    assert "=" in rule.states or " is " in rule.states


def test_one_name_says_one_identity():
    assert len({r.name for r in EVERY}) == len({(r.name, r.states) for r in EVERY})


EXAMPLES = """
equal positions: f(x[i]) -> y; h[i,j] = [i==j]*x[i]; y[i] = h[i,i]**2
    grad_x[i] = 2·G[i]·h[i,i]
contract delta: f(x[i]) -> y; y[i] = 1/x[i]
    grad_x[i] = −G[i]/x[i]²
normalised exponential: f(x[k]) -> H; l[k] = log_softmax[k](x[k]); H = sum[k](exp(l[k])*l[k])
    grad_x[k] = G·exp(l[k]) + G·l[k]·exp(l[k]) − [size(k) > 0]·G·exp(l[k]) − Σₖ′ \
G·l[k′]·exp(l[k′])·exp(l[k])
no positions, no value: f(x[k]) -> H; l[k] = log_softmax[k](x[k]); H = sum[k](exp(l[k])*l[k])
    grad_x[k] = G·l[k]·exp(l[k]) − Σₖ′ G·l[k′]·exp(l[k′])·exp(l[k])
known sum: f(q[i,d], k[j,d], v[j,e]) -> y; y[i,e] = \
sum[j](softmax[j](-sum[d]((q[i,d]-k[j,d])**2)/2)*v[j,e])
    grad_q[i,d] = Σⱼ grad_scores[i,j]·k[j,d]
fold total: f(x[k]) -> H; l[k] = log_softmax[k](x[k]); H = sum[k](exp(l[k])*l[k])
    grad_x[k] = G·l[k]·exp(l[k]) − G·H·exp(l[k])
fold total through an adjoint: f(x[n,k], w[k,e]) -> y; r[n] = rsqrt(sum[k](x[n,k]**2)); h[n,k] \
= x[n,k]*r[n]; y[n,e] = sum[k](h[n,k]*w[k,e])
    grad_x[n,k] = grad_h[n,k]·r[n] − Σₑ G[n,e]·r[n]·h[n,k]·y[n,e]
guard: f(t[n]) -> y; y[n] = where(t[n] == 0, 0, t[n]*log(t[n]))
    grad_t[n] = [t[n] ≠ 0]·G[n]·(1 + log(t[n]))
guarded product: f(p[n], q[n]) -> y; y[n] = where(p[n] > 0, p[n]*log(p[n]/q[n]), 0)
    grad_q[n] = −[p[n] > 0]·G[n]·p[n]/q[n]
fold: f(x[i]) -> y; y[i] = 1/x[i]
    grad_x[i] = −G[i]·y[i]²
fold sum: f(B[j,k]) -> F; F[j,k] = B[j,k] - logsumexp[k](B[j,k])
    grad_B[j,k] = G[j,k] − Σₖ′ G[j,k′]·exp(F[j,k])
one sum: f(x[n], y[n]; b=0.3) -> L; L[n] = (b*x[n] + (1 - b)*y[n])*log(b*x[n] + (1 - b)*y[n])
    grad_x[n] = b·G[n] + b·G[n]·log(b·x[n] + y[n]·(1 − b))
one quotient: f(x[n], y[n]; s=2) -> L; L[n] = y[n]*log(1 + ((x[n] - 1)/s)**2)
    grad_x[n] = 2·G[n]·y[n]·u[n]/(u[n]² + s²)
cancel a sum: f(x[n], y[n], m[n]: bool) -> L; M[n] = where(m[n], x[n] + y[n], 0); L[n] = \
where(m[n], x[n]*log(M[n]) + y[n]*log(M[n]), 0)
    grad_M[n] = [m[n]]·G[n]
other share: f(x[i]) -> y; y[i] = x[i]/(abs(x[i]) + 1)
    grad_x[i] = G[i]/(1 + |x[i]|)²
subtract a part: f(x[k]) -> H; l[k] = x[k] - 1; H = -sum[k](exp(l[k])*l[k])
    grad_l[k] = −G·x[k]·exp(l[k])
guarded position: f(a[i], b[j], c[k]) -> y; h[m] = concat[m](a[m], b[m]); y[l] = \
concat[l](h[l], c[l])
    grad_a[i] = Σ[l | l < size(m)] G[l]·δ[i,l]
known condition: f(x[t]) -> y; y[t] = x[t] - [t >= 1]*x[t-1]
    grad_x[t] = G[t] − [1 + t < size(t)]·G[1 + t]
solve delta: f(x[t]) -> y; y[t] = x[size(t)-1-t]
    grad_x[t] = G[size(t) − 1 − t]
solve delta in part: f(x[t]) -> y; y[u] = x[u+1] - x[u]
    grad_x[t] = [t ≥ 1]·G[t − 1] − [t < size(u)]·G[t]
part of a range: f(v[j], X[j,j], T[l,l]: int) -> y; y[x] = concat[x](X[T[x,x],1], v[x])
    grad_X[j,j′] = Σₗ G[l]·δ[j,T[l,l]]·δ[j′,1]
turn a sum: f(x[t]) -> y; y[t] = sum[s | s <= t](x[size(t)-1-s])
    grad_x[t] = Σ[t′ | t′ ≤ t] G[size(t) − 1 − t′]
known condition: f(x[i]) -> y; y[i] = where(i == 0, x[i]**2, where(i == 1, x[i], 0))
    grad_x[i] = G[i]·(2·[i = 0]·x[i] + [i = 1])
solve equality: f(x[j], z[i]) -> y; y[i,j] = [i == j]*x[j]*z[i]
    grad_x[j] = [j < size(i)]·G[j,j]·z[j]
one position left: f(x[n,k]; size(k)=3) -> y; y[n,k] = where(k < 1, 1, where(k == 1, 2, \
exp(x[n,2])*x[n,k]))
    grad_x[n,k] = G[n,k]·exp(x[n,2])·δ[k,2] + G[n,2]·x[n,2]·exp(x[n,2])·δ[k,2]
read at a delta: f(x[n,k]; size(k)=3) -> y; y[n,k] = where(k < 1, 1, where(k == 1, 2, \
exp(x[n,2])*x[n,k]))
    grad_x[n,k] = G[n,2]·exp(x[n,2])·δ[k,2] + G[n,2]·x[n,2]·exp(x[n,2])·δ[k,2]
lookup: f(x[c], w[c], T[n]: int) -> y; y[n] = sum[c]([c == T[n]]*x[c])*w[T[n]]
    grad_w[c] = Σₙ δ[c,T[n]]·G[n]·x[c]
witness: f(x[k], s[k]: int, w[n]) -> y; y[k] = w[s[k]] + sum[n | n == s[k]](exp(w[n])*x[k])
    grad_x[k] = G[k]·exp(w[s[k]])
zero: f(x[n]) -> y; y[n] = relu(x[n])**2
    grad_x[n] = 2·G[n]·relu(x[n])
sign: f(x[n]) -> y; y[n] = max(1 + x[n]**2, 0)
    grad_x[n] = 2·G[n]·x[n]
ring: f(x[i]) -> y; y[i] = x[(i + 1) % size(i)]**2
    grad_x[i] = 2·G[(i − 1) mod size(i)]·x[i]
symmetry: f(x[i], w[j]) -> y; K[i,j] = exp(x[i]*x[j]); y[i] = sum[j](K[i,j]*w[j])
    grad_w[j] = Σᵢ G[i]·K[j,i]
axis of size 1: f(x[i]; size(i)=1) -> y; y = x[0]**2
    grad_x[i] = 2·G·x[0]
"""
"""By rule an operation, and what a formula of it is after the rule; others have their own terms."""
ROWS = re.findall(r"(.*?): (.*)\n    (.*)", EXAMPLES)


def test_every_rule_has_an_example():
    assert {name for name, _, _ in ROWS} == {rule.name for rule in EVERY if not rule.examples}


@each_row("name, text, after", ROWS)
def test_a_rule_makes_this_of_its_example(name, text, after):
    steps = steps_of(derive.derivation(derive.parse(f"op {text}")))
    assert after in [s.text() for s in steps if s.rule == name]


@each_row("states", [*POWERS, *(states for states, _ in LOGARITHMS)])
def test_a_stable_form_states_its_identity(states):
    assert "=" in states


def test_these_are_all_rules():
    made = 0
    for path in (ROOT / "derive").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        own = path.parts[-2:] == ("algebra", "rules.py") or "from derive.algebra.rules" in text
        for node in ast.walk(ast.parse(text)) if own else ():
            called = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
            made += called and node.func.id in ("Rule", "SumRule")
    assert made == len(EVERY)
