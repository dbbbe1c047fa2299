"""Estimators with scikit-learn's manners: `fit(X, y, groups=site)`, in pipelines and cross-validation."""

from __future__ import annotations

from polyfed.sklearn.estimators import FederatedClassifier, FederatedRegressor

__all__ = ["FederatedClassifier", "FederatedRegressor"]
