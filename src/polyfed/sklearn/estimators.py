"""A federated classifier and regressor for scikit-learn: one model per group of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import Tags, check_array, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data

from polyfed.algorithms import APFL
from polyfed.algorithms.contract import Algorithm, get_algorithm
from polyfed.core.errors import PolyfedError, suggestion
from polyfed.data import Federation
from polyfed.engine.simulate import simulate
from polyfed.models import MODELS, Architecture, Model, Params
from polyfed.problem.metrics.canonical import softmax
from polyfed.problem.prediction import Predictor
from polyfed.problem.problem import Problem

if TYPE_CHECKING:
    import pandas as pd

EVERYBODY = "everybody"
"""The one group of rows that were given without groups."""
Rows = Any
"""What scikit-learn's checks take for rows: a DataFrame, an array, a sparse matrix, lists."""
CLIENT, TARGET = "client of the row", "target of the row"
DTYPE = "float64"


class _Federated(BaseEstimator):
    """What both have: rows and groups become a federation, a method trains on it, and every group has its model.

    Rows may be a DataFrame of any columns, which are prepared as tables are, or an array of numbers; missing ones are
    handled. Rows of groups that were not there in training, or without groups, are for the global model.
    """

    n_features_in_: int  # scikit-learn's checks set it

    def __init__(
        self,
        algorithm: str | Algorithm | None = None,
        model: str | Architecture = "linear",
        rounds: int = 100,
        l2: float = 1e-3,
        seed: int = 0,
    ) -> None:
        self.algorithm = algorithm
        self.model = model
        self.rounds = rounds
        self.l2 = l2
        self.seed = seed

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.non_deterministic = False
        return tags

    def _train(self, rows: Rows, y: np.ndarray, groups: ArrayLike | None, classes: int, loss: str) -> None:
        """Train, and keep what predictions take: parameters as NumPy arrays and the preparation."""
        names = _groups(groups, len(rows))
        numbers = None if self._is_table(rows) else dict.fromkeys(self._names(), "number")
        table = self._table(rows).assign(**{CLIENT: names, TARGET: y})
        federation = Federation.from_dataframe(
            table,
            client=CLIENT,
            target=TARGET,
            validation=0,
            test=0,
            classes=classes,
            prepare=True,
            columns=numbers,
        )
        problem = Problem(federation, _architecture(self.model), loss, self.l2)
        result = simulate(
            problem, _algorithm(self.algorithm), rounds=self.rounds, seed=self.seed, eval_every=self.rounds, dtype=DTYPE
        )
        if result.diverged:
            raise PolyfedError(f"training diverged: {result.diverged}")
        assert federation.preparation is not None
        self.preparation_ = federation.preparation
        self.outputs_ = problem.loss.outputs(federation)
        self.groups_ = list(federation.clients)
        self.personal_ = {name: result.personal(name) for name in federation.clients}
        self.global_ = result.global_params

    def _outputs(self, X: Rows, groups: ArrayLike | None, loss: str) -> np.ndarray:
        """The outputs of each row's model."""
        check_is_fitted(self)
        rows = X if self._is_table(X) else None
        if rows is None:
            rows = validate_data(self, X, reset=False, dtype=np.float64, ensure_all_finite="allow-nan")
        else:
            validate_data(self, X, reset=False, skip_check_array=True)
        predictor = Predictor(self._built(), loss, None, self._features, self.preparation_, DTYPE)
        x = predictor.rows(self._table(rows), None)
        if groups is None:
            return predictor.outputs(self._shared(), x)
        names = _groups(groups, len(x))
        outputs = np.zeros((len(x), *(() if self.outputs_ is None else (self.outputs_,))))
        for name in np.unique(names):
            own = names == name
            params = self.personal_[name] if name in self.personal_ else self._shared()
            outputs[own] = predictor.outputs(params, x[own])
        return outputs

    def _shared(self) -> Params:
        """The model for rows of nobody in particular."""
        if len(self.groups_) == 1:
            return self.personal_[self.groups_[0]]
        if self.global_ is None:
            raise PolyfedError("the method has no global model, so that rows need groups that were there in training")
        return self.global_

    def _built(self) -> Model:
        return _architecture(self.model).build(self._features, self.outputs_)

    @property
    def _features(self) -> tuple[int, ...]:
        return (len(self.preparation_.feature_names),)

    def _is_table(self, rows: Rows) -> bool:
        """Whether these are columns with names, of any type."""
        return hasattr(rows, "columns") and hasattr(rows, "iloc")

    def _names(self) -> list[str]:
        return [f"x{i}" for i in range(self.n_features_in_)]

    def _table(self, rows: Rows) -> pd.DataFrame:
        import pandas as pd

        if not self._is_table(rows):
            return pd.DataFrame(rows, columns=self._names())
        return rows.set_axis(list(map(str, rows.columns)), axis=1).reset_index(drop=True)

    def _checked(self, X: Rows, y: Rows, numeric: bool) -> tuple[Rows, np.ndarray]:
        """Rows and targets after scikit-learn's checks; a table stays one."""
        if not self._is_table(X):
            checks: Any = {"dtype": np.float64, "ensure_all_finite": "allow-nan", "ensure_min_samples": 2}
            rows, targets = validate_data(self, X, y, y_numeric=numeric, **checks)
            return rows, np.asarray(targets)
        validate_data(self, X, skip_check_array=True)
        targets = column_or_1d(y, warn=True)
        if numeric:
            targets = check_array(targets, ensure_2d=False, dtype="float64")
        check_consistent_length(X, targets)
        return X, np.asarray(targets)


class FederatedClassifier(ClassifierMixin, _Federated):
    """A classifier per group: `fit(X, y, groups=site)`, `predict(X, groups=site)`.

    `algorithm`: a method of `polyfed.algorithms` or its name, by default APFL(lr=0.1); `model`: "linear", "mlp", or one
    of `polyfed.models`.
    """

    def fit(self, X: Rows, y: ArrayLike, groups: ArrayLike | None = None) -> Self:
        """Train a model for every group; without groups, one for all rows."""
        rows, targets = self._checked(X, y, numeric=False)
        check_classification_targets(targets)
        self.classes_, codes = np.unique(targets, return_inverse=True)
        if len(self.classes_) < 2:
            raise PolyfedError(f"all rows have the class {self.classes_.tolist()[0]!r}, expected at least two classes")
        self._train(rows, codes, groups, len(self.classes_), "softmax")
        return self

    def predict_proba(self, X: Rows, groups: ArrayLike | None = None) -> np.ndarray:
        """The probability of each of `classes_`, by the model of each row's group."""
        return softmax(self._outputs(X, groups, "softmax"))

    def predict(self, X: Rows, groups: ArrayLike | None = None) -> np.ndarray:
        """The likeliest class."""
        chances = self.predict_proba(X, groups)
        return self.classes_[chances.argmax(axis=1)]

    def score(
        self, X: Rows, y: ArrayLike, sample_weight: ArrayLike | None = None, groups: ArrayLike | None = None
    ) -> float:
        """The accuracy."""
        return float(accuracy_score(y, self.predict(X, groups), sample_weight=sample_weight))


class FederatedRegressor(RegressorMixin, _Federated):
    """A regressor per group: `fit(X, y, groups=site)`, `predict(X, groups=site)`; see `FederatedClassifier`."""

    def fit(self, X: Rows, y: ArrayLike, groups: ArrayLike | None = None) -> Self:
        """Train a model for every group; without groups, one for all rows. Targets are standardized on the way."""
        rows, targets = self._checked(X, y, numeric=True)
        targets = np.asarray(targets, np.float64)
        self.centre_, self.scale_ = float(targets.mean()), float(targets.std()) or 1.0
        self._train(rows, (targets - self.centre_) / self.scale_, groups, 0, "squared")
        return self

    def predict(self, X: Rows, groups: ArrayLike | None = None) -> np.ndarray:
        """The prediction of each row's model."""
        outputs = self._outputs(X, groups, "squared")
        return outputs * self.scale_ + self.centre_

    def score(
        self, X: Rows, y: ArrayLike, sample_weight: ArrayLike | None = None, groups: ArrayLike | None = None
    ) -> float:
        """R²."""
        return float(r2_score(y, self.predict(X, groups), sample_weight=sample_weight))


def _groups(groups: ArrayLike | None, rows: int) -> np.ndarray:
    """The name of each row's group."""
    if groups is None:
        return np.full(rows, EVERYBODY, dtype=object)
    names = np.array(list(map(str, np.asarray(groups).tolist())), dtype=object)
    if len(names) != rows:
        raise PolyfedError(f"groups has {len(names)} entries, expected one for each of {rows} rows")
    return names


def _algorithm(given: str | Algorithm | None) -> Algorithm:
    if isinstance(given, Algorithm):
        return given
    return APFL(lr=0.1) if given is None else get_algorithm(given)()


def _architecture(given: str | Architecture) -> Architecture:
    if not isinstance(given, str):
        return given
    if given not in MODELS:
        raise PolyfedError(f"unknown model {given!r}{suggestion(given, MODELS)}")
    return MODELS[given]()
