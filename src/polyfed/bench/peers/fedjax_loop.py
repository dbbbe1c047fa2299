"""Rounds of FedJAX's federated averaging, in a Python that has FedJAX: an answer per line of input.

It imports nothing of polyfed. The models are written as one would for FedJAX: XLA's own convolution, a scan of cells.
"""

import json
import sys
import time

import fedjax
import jax
import jax.numpy as jnp
import numpy as np

LR = 0.1


def mlp(params, x):
    x = x.reshape(len(x), -1)
    layers = sum(name.endswith(".w") for name in params)
    for k in range(layers):
        x = x @ params[f"{k}.w"] + params[f"{k}.b"]
        x = jax.nn.relu(x) if k < layers - 1 else x
    return x


def linear(params, x):
    return x @ params["w"] + params["b"]


def cnn(params, x):
    x = x[..., None]
    for k in (0, 1):
        w, b = params[f"conv.{k}.w"], params[f"conv.{k}.b"]
        x = jax.lax.conv_general_dilated(x, w, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        x = jax.nn.relu(x + b)
    x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID").reshape(len(x), -1)
    x = jax.nn.relu(x @ params["fc.0.w"] + params["fc.0.b"])
    return x @ params["fc.1.w"] + params["fc.1.b"]


def lstm(params, x):
    x = params["embedding"][x.T]
    for k in (0, 1):
        w, b = params[f"lstm.{k}.w"], params[f"lstm.{k}.b"]

        def cell(carry, x, w=w, b=b):
            h, c = carry
            into, keep, out, candidate = jnp.split(jnp.concatenate([x, h], axis=1) @ w + b, 4, axis=1)
            c = jax.nn.sigmoid(keep) * c + jax.nn.sigmoid(into) * jnp.tanh(candidate)
            h = jax.nn.sigmoid(out) * jnp.tanh(c)
            return (h, c), h

        zero = jnp.zeros((x.shape[1], w.shape[1] // 4))
        x = jax.lax.scan(cell, (zero, zero), x)[1]
    return x[-1] @ params["fc.w"] + params["fc.b"]


def main() -> None:
    options = json.loads(sys.argv[2])
    with np.load(sys.argv[1]) as given:
        arrays = {name: given[name] for name in given.files}
    x, y = arrays.pop("x"), arrays.pop("y")
    x = x.astype(np.float32) / 255 if x.dtype == np.uint8 else x
    params = {name: jnp.asarray(leaf) for name, leaf in arrays.items()}
    model = {"mlp": mlp, "linear": linear, "femnist_cnn": cnn, "lstm": lstm}[options["model"]]
    cohorts = iter(options.get("cohorts") or [])

    # user code
    datasets = [fedjax.ClientDataset({"x": rows, "y": labels}) for rows, labels in zip(x, y)]  # noqa: B905

    def loss(params, batch):
        logits = jax.nn.log_softmax(model(params, batch["x"]))
        return -jnp.mean(jnp.take_along_axis(logits, batch["y"][:, None], axis=1))

    algorithm = fedjax.algorithms.fed_avg.federated_averaging(
        lambda params, batch, key: jax.grad(loss)(params, batch),
        fedjax.optimizers.sgd(LR),
        fedjax.optimizers.sgd(1.0),
        fedjax.ShuffleRepeatBatchHParams(options["batch"], num_epochs=None, num_steps=options["steps"], seed=0),
    )
    state = algorithm.init(params)

    def round(state):
        cohort = next(cohorts, range(len(datasets)))
        return algorithm.apply(state, [(k, datasets[k], jax.random.PRNGKey(k)) for k in cohort])[0]

    # end of user code
    compiled = jax.jit(loss)
    print("ready", flush=True)
    for line in sys.stdin:
        if line.strip() == "loss":
            losses = [float(compiled(state.params, dataset.all_examples())) for dataset in datasets]
            print(sum(losses) / len(losses), flush=True)
            continue
        begun, used = time.perf_counter(), time.process_time()
        state = round(state)
        jax.block_until_ready(state.params)
        print(time.perf_counter() - begun, time.process_time() - used, flush=True)


main()
