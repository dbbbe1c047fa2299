"""Rounds of pfl's federated averaging, in a Python that has pfl: an answer per line of input.

It imports nothing of polyfed. pfl runs its own loop; a callback waits for the next line after each round. Its SCAFFOLD
is left out: with option II it adds y - x where the paper has x - y, and so reaches another loss than the others.
"""

import json
import sys
import time

import torch
import torch_models
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.hyperparam.base import NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel

LR, FOREVER = 0.1, 10**6


class Waits(TrainingProcessCallback):
    """Tells the seconds of a round after it, and waits for the next question."""

    def __init__(self, network, x, y) -> None:
        self.network, self.x, self.y = network, x, y

    def on_train_begin(self, *, model):
        print("ready", flush=True)
        self.wait()
        return Metrics()

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        print(time.perf_counter() - self.begun, time.process_time() - self.used, flush=True)
        return self.wait(), Metrics()

    def wait(self) -> bool:
        """Answer until a round is asked for; whether there is nothing more to do."""
        for line in sys.stdin:
            if line.strip() != "loss":
                self.begun, self.used = time.perf_counter(), time.process_time()
                return False
            print(torch_models.mean_loss(self.network, self.x, self.y), flush=True)
        return True


def main() -> None:
    options = json.loads(sys.argv[2])
    torch.manual_seed(0)
    torch.set_num_threads(options["threads"])
    x, y, network = torch_models.tensors(*sys.argv[1:3])
    clients, rows = y.shape
    cohort = len(options["cohorts"][0]) if options.get("cohorts") else clients
    order = (client for round in options.get("cohorts") or [range(clients)] * FOREVER for client in round)

    # user code
    network.loss = lambda x, y: torch.nn.functional.cross_entropy(network(x), y)
    network.metrics = lambda x, y: {}
    trainable = [p for p in network.parameters() if p.requires_grad]
    model = PyTorchModel(
        network,
        local_optimizer_create=lambda *_, lr: torch.optim.SGD(trainable, lr=lr),
        central_optimizer=torch.optim.SGD(trainable, lr=1.0),
    )
    users = [Dataset((x[client], y[client]), user_id=str(client)) for client in range(clients)]
    backend = SimulatedBackend(FederatedDataset(lambda user: users[user], lambda: next(order)), None)
    params = NNAlgorithmParams(
        central_num_iterations=FOREVER, evaluation_frequency=FOREVER, train_cohort_size=cohort, val_cohort_size=0
    )
    work = NNTrainHyperParams(
        local_learning_rate=LR,
        local_num_epochs=options["steps"] * options["batch"] // rows,
        local_batch_size=options["batch"],
    )
    waits = Waits(network, x, y)
    FederatedAveraging().run(params, backend, model, work, callbacks=[waits], send_metrics_to_platform=False)
    # end of user code


main()
