"""Rounds of FedJAX's federated averaging on an MLP, in a Python that has FedJAX: an answer per line of input.

It imports nothing of polyfed.
"""

import json
import sys
import time

import fedjax  # pyright: ignore[reportMissingImports]
import jax
import jax.numpy as jnp
import numpy as np

LR = 0.1


def main() -> None:
    options = json.loads(sys.argv[2])
    with np.load(sys.argv[1]) as given:
        x, y = given["x"].astype(np.float32) / 255, given["y"]
        layers = sum(name.endswith(".w") for name in given.files)
        params = [(jnp.asarray(given[f"{k}.w"]), jnp.asarray(given[f"{k}.b"])) for k in range(layers)]
    datasets = [fedjax.ClientDataset({"x": rows.reshape(len(rows), -1), "y": labels}) for rows, labels in zip(x, y)]  # noqa: B905

    def loss(params, batch):
        *hidden, (w, b) = params
        x = batch["x"]
        for v, c in hidden:
            x = jax.nn.relu(x @ v + c)
        logits = jax.nn.log_softmax(x @ w + b)
        return -jnp.mean(jnp.take_along_axis(logits, batch["y"][:, None], axis=1))

    algorithm = fedjax.algorithms.fed_avg.federated_averaging(
        lambda params, batch, key: jax.grad(loss)(params, batch),
        fedjax.optimizers.sgd(LR),
        fedjax.optimizers.sgd(1.0),
        fedjax.ShuffleRepeatBatchHParams(options["batch"], num_epochs=None, num_steps=options["steps"], seed=0),
    )
    state = algorithm.init(params)
    clients = [(k, dataset, jax.random.PRNGKey(k)) for k, dataset in enumerate(datasets)]
    print("ready", flush=True)
    for line in sys.stdin:
        if line.strip() == "loss":
            found = [float(loss(state.params, dataset.all_examples())) for dataset in datasets]
            print(sum(found) / len(found), flush=True)
            continue
        begun, used = time.perf_counter(), time.process_time()
        state, _ = algorithm.apply(state, clients)
        jax.block_until_ready(state.params)
        print(time.perf_counter() - begun, time.process_time() - used, flush=True)


main()
