"""Loops that leave weights alone until they end, where the inputs of these weights are known before they begin.

A first layer sees the examples themselves. Under steps W <- W - lr x_t' g_t its outputs are

    x_t W_t = x_t W_0 - lr sum_{s < t} (x_t x_s') g_s,

and no W_t but the last is needed itself. All x W_0 and all x x' are one product each, and a step reads and writes a few
rows g instead of the whole W. On an accelerator, which spends its time on moving weights, a step of an MLP takes half
as long. It is the same sum in another order.

`loop` finds such weights by reading the loop's body, and knows of no model or method. W may enter the body by products
with known inputs alone, and leave it as a linear combination of weights of this kind (a proximal term, momentum, a
mixture of models), of matrices that the loop does not change (control variates), and of products x' g. All else that
the body computes stays as it is. Where W is used in another way (by Adam, say, or in a norm), or where nothing would be
gained, the loop is an ordinary one. Inputs that are not finite spoil all steps, not only those that read them.

body.py: a loop's body as a list of operations. sums.py: what stands for deferred weights in it. plan.py: which weights
to defer, and whether that gains anything. run.py: the loop itself.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
from jax import lax

from polyfed.core.trees import Tree
from polyfed.problem.deferred.body import Body
from polyfed.problem.deferred.plan import planned
from polyfed.problem.deferred.run import Deferred

__all__ = ["loop"]


def loop(steps: int, body: Callable[[jax.Array, Tree], Tree], carry: Tree, platform: str) -> Tree:
    """`lax.fori_loop(0, steps, body, carry)` for this platform, with weights deferred where that moves less."""
    leaves, tree = jax.tree.flatten(carry)

    def flat(index: jax.Array, *leaves: jax.Array) -> Tree:
        return body(index, jax.tree.unflatten(tree, leaves))

    closed, ended = jax.make_jaxpr(flat, return_shape=True)(0, *leaves)
    kinds = [[(aval.shape, aval.dtype) for aval in avals] for avals in (closed.in_avals[1:], closed.out_avals)]
    alike = jax.tree.structure(ended) == tree and kinds[0] == kinds[1]
    plan = planned(Body(closed, platform), steps) if alike and steps > 0 and not closed.effects else None
    if plan is None:
        return lax.fori_loop(0, steps, body, carry)
    return jax.tree.unflatten(tree, Deferred(plan, steps, leaves).run())
