"""Train a text classifier as a `Task` of the training loop: Adam on batches of texts of similar length."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from rrnn.automata import Cell
from rrnn.backends.triton.backend import has_kernels
from rrnn.errors import RunError
from rrnn.tasks.classify.model import TextClassifier
from rrnn.tasks.classify.prepare import Prepared, Texts
from rrnn.tasks.classify.scores import macro_f1
from rrnn.tasks.graphs import Graphs
from rrnn.tasks.update import Averages, FusedAdam, learned

EVALUATION_BATCH, EVALUATION_TOKENS = 256, 2**15
_OPTIMISER = "optimiser."
_MODEL = "model."
_AVERAGE = "average."


class ClassifyTask:
    """The `rrnn.tasks.training.Task` of a text classifier."""

    metric: tuple[str, Literal["min", "max"]] = ("accuracy", "max")

    def __init__(
        self,
        data: Prepared,
        *,
        cell: Cell | None = None,
        device: torch.device | str = "cpu",
        capture: bool = True,
        kernels: bool | None = None,
    ) -> None:
        """With `capture`, a GPU runs steps as CUDA graphs, one for each padded length. `kernels` says whether to update
        with Triton kernels (default: on a GPU)."""
        self.config, self.device = data.config, torch.device(device)
        self.model = TextClassifier(
            self.config,
            len(data.vocabulary),
            len(data.labels),
            vectors=data.vectors,
            spellings=data.spellings,
            rules=data.rule_units,
            cell=cell,
            device=self.device,
        )
        self.splits = {name: Texts(*split, self.device) for name, split in data.splits.items()}
        self.parameters: list[Tensor] = list(learned(self.model).values())
        control = torch.tensor([self.config.lr, 1.0], device=self.device)
        self.lr = control[0]  # a tensor, so that CUDA graphs see its changes
        self.optimiser = torch.optim.Adam(
            self.parameters,
            lr=self.lr,
            weight_decay=self.config.l2,
            fused=True,
            capturable=self.device.type == "cuda",
        )
        kept = [self.config.average] if self.config.average else []
        self.averaging = Averages(kept, False, self.device)
        self._fused = None
        if has_kernels(self.device) if kernels is None else kernels:
            fused = {"control": control, "clip": self.config.clip, "kernels": True}
            self._fused = FusedAdam(self.model, self.optimiser, self.averaging, **fused)
            self.averages = self._fused.averages
        else:
            self.averages = [parameter.detach().clone() for parameter in self.parameters if kept]
        self.totals = torch.zeros(2, device=self.device)  # loss, examples
        self.rows = torch.empty(self.config.batch_size, dtype=torch.int64, device=self.device)
        self._evaluation_loss = torch.zeros(1, device=self.device)
        self._counts = torch.zeros(3, len(data.labels), device=self.device)  # correct, labelled, predicted
        self._evaluation_rows = torch.empty(EVALUATION_BATCH, dtype=torch.int64, device=self.device)
        self._evaluations = {
            name: texts.in_order(EVALUATION_BATCH, EVALUATION_TOKENS) for name, texts in self.splits.items()
        }
        self.graphs = Graphs(self.device, self.model.generator, capture=capture and self._can_capture())
        self.best, self.waited = float("-inf"), 0  # best dev accuracy, and the number of epochs since

    def _can_capture(self) -> bool:
        """Return whether steps can be captured: torch's own bidirectional layers read lengths on the host."""
        return not (self.config.bidirectional and isinstance(self.model.layers[0], torch.nn.RNNBase))

    def count_parameters(self) -> int:
        """Return the number of trained parameters."""
        return sum(parameter.numel() for parameter in self.parameters)

    # ---- an epoch ------------------------------------------------------------------------------------------------

    def begin_epoch(self, epoch: int) -> int:
        """Shuffle the batches, and return their number."""
        self.plan = self.splits["train"].epoch(self.config.batch_size, self.config.seed, epoch)
        return len(self.plan)

    def step(self, index: int) -> None:
        """Train on one batch."""
        rows, steps = self.plan[index]
        with self.graphs.on_stream():
            self.rows.copy_(rows)
            self.graphs.run(("train", steps), lambda: self._update(steps))

    def _update(self, steps: int) -> None:
        """Make a step of Adam on the examples in `rows`, without waiting for the device, so that it can be captured."""
        ids, lengths, labels, weights = self.splits["train"].gather(self.rows, steps)
        self.optimiser.zero_grad()
        losses = F.cross_entropy(self.model(ids, lengths), labels, reduction="none") * weights
        total, count = losses.sum(), weights.sum()
        (total / count).backward()
        if self._fused is not None:
            self._fused.step()
        else:
            torch.nn.utils.clip_grad_norm_(self.parameters, self.config.clip)
            self.optimiser.step()
            if self.averages:
                self._average()
        self.totals.add_(torch.stack([total.detach(), count]))

    @torch.no_grad()
    def _average(self) -> None:
        """Update the moving averages of the weights."""
        self.averaging.count()
        share = self.averaging.shares()[0]
        moves = torch._foreach_sub(self.parameters, self.averages)  # pyright: ignore[reportPrivateImportUsage]
        torch._foreach_mul_(moves, share)  # pyright: ignore[reportPrivateImportUsage]
        torch._foreach_add_(self.averages, moves)  # pyright: ignore[reportPrivateImportUsage]

    def measure(self) -> dict[str, float]:
        """Return the mean loss and the number of examples since the last call, and the learning rate."""
        with self.graphs.on_stream():
            loss, examples = self.totals.tolist()
            self.totals.zero_()
            return {"loss": loss / max(examples, 1), "examples": examples, "lr": float(self.lr)}

    # ---- evaluation ----------------------------------------------------------------------------------------------

    @torch.no_grad()
    def evaluate(self, split: str) -> dict[str, float]:
        """Return the mean loss, and the accuracy and the macro-averaged F1 in per cent."""
        texts = self.splits[split]
        self.model.eval()
        with self._averaged(), self.graphs.on_stream():
            self._evaluation_loss.zero_()
            self._counts.zero_()
            for batch in self._evaluations[split]:
                rows = self._evaluation_rows[: len(batch.rows)]
                rows.copy_(batch.rows)
                key = (split, batch.steps, len(rows))
                self.graphs.run(key, lambda rows=rows, steps=batch.steps: self._add_up(texts, rows, steps))
            loss, counts = self._evaluation_loss.item(), self._counts.tolist()
        self.model.train()
        accuracy = 100 * sum(counts[0]) / len(texts)
        return {"loss": loss / len(texts), "accuracy": accuracy, "macro_f1": macro_f1(*counts)}

    @contextmanager
    @torch.no_grad()
    def _averaged(self) -> Iterator[None]:
        """Replace the weights by their averages, if there are any, inside this context."""
        if not self.averages:
            yield
            return
        with self.graphs.on_stream():
            own = [parameter.clone() for parameter in self.parameters]
            _copy(self.averages, self.parameters)
        try:
            yield
        finally:
            with self.graphs.on_stream():
                _copy(own, self.parameters)

    def _add_up(self, texts: Texts, rows: Tensor, steps: int) -> None:
        """Add the losses and the predictions of a batch to the totals."""
        ids, lengths, labels, weights = texts.gather(rows, steps)
        logits = self.model(ids, lengths)
        losses = F.cross_entropy(logits, labels, reduction="none")
        self._evaluation_loss.add_((losses * weights).sum())
        predicted = logits.argmax(-1)
        for counts, label, share in zip(
            self._counts,
            (labels, labels, predicted),
            ((predicted == labels) * weights, weights, weights),
            strict=True,
        ):
            counts.index_add_(0, label, share)

    def end_epoch(self, epoch: int, dev: dict[str, float]) -> bool:
        """Halve the learning rate after some epochs without a better accuracy; stop after more, or at 100 %."""
        if dev["accuracy"] > self.best:
            self.best, self.waited = dev["accuracy"], 0
            return self.best == 100
        self.waited += 1
        if self.waited % self.config.halve_after == 0:
            with self.graphs.on_stream():
                self.lr.mul_(0.5)
        return self.waited >= self.config.stop_after

    # ---- checkpoints ---------------------------------------------------------------------------------------------

    def weights(self) -> dict[str, Tensor]:
        """Return copies of the weights as they are evaluated."""
        with self._averaged():
            return self._copies()

    def _copies(self) -> dict[str, Tensor]:
        """Return complete copies of the weights: the next step, on a stream of its own, does not wait for readers."""
        with self.graphs.on_stream():
            copies = {name: tensor.detach().clone() for name, tensor in self.model.state_dict().items()}
        self.graphs.wait()
        return copies

    def load_weights(self, weights: dict[str, Tensor]) -> None:
        """Load what `weights` returned, to evaluate it here, or to use the model on any other stream."""
        self.graphs.follow()
        with self.graphs.on_stream():
            self.model.load_state_dict(weights)
            if self.averages:
                _copy(self.parameters, self.averages)
        self.graphs.wait()

    def _averaged_state(self) -> dict[str, Tensor]:
        """Return the averages and their counters; nothing if there are no averages."""
        kept = {str(i): tensor for i, tensor in enumerate(self.averages)}
        return kept | self.averaging.tensors() if kept else {}

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return everything that resuming needs."""
        tensors = {_MODEL + name: tensor for name, tensor in self._copies().items()}
        tensors |= {_AVERAGE + name: tensor for name, tensor in self._averaged_state().items()}
        for i, parameter in enumerate(self.parameters):
            for name, value in self.optimiser.state.get(parameter, {}).items():
                tensors[f"{_OPTIMISER}{i}.{name}"] = value
        tensors["generator"] = self.model.generator.get_state()
        tensors |= {"totals": self.totals, "lr": self.lr}
        return tensors, {"best": self.best, "waited": self.waited}

    def load_state(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        """Restore what `state` returned."""
        own = {name.removeprefix(_MODEL): t for name, t in tensors.items() if name.startswith(_MODEL)}
        self.graphs.follow()
        try:
            with self.graphs.on_stream():
                self.model.load_state_dict(own)
                for name, tensor in self._averaged_state().items():
                    tensor.copy_(tensors[_AVERAGE + name])
                self._load_optimiser(tensors)
                self.totals.copy_(tensors["totals"])
                self.lr.copy_(tensors["lr"])
            drawn = tensors["generator"].cpu()
            if len(drawn) == len(
                self.model.generator.get_state()
            ):  # the state of a GPU's generator means nothing to a CPU
                self.model.generator.set_state(drawn)
        except (KeyError, RuntimeError) as error:
            raise RunError(
                f"the checkpoint belongs to another model: {error}. Was the configuration changed?"
            ) from None
        self.best, self.waited = meta["best"], meta["waited"]

    def _load_optimiser(self, tensors: dict[str, Tensor]) -> None:
        for (
            state
        ) in self.optimiser.state.values():  # a checkpoint from before the first step may contain none
            for value in state.values():
                value.zero_()
        for i, parameter in enumerate(self.parameters):
            mine = f"{_OPTIMISER}{i}."
            found = {name.removeprefix(mine): t for name, t in tensors.items() if name.startswith(mine)}
            state = self.optimiser.state[parameter]
            for name, value in found.items():
                if name in state:  # in place, where the kernels read it
                    state[name].copy_(value)
                else:
                    state[name] = value.to(self.device, copy=True)


def _copy(sources: list[Tensor], targets: list[Tensor]) -> None:
    """Copy in place, since CUDA graphs refer to the targets' memory."""
    for source, target in zip(sources, targets, strict=True):
        target.detach().copy_(source.detach())
