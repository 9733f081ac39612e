"""Train a language model by truncated backpropagation over one long stream, as a `Task` of the training loop.

Everything that a step reads or writes lies in tensors that stay in place, and nothing in it waits for the device. So on
a GPU the whole step, including the carried state and the position in the stream, is one captured graph.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call
from torch.utils._pytree import tree_leaves, tree_map_only

from rrnn.errors import DataError, RunError
from rrnn.nn.dropout import Drops, dropping
from rrnn.nn.product import weight_gradients
from rrnn.tasks.graphs import Graphs, SideStream
from rrnn.tasks.lm.config import LMConfig, recipe_rate
from rrnn.tasks.lm.loss import Precision, add_rows, loss_and_gradients, low_dtype, products
from rrnn.tasks.lm.model import LanguageModel, TorchLayer
from rrnn.tasks.lm.trained import evaluate
from rrnn.tasks.training import ALONE, Group
from rrnn.tasks.update import Averages, FlatWeights, Updater


class LanguageTask:
    """The `rrnn.tasks.training.Task` of a language model. `splits` holds word ids: "train", "dev" and maybe "test".

    The loss is the recipe's: summed over the steps of a window, divided by the batch size. In a group each process has
    its own columns of the batch, and gradients are averaged.
    """

    metric: tuple[str, Literal["min", "max"]] = ("ppl", "min")

    def __init__(
        self,
        model: LanguageModel,
        splits: Mapping[str, Tensor],
        config: LMConfig,
        *,
        group: Group = ALONE,
        capture: bool = True,
    ) -> None:
        """With `capture=False` a GPU runs steps kernel by kernel, without CUDA graphs."""
        self.model, self.config, self.group = model, config, group
        device = self.device = model.embedding.device
        self.splits = {name: ids.to(device) for name, ids in splits.items()}
        if config.batch_size % group.size:
            raise RunError(
                f"batch_size must be a multiple of the number of processes, {group.size}; got {config.batch_size}"
            )
        self.batch, self.window = config.batch_size // group.size, config.bptt
        tokens = len(self.splits["train"])
        self.length = (tokens - 1 - (self.window - 1) * config.shift) // config.batch_size
        if self.length < 1:
            raise DataError(
                f"the training text has {tokens} tokens, too few for a batch of {config.batch_size} streams: use a "
                "smaller batch_size, or more text"
            )
        tail = bool(config.asgd_from or config.asgd_after)
        self.averages = Averages(config.emas, tail, device, config.average_every)
        self.low = low_dtype(config.precision)
        adam = config.optimiser == "adam"
        self.store = FlatWeights(
            model, together=(TorchLayer,), low=self.low, averages=len(self.averages), adam=adam
        )
        self.updater = Updater(self.store.segments, self.averages, adam=adam, clip=config.clip, device=device)
        self.graphs, self.side = Graphs(device, capture=capture, alone=True), SideStream(device)
        self._stream = torch.zeros(self.length + 1, self.batch, dtype=torch.long, device=device)
        self._range = torch.arange(self.window + 1, device=device)
        # the position in the stream, and the seed of a step's dropouts, which are not drawn from torch's generators
        self._counters = torch.zeros(2, dtype=torch.long, device=device)
        self._place, self._seed = self._counters[:1], self._counters[1:]
        self._advance: dict[int, Tensor] = {}
        # losses since the last `measure`, by position in a window; `measure` adds them up
        self._losses = torch.zeros(self.window * self.batch, dtype=torch.float64, device=device)
        self._measured = 0  # number of steps that they come from
        first = self._first_state()
        # all states in one buffer, so that a step copies once
        self._carried = torch.cat([t.flatten() for t in _tensors(first)])
        views = iter(self._carried.split([t.numel() for t in _tensors(first)]))
        self._state = tree_map_only(Tensor, lambda t: next(views).view_as(t), first)
        self.epoch, self.cuts, self.kind = 0, 0, "last"
        self.dev: list[float] = []  # dev perplexities since the learning rate was last halved
        self.poor = 0  # epochs since the best dev perplexity
        self.first_rate = config.lr or recipe_rate(config.cell, config.optimiser)
        model.train()

    # ---- an epoch ------------------------------------------------------------------------------------------------

    def begin_epoch(self, epoch: int) -> int:
        """Seed the random numbers, lay out the text, reset the state, and return the number of steps."""
        self.epoch = epoch
        seed = _mixed(self.config.seed, epoch, self.group.rank)
        torch.manual_seed(seed)
        self._lay_stream()
        self._counters.copy_(torch.tensor([0, seed]))
        torch.cat([t.flatten() for t in _tensors(self._first_state())], out=self._carried)
        self._set_rate()
        if self.config.asgd_from and epoch >= self.config.asgd_from:
            self.averages.start_tail()
        return -(-self.length // self.window)

    def step(self, index: int) -> None:
        """Train on the next window."""
        size = min(self.window, self.length - index * self.window)
        self.graphs.run(size, lambda: self._step(size))
        self._measured += size

    def measure(self) -> dict[str, float]:
        """Return the mean loss and the number of tokens since the last call, and the learning rate."""
        tokens = self._measured * self.batch
        loss = float(self._losses.sum()) / max(tokens, 1)
        self._losses.zero_()
        self._measured = 0
        return {"loss": loss, "tokens": float(tokens), "lr": self.rate}

    def evaluate(self, split: str) -> dict[str, float]:
        """Return perplexity and loss. On "dev" the weights and all averages are evaluated, and the best of them counts;
        it is also used for the other splits."""
        precision: Precision = "fp32" if self.config.precision == "fp32" else "tf32"
        ready, scores = self.averages.ready, {}
        streams = self.config.dev_streams if split == "dev" else 1
        for kind in ready if split == "dev" else [self.kind]:
            with self.store.averaged(ready[kind]):
                scores[kind] = evaluate(self.model, self.splits[split], precision=precision, streams=streams)
        best = min(scores, key=lambda kind: scores[kind].loss)
        if split == "dev":
            self.kind = best
        out = {"ppl": scores[best].perplexity, "loss": scores[best].loss}
        if len(scores) > 1:
            out |= {f"ppl_{kind}": score.perplexity for kind, score in scores.items()}
        return out

    def end_epoch(self, epoch: int, dev: dict[str, float]) -> bool:
        """Apply the schedules of averages and learning rate, and return whether to stop."""
        c = self.config
        self.dev.append(dev["ppl"])
        poor = self._epochs_without_gain()
        if c.asgd_after and poor >= c.asgd_after:
            self.averages.start_tail()
        self.poor = self.poor + 1 if poor else 0
        if c.halve_after and poor >= c.halve_after:
            self.cuts += 1
            self.dev = [min(self.dev)]
        return bool(c.stop_after and self.poor >= c.stop_after)

    def _epochs_without_gain(self) -> int:
        return len(self.dev) - 1 - self.dev.index(min(self.dev)) if self.dev else 0

    # ---- a step --------------------------------------------------------------------------------------------------

    def _step(self, size: int) -> None:
        rows = self._stream.index_select(0, self._place + self._range[: size + 1])
        with products(self.config.precision):
            losses, gradients, end = self._gradients(rows[:-1], rows[1:])
        self.side.run(lambda: self._advance_window(size, losses, end))
        self.updater.step(self._averaged_over_group(self.store.gather(gradients)))
        self.side.join()

    def _advance_window(self, size: int, losses: Tensor, end: list[Tensor]) -> None:
        """Carry the state over, add up the losses, and advance to the next BPTT window."""
        torch.cat([t.flatten() for t in end], out=self._carried)
        self._losses[: len(losses)] += losses
        if size not in self._advance:  # made before a capture, which cannot copy from the host
            self._advance[size] = torch.tensor([size, 1], device=self.device)
        self._counters += self._advance[size]

    def _gradients(self, words: Tensor, targets: Tensor) -> tuple[Tensor, dict[str, Tensor], list[Tensor]]:
        """Return (losses of its tokens, gradients by parameter name, the state after it) of a window."""
        model, store = self.model, self.store
        table = store.working["embedding"].detach()
        embedded = F.embedding(words, table).requires_grad_()
        with weight_gradients(self.side.run), dropping(Drops(seed=self._seed)):
            seen, raw, end = self._read(embedded, words, self._state)
        softmax = loss_and_gradients(
            seen.detach().flatten(0, 1),
            model.embedding.detach(),
            model.bias.detach(),
            targets.flatten(),
            model.vocabulary,
            scale=1 / words.shape[1],
            low=None if self.low is None else table,
            side=self.side,
        )
        penalties = list(self._penalties(seen, raw))
        leaves = {name: leaf for name, leaf in store.working.items() if name not in ("embedding", "bias")}
        to_embedded, *others = torch.autograd.grad(
            [seen, *penalties],
            [embedded, *leaves.values()],
            [softmax.hidden.view_as(seen), *map(torch.ones_like, penalties)],
            materialize_grads=True,
        )
        self.side.join()
        # Embedding and softmax share one matrix, so the gradients of the embedded words are added to its rows.
        add_rows(softmax.weight, words.flatten(), to_embedded.flatten(0, 1))
        gradients = {
            "embedding": softmax.weight,
            "bias": softmax.bias,
            **dict(zip(leaves, others, strict=True)),
        }
        return softmax.losses, gradients, [t.detach() for t in _tensors(end)]

    def _read(self, embedded: Tensor, words: Tensor, state: Any) -> tuple[Tensor, Tensor, Any]:
        """Run `LanguageModel.read` with the working copies of the weights."""
        model = self.model
        if self.low is None:
            return model.read(embedded, words, state)
        prefix = "rnn."
        copies = {n.removeprefix(prefix): w for n, w in self.store.working.items() if n.startswith(prefix)}
        return model.read(embedded, words, state, lambda x, s: functional_call(model.rnn, copies, (x, s)))

    def _penalties(self, seen: Tensor, raw: Tensor) -> Iterator[Tensor]:
        """Yield the activation regularisers, weighted by the number of steps of the window."""
        c, size = self.config, seen.shape[0]
        if c.ar:
            yield size * c.ar * seen.float().square().mean()
        if c.tar and size > 1:
            yield size * c.tar * (raw[1:] - raw[:-1]).float().square().mean()

    def _averaged_over_group(self, gradients: list[Tensor]) -> list[Tensor]:
        """Average the gradients over the processes of the group."""
        if self.group.size > 1:
            for gradient in gradients:
                dist.all_reduce(gradient)
                gradient /= self.group.size
        return gradients

    # ---- state ---------------------------------------------------------------------------------------------------

    @property
    def rate(self) -> float:
        """The learning rate of this epoch."""
        c = self.config
        return self.first_rate * c.lr_decay ** max(0, self.epoch - c.lr_decay_from + 1) * 0.5**self.cuts

    def _set_rate(self) -> None:
        share = self.rate / self.first_rate if self.config.scale_weight_decay else 1.0
        self.updater.set_rate(self.rate, self.config.weight_decay * share)

    def _lay_stream(self) -> None:
        """Copy this epoch's columns of the text, each with one token more than it has steps, for the last target.

        A partial shuffle begins a column at a place of its own, and goes on at its beginning after its end. All of it
        depends on seed and epoch alone, for all processes of a group.
        """
        c = self.config
        begin = random.Random(f"{c.seed} {self.epoch}").randrange(self.window) if c.shift else 0
        columns = self.splits["train"].as_strided((self.length + 1, c.batch_size), (1, self.length), begin)
        if c.partial_shuffle and self.length > 1:
            draw = random.Random(f"{c.seed} {self.epoch} cuts")
            cuts = torch.tensor([draw.randrange(1, self.length) for _ in range(c.batch_size)])
            rows = (torch.arange(self.length + 1).unsqueeze(1) + cuts) % self.length
            columns = columns.gather(0, rows.to(columns.device))
        first = self.group.rank * self.batch
        self._stream.copy_(columns[:, first : first + self.batch])

    @torch.no_grad()
    def _first_state(self) -> Any:
        words = torch.full((1, self.batch), self.model.start, device=self.device)
        embedded = F.embedding(words, self.store.working["embedding"])
        self.model.eval()
        with products(self.config.precision):
            _, _, state = self._read(embedded, words, None)
        self.model.train()
        return state

    def weights(self) -> dict[str, Tensor]:
        """Return copies of the weights, or of the average that was best in the last evaluation on "dev"."""
        row = self.averages.ready[self.kind]
        live = self.store.named("flat") if row is None else self.store.named("averages", row)
        live = self.model.state_dict() | live  # what is not trained, too
        return {name: tensor.detach().clone() for name, tensor in live.items()}

    def _changing(self) -> dict[str, Tensor]:
        """Return all tensors that change from step to step, in place."""
        buffers = {"weights": ("flat", None)}
        buffers |= {f"average.{name}": ("averages", row) for row, name in enumerate(self.averages.names)}
        if self.updater.adam:
            buffers |= {"moment.1": ("moments", 0), "moment.2": ("moments", 1)}
        out = {
            f"{prefix}.{name}": view
            for prefix, (what, row) in buffers.items()
            for name, view in self.store.named(what, row).items()
        }
        out |= {f"carried.{i}": tensor for i, tensor in enumerate(_tensors(self._state))}
        out |= self.averages.tensors()
        return out | {"control": self.updater.control, "at": self._counters, "losses": self._losses}

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return everything that resuming needs."""
        tensors = {name: tensor.detach().clone() for name, tensor in self._changing().items()}
        tensors["random"] = torch.get_rng_state()
        if self.device.type == "cuda":
            tensors["random.cuda"] = torch.cuda.get_rng_state(self.device)
        meta = {"epoch": self.epoch, "cuts": self.cuts, "kind": self.kind, "poor": self.poor}
        return tensors, meta | {"measured": self._measured, "dev": list(self.dev)}

    @torch.no_grad()
    def load_state(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        """Restore what `state` returned."""
        here = self._changing()
        wrong = [n for n, t in here.items() if n not in tensors or tensors[n].shape != t.shape]
        if wrong:
            raise RunError(
                f"this checkpoint belongs to another training: {wrong[0]!r} is missing or has another shape. Resume "
                "with the same model, batch size and averages"
            )
        self.epoch, self.cuts, self.kind = meta["epoch"], meta["cuts"], meta["kind"]
        self.dev, self.poor, self._measured = list(meta["dev"]), meta["poor"], meta["measured"]
        self._lay_stream()
        for name, tensor in here.items():
            tensor.copy_(tensors[name])
        self.store.refresh()
        torch.set_rng_state(tensors["random"].cpu())
        if self.device.type == "cuda" and "random.cuda" in tensors:
            torch.cuda.set_rng_state(tensors["random.cuda"].cpu(), self.device)


def _tensors(state: Any) -> list[Tensor]:
    """Return the tensors of a nested state."""
    return [leaf for leaf in tree_leaves(state) if isinstance(leaf, Tensor)]


def _mixed(*numbers: int) -> int:
    """Return a seed made from several numbers, the same in every process (unlike hash)."""
    return random.Random(" ".join(map(str, numbers))).getrandbits(63)
