"""Other people's trackers: callbacks that write a run's settings and history where they show it.

tensorboard.py, mlflow.py, wandb.py  a tracker each; its package is imported when a run starts
settings.py                          the section [track] of a config
facts.py                             what all of them are told of a run
"""

from polyfed.track.mlflow import MLflow
from polyfed.track.settings import Track, track_settings
from polyfed.track.tensorboard import TensorBoard
from polyfed.track.wandb import WandB

__all__ = ["MLflow", "TensorBoard", "Track", "WandB", "track_settings"]
