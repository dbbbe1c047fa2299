"""Data + model + loss + ridge: every client's objective."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from polyfed.core import randomness
from polyfed.core.aligned import aligned
from polyfed.core.errors import PolyfedError, own_names
from polyfed.core.startup import start
from polyfed.data import Federation, Population
from polyfed.data.cautions import cautions
from polyfed.models import Architecture, Model, Params, SequenceArchitecture, built, equinox, is_module, own_model
from polyfed.problem import batch_constants as sampled
from polyfed.problem import reference
from polyfed.problem.class_weights import ClassWeight, class_weights
from polyfed.problem.client_values import RULES, ClientValues, client_values, mixing_weights
from polyfed.problem.losses import get_loss
from polyfed.problem.no_model import what_was_found
from polyfed.problem.objective import Batch, Batching, Examples, Objective
from polyfed.problem.reference import Constants, LocalModels, Reference
from polyfed.problem.task import Task

DType = Literal["float32", "float64"]
Init = Literal["zeros", "ones", "random"] | Params | None
SPLITS = ("train", "validation", "test")


@contextmanager
def precision(dtype: DType) -> Iterator[None]:
    """Within it, JAX computes in this precision, whatever the process was set to."""
    if dtype not in ("float32", "float64"):
        raise PolyfedError(f"dtype must be 'float32' or 'float64', found {dtype!r}")
    with jax.enable_x64(dtype == "float64"):
        yield


class NotMeasured(PolyfedError):
    """What was asked for follows from the clients' rows, which nobody may look at."""


class Problem:
    """f_i(x) = mean loss of client i's training rows + l2/2 |x|^2, for every client of a federation.

    With `class_weight`, a row's loss is multiplied by the weight of its class: one number per class, or "balanced", n /
    (C n_c) over the training rows of all clients. It stays a mean over rows: weights are not normalised.

    `model` is one of `polyfed.models`, an Equinox module, or an (init, apply) pair: `init(key) -> params`,
    `apply(params, x) -> outputs` where x is a batch of examples; outputs are logits (softmax: one per class; logistic:
    one number; tags: one per tag) or predictions (squared). A third function `train_apply(params, x, key)` takes the
    place of `apply` in the steps of training.
    """

    @own_names
    def __init__(
        self,
        federation: Federation | Population,
        model: Architecture | Model | tuple[Callable[..., Any], ...],
        loss: str = "softmax",
        l2: float = 0.0,
        class_weight: ClassWeight = None,
    ) -> None:
        if not isinstance(federation, Federation | Population):
            raise PolyfedError(
                "expected a Federation or a Population, such as Federation.from_arrays([(X0, y0), (X1, y1)]), found "
                f"{type(federation).__name__}"
            )
        start()
        if not isinstance(l2, int | float) or isinstance(l2, bool) or not (0 <= l2 < float("inf")):
            raise PolyfedError(f"l2 must be a finite number, at least 0, found {l2!r}")
        self.federation = federation
        self.measured = True
        """Whether what follows from the clients' rows may be told."""
        self.loss = get_loss(loss if isinstance(loss, str) else repr(loss))
        self.l2 = float(l2)
        self._convert = self.loss.targets(federation)
        self._targets: dict[str, np.ndarray] = {}
        if isinstance(federation, Federation):
            self._targets = {split: self._convert(federation.split(split).y) for split in SPLITS}
        if isinstance(model, Model):
            self.model = model
        elif isinstance(model, tuple):
            self.model = own_model(model)
        elif is_module(model):
            self.model = equinox(model)
        else:
            if not isinstance(model, Architecture):
                raise PolyfedError(what_was_found(model))
            if self._positions and isinstance(model, SequenceArchitecture):
                model = model.every_position()
            self.model = built(model, federation.feature_shape, self.loss.outputs(federation))
        self._check_tokens()
        self._check_output()
        self.balanced = isinstance(class_weight, str)
        """Whether the class weights follow from the clients' rows."""
        self.class_weight = class_weights(class_weight, self)
        """The weight of each class in the loss that is trained; None where every row counts alike."""
        weights = None if self.class_weight is None else tuple(self.class_weight.tolist())
        self.task = Task(self.model, self.loss, self.l2, weights)
        self._local_models: dict[float, LocalModels] = {}
        self._references: dict[tuple[bytes, float | None], Reference] = {}
        self.traced: dict[Any, Any] = {}
        """What the engine learned by tracing, by what it depends on."""
        self.placed: dict[Any, Any] = {}
        """The data where the engine placed it, by its devices and precision."""

    def __len__(self) -> int:
        return len(self.federation)

    def select(self, clients: Sequence[int] | np.ndarray) -> Problem:
        """The same problem of these clients alone (positions), in memory."""
        return self.of(self.federation.select(clients))

    def of(self, federation: Federation | Population) -> Problem:
        """The same problem, with the same class weights, of other clients or rows."""
        other = Problem(federation, self.model, self.loss.name, self.l2, self.class_weight)
        other.balanced = self.balanced
        return other

    @cached_property
    def notes(self) -> list[str]:
        """What a reader of the results should know of the data: labels that stand for others, files that differ."""
        notes, source = self.federation.notes, self.federation.source
        if self.loss.name == "logistic" and "labels" not in source:
            values = self.federation.label_values()
            if values is not None and not set(values) <= {-1, 1} and len(values) == 2:
                notes = [*notes, f"labels {values[0]:g} -> -1, {values[1]:g} -> +1"]
        return notes

    @cached_property
    def cautions(self) -> list[str]:
        """What makes results on this data doubtful, in sentences."""
        return [str(caution) for caution in cautions(self.federation)]

    @cached_property
    def client_ids(self) -> np.ndarray:
        """Two 32-bit words per client, which its random numbers are drawn from."""
        return randomness.client_ids(self.federation.clients)

    @cached_property
    def fingerprint(self) -> str:
        """A digest of the data: names, rows, splits."""
        return self.federation.digest()

    @cached_property
    def model_fingerprint(self) -> str:
        """A digest of what the model computes, operation by operation: relu and tanh differ, their shapes do not."""
        params = jax.eval_shape(self.model.init, jax.random.key(0))
        program = str(jax.make_jaxpr(self.model.apply)(params, self.example()))
        if self.model.train_apply is not None:
            program += str(jax.make_jaxpr(self.model.train_apply)(params, self.example(), jax.random.key(0)))
        return hashlib.blake2b(program.encode(), digest_size=16).hexdigest()

    def init(self, values: Init = None, seed: int = 0) -> Params:
        """The parameters that training starts from, in the precision that is in force."""
        if values is None:
            values = self.model.start
        if not isinstance(values, str):
            shapes = jax.eval_shape(self.model.init, jax.random.key(0))
            if jax.tree.structure(shapes) != jax.tree.structure(values):
                raise PolyfedError("init: the given parameters do not have the model's structure")
            for want, got in zip(jax.tree.leaves(shapes), jax.tree.leaves(values), strict=True):
                if want.shape != np.shape(got):
                    raise PolyfedError(f"init: a parameter has shape {np.shape(got)}, the model's has {want.shape}")
            return jax.tree.map(lambda leaf, like: jnp.asarray(leaf, like.dtype), values, shapes)
        params = self.model.init(randomness.purpose_key(seed, randomness.Purpose.INIT))
        if values == "random":
            return params
        if values in ("zeros", "ones"):
            return jax.tree.map(jnp.zeros_like if values == "zeros" else jnp.ones_like, params)
        raise PolyfedError(f"init must be 'zeros', 'ones', 'random' or parameters, found {values!r}")

    def examples(self, split: str) -> tuple[np.ndarray, np.ndarray]:
        """The flat inputs and targets of a split, in the precision that is in force.

        They are aligned, so that a CPU device uses them as they are: all devices of the process share one copy.
        """
        x = self.federation.split(split).x
        y = self._targets[split]
        return aligned(x, _cast(x[:0]).dtype), aligned(y, _cast(y[:0]).dtype)

    def targets(self, client: int, split: str) -> np.ndarray:
        """A client's targets of a split, as the loss wants them."""
        return self._convert(self.federation.split(split).of(client)[1])

    def as_examples(self, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Some rows of the federation as inputs and targets, in the precision that is in force."""
        self._check_ids(x)
        return _cast(x), _cast(self._convert(y))

    def value(self, params: Params, client: str, split: str = "train", rows: Sequence[int] | None = None) -> float:
        """f_i at `params`, on all of a client's rows of a split, or on a batch of them (counted from 0)."""
        with precision(_dtype_of(params)):
            f = self.objective(client, split)
            return float(f.value(params, _batch(f, client, rows)))

    def grad(self, params: Params, client: str, split: str = "train", rows: Sequence[int] | None = None) -> Params:
        """The gradient of f_i at `params`, on all of a client's rows of a split, or on a batch of them."""
        with precision(_dtype_of(params)):
            f = self.objective(client, split)
            return jax.tree.map(np.asarray, f.grad(params, _batch(f, client, rows)))

    def mixing_weights(self, alpha: ClientValues, owner: str = "alpha") -> np.ndarray:
        """alpha_i of every client: from a number, one for each, a column of the data, or a rule."""
        if not self.measured and (self.is_rule(alpha) or callable(alpha)):
            raise NotMeasured(
                f"{owner} = {alpha!r} follows from all clients' data, which privacy does not cover; give numbers, or "
                "a column"
            )
        return mixing_weights(alpha, self.federation, owner)

    def client_values(self, given: ClientValues, owner: str) -> np.ndarray:
        """Every client's value of a hyper-parameter: from a number, one for each, or a column of the data."""
        return client_values(given, self.federation, owner)

    def is_rule(self, given: ClientValues) -> bool:
        """Whether mixing weights are given as the name of a rule."""
        return isinstance(given, str) and given in RULES and given not in self.federation.columns

    def unmeasured(self) -> Problem:
        """The same problem without looking at the clients' rows: no constants, and no rules of weights."""
        blind = copy.copy(self)
        blind.__dict__.pop("constants", None)
        blind.model = dataclasses.replace(self.model, design=None)
        blind.task = dataclasses.replace(self.task, model=blind.model)
        blind.measured = False
        return blind

    @cached_property
    def constants(self) -> Constants:
        """Smoothness L_i and strong convexity mu_i of every client's objective; for linear models."""
        return reference.constants(self)

    def sampled_constants(
        self, batch: int, solution: Reference | None = None, *, replace: bool = False, even: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """A_i and C_i of every client for batches of so many rows, cut as `Batching` says; for linear models."""
        return sampled.sampled_constants(self, Batching(batch, 1, None, replace, even), solution)

    def local_models(self, tolerance: float = 1e-12) -> LocalModels:
        """The pure local models x_i* = argmin f_i, with the gradient norms that were reached."""
        if tolerance not in self._local_models:
            self._local_models[tolerance] = reference.local_models(self, tolerance)
        return self._local_models[tolerance]

    def solve(self, alpha: ClientValues = 1.0, tolerance: float = 1e-12, plm_tolerance: float = 1e-12) -> Reference:
        """The minimiser of (1/n) sum_i f_i(alpha_i x + (1 - alpha_i) x_i*), to a gradient norm of `tolerance`.

        Histories of runs on this problem with this alpha (and this plm_tolerance, to which the x_i* are computed) then
        have the columns `gap`, `grad_norm2` and `distance`.
        """
        weights = mixing_weights(alpha, self.federation)
        solution = self.reference(weights, plm_tolerance)
        if solution is None:
            local = None if np.all(weights == 1) else self.local_models(plm_tolerance)
            solution = reference.solve(self, weights, local, tolerance)
            self._references[_reference_key(weights, plm_tolerance)] = solution
        return solution

    def reference(self, alpha: np.ndarray, plm_tolerance: float = 1e-12) -> Reference | None:
        """What `solve` found for these mixing weights; None if nobody asked."""
        return self._references.get(_reference_key(alpha, plm_tolerance))

    def objective(self, client: str, split: str) -> Objective:
        """f_i on the rows of a split, outside of any round."""
        index = self.federation.index(client)
        x, y = self.as_examples(*self.federation.split(split).of(index))
        if not (count := len(y)):
            raise PolyfedError(f"client '{client}' has no {split} rows")
        examples = Examples(jnp.asarray(x), jnp.asarray(y))
        zero = jnp.asarray(0)
        place = (zero, jnp.asarray(count), count, jnp.asarray(index), zero)
        return Objective(self.task, examples, *place, jax.random.key(0))

    def example(self) -> jax.ShapeDtypeStruct:
        """The shape of a batch of two examples, as the model sees it."""
        dtype = _cast(self.federation.like.x).dtype
        shape = (2, *self.federation.feature_shape)
        return jax.ShapeDtypeStruct(shape, jnp.result_type(float) if dtype == np.uint8 else dtype)

    @property
    def _positions(self) -> tuple[int, ...]:
        """(length,) where a row has a label for each of its positions, else ()."""
        return self.federation.like.y.shape[1:] if self.loss.name == "softmax" else ()

    def _check_tokens(self) -> None:
        """A model of token ids must know all of the data's."""
        kind = self.federation.like.x.dtype
        if self.model.tokens is not None and (kind.kind not in "iu" or kind == np.uint8):
            raise PolyfedError(f"the model reads token ids, whole numbers; this data's examples are {kind}")
        for split in SPLITS if isinstance(self.federation, Federation) else ():
            self._check_ids(self.federation.split(split).x)

    def _check_ids(self, x: np.ndarray) -> None:
        known = self.model.tokens
        if known is not None and x.size and (x.min() < 0 or x.max() >= known):
            wrong = x.max() if x.max() >= known else x.min()
            raise PolyfedError(f"the data has the token id {wrong}, the model knows 0 to {known - 1}: set vocabulary")

    def _check_output(self) -> None:
        """The model must give the loss the shape that it reads."""
        params = jax.eval_shape(self.model.init, jax.random.key(0))
        shape = jax.eval_shape(self.model.apply, params, self.example()).shape
        outputs = self.loss.outputs(self.federation)
        expected = (2,) if outputs is None else (2, *self._positions, outputs)
        if shape != expected:
            tags = "; for several tags a row, take loss 'tags'" if self._positions and len(shape) == 2 else ""
            raise PolyfedError(
                f"loss '{self.loss.name}' on this data needs outputs of shape {_rows(expected)}, "
                f"the model gives {_rows(shape)}{tags}"
            )


def _reference_key(alpha: np.ndarray, plm_tolerance: float) -> tuple[bytes, float | None]:
    """A solution depends on the pure local models only where somebody mixes them in."""
    return alpha.tobytes(), None if np.all(alpha == 1) else plm_tolerance


def _batch(f: Objective, client: str, rows: Sequence[int] | None) -> Batch | None:
    """The given rows of a client as a batch; None for all of them."""
    if rows is None:
        return None
    chosen = np.asarray(rows)
    if (
        chosen.ndim != 1
        or not chosen.size
        or chosen.dtype.kind not in "iu"
        or chosen.min() < 0
        or chosen.max() >= f.longest
    ):
        raise PolyfedError(
            f"rows must be numbers from 0 to {f.longest - 1}, the rows of client '{client}'; found {rows!r}"
        )
    return Batch(jnp.asarray(chosen), jnp.ones(chosen.size, jnp.result_type(float)))


def _rows(shape: tuple[int, ...]) -> str:
    return f"({', '.join(['rows', *map(str, shape[1:])])})"


def _dtype_of(params: Params) -> DType:
    return "float64" if any(np.asarray(leaf).dtype == np.float64 for leaf in jax.tree.leaves(params)) else "float32"


def _cast(array: np.ndarray) -> np.ndarray:
    """Real numbers in the precision in force; bytes and whole numbers as they are."""
    return array.astype(jnp.result_type(float), copy=False) if array.dtype.kind == "f" else array
