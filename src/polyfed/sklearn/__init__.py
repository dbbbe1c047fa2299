"""Estimators with scikit-learn's manners: `fit(X, y, groups=site)`, in pipelines and cross-validation."""

from __future__ import annotations

from polyfed.core.extras import extra_package

extra_package("sklearn", "sklearn", "polyfed.sklearn")

from polyfed.sklearn.estimators import FederatedClassifier, FederatedRegressor

__all__ = ["FederatedClassifier", "FederatedRegressor"]
