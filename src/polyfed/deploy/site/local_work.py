"""A site's side of the round: what the engine does for one client, with this site's rows and nobody else's."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import prod
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from polyfed.algorithms.contract import Algorithm, Pending, Server, State
from polyfed.algorithms.shared.local_work import work_of
from polyfed.core import trees
from polyfed.core.precision import narrow_type
from polyfed.core.trees import Tree
from polyfed.data import Federation
from polyfed.deploy.protocol.plain_values import Refused
from polyfed.deploy.protocol.terms import Terms, architecture
from polyfed.engine.client_metrics import Metrics, as_metrics
from polyfed.engine.devices.layout import layout
from polyfed.engine.measure import FineTune, deployed, tuned
from polyfed.engine.participation import sampling
from polyfed.engine.placement import resident
from polyfed.engine.privacy.mechanism import Privacy
from polyfed.engine.programs import Programs
from polyfed.engine.round.records import Contribution, Data, contribution
from polyfed.engine.round.round import Round
from polyfed.engine.simulation import as_traced
from polyfed.problem.problem import Problem, precision
from polyfed.studies.newcomers.fitting import fitted

LARGEST = 2**29
"""The most numbers of a model, or of the rows of a batch: a site accepts no message that is longer."""
ONLY = 0
"""The place of the site in its own federation, of which it is the one client."""


class LocalResult(NamedTuple):
    """What a round's local work came to."""

    sent: Contribution
    sealed: Tree
    """how compressed values came about, see `Upload.sealed`"""
    good: bool
    """whether all of it is finite"""
    state: State
    """if the upload is good and the server counts it: the state from now on or, where `absorb` follows, before that"""


class LocalWork:
    """The programs of one site under one run's terms."""

    def __init__(self, federation: Federation, terms: Terms) -> None:
        loss = terms.problem["loss"]
        own = fitted(federation, terms.kind, loss)
        self.terms = terms
        self.problem = Problem(
            own, architecture(terms.problem), loss, terms.problem.get("l2", 0.0), terms.problem.get("class_weight")
        )
        _refuse_huge(self.problem, terms.method)
        with precision(terms.dtype):
            self.method = as_traced(terms.method)
            place = layout(1, 1)
            privacy = None if terms.clip is None else Privacy(terms.clip, noise=0.0)  # the noise is the server's
            data, splits = resident(self.problem, place, terms.seed, in_blocks=False)
            narrow = narrow_type(terms.compute, terms.dtype)
            self.programs = Programs(
                self.problem, self.method, place, sampling(1.0, 1), 1, data, splits, narrow, privacy
            )
            bounds = self.programs.round.longest
            self.programs.round = replace(self.programs.round, longest=bounds._replace(train=terms.longest))
            params = self.problem.init(terms.init, terms.seed)
            self.start = _numpy(self.method.init_client(params))
            server = jax.eval_shape(self.method.init_server, params)
            self.server = _zeros(server)
            """like a server's state, in shape and type"""
            self.broadcast = _zeros(jax.eval_shape(self.method.broadcast, server))
            """like what a server sends, in shape and type"""
            inputs = (self.method, self.programs.data, self.broadcast, self.start, jnp.int32(0))
            self.pending = _zeros(jax.eval_shape(partial(_local_round, self.programs.round), *inputs)[3])
            """like the state after local work, in shape and type"""

    def prepared(self) -> State:
        """The state before round 1: what the site does alone."""
        if self.method.prepare is None:
            return self.start
        with precision(self.terms.dtype):
            return _numpy(_prepared(self.programs.round, self.method, self.programs.data, self.start))

    def local(self, broadcast: Tree, state: State, number: int) -> LocalResult:
        """The local work of a round; `state` stays as it is until the server counts the upload."""
        with precision(self.terms.dtype):
            given = (self.method, self.programs.data, broadcast, state, jnp.int32(number))
            sent, sealed, good, new = _local_round(self.programs.round, *given)
            return LocalResult(jax.device_get(sent), sealed, bool(good), _numpy(new))

    def absorbed(self, broadcast: Tree, state: State, number: int) -> State:
        """The state after the server's broadcast that ended round `number`."""
        if self.method.absorb is None:
            return state
        with precision(self.terms.dtype):
            given = (self.method, self.programs.data, broadcast, state, jnp.int32(number))
            return _numpy(_absorbed(self.programs.round, *given))

    def personal(self, server: Server, state: State) -> Tree:
        """The model that this site deploys."""
        with precision(self.terms.dtype):
            return _numpy(_personal(self.programs.round, self.method, self.programs.data, server, state))

    def finetuned(self, shared: Tree, rule: FineTune) -> Tree:
        """The global model after this site's steps on its training rows."""
        with precision(self.terms.dtype):
            rate = jnp.asarray(rule.lr, float)
            return _numpy(_tuned(self.programs.round, replace(rule, lr=0.0), shared, self.programs.data, rate))

    def metrics(self, server: Server, state: State) -> dict[str, dict[str, dict[str, float]]]:
        """{model: {split: {metric: value}}} of this site."""
        with precision(self.terms.dtype):
            measured = self.programs.measure(self.programs.everywhere(server), self._clients, self._stacked(state))
            metrics: Metrics = as_metrics(jax.device_get(measured), self.problem, 1)
        return {
            model: {split: {name: float(v[ONLY]) for name, v in values.items()} for split, values in splits.items()}
            for model, splits in metrics.items()
        }

    @property
    def _clients(self) -> jax.Array:
        return self.programs.placed(np.zeros(1, np.int32))

    def _stacked(self, state: State) -> State:
        return jax.tree.map(lambda leaf: self.programs.placed(np.asarray(leaf)[None]), state)


_once = partial(jax.jit, static_argnums=0)
"""Compiled once for a round and shapes: a site's runs of the same terms share what was compiled."""


@_once
def _local_round(
    round: Round, method: Algorithm, data: Data, broadcast: Tree, state: State, number: jax.Array
) -> tuple[Contribution, Tree, jax.Array, State]:
    upload, new = round.one_client(method, broadcast, data, number, jnp.int32(ONLY), state)
    sent = contribution(upload)
    return sent, upload.sealed, trees.finite((sent.values, sent.weight, new)), new


@_once
def _prepared(round: Round, method: Algorithm, data: Data, state: State) -> State:
    return round.prepared(method, data, jnp.int32(ONLY), state)


@_once
def _absorbed(round: Round, method: Algorithm, data: Data, broadcast: Tree, state: State, number: jax.Array) -> State:
    new = round.absorbed(method, broadcast, data, number, jnp.int32(ONLY), state)
    return trees.where(trees.finite(new), new, state.state if isinstance(state, Pending) else state)


@_once
def _personal(round: Round, method: Algorithm, data: Data, server: Server, state: State) -> Tree:
    return deployed(round, method, server, state, jnp.int32(ONLY), data)


@partial(jax.jit, static_argnums=(0, 1))
def _tuned(round: Round, rule: FineTune, shared: Tree, data: Data, rate: jax.Array) -> Tree:
    return tuned(round, rule, shared, jnp.int32(ONLY), data, rate)


def _refuse_huge(problem: Problem, method: Algorithm) -> None:
    """Refuse a model, or batches, that no message of a run can be for: they would take all of this machine's memory."""
    model = trees.count(jax.eval_shape(problem.model.init, jax.random.key(0)))
    work = work_of(method)
    rows = work.size if work.replace and work.size != "full" else 0
    for what, count in (("model", model), ("batch", rows * prod(problem.federation.feature_shape))):
        if count > LARGEST:
            raise Refused(f"the terms want a {what} of {count} numbers, at most {LARGEST} are accepted")


def _numpy(tree: Tree) -> Tree:
    return jax.tree.map(np.asarray, tree)


def _zeros(shapes: Tree) -> Tree:
    return jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)
