"""Text from a language model, word by word, through `step`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from rrnn.errors import RunError
from rrnn.tasks.lm.model import LanguageModel


def generate(
    model: LanguageModel,
    prompt: Sequence[int] = (),
    *,
    length: int | None = None,
    temperature: float = 1.0,
    top_k: int | None = None,
    seed: int | None = None,
    forbidden: Sequence[int] = (),
) -> Iterator[int]:
    """Words drawn one after another, `length` of them (None: without end), after the start symbol and the prompt.

    `temperature` divides the scores: below 1 likely words become likelier, 0 always takes the likeliest. `top_k` draws
    among the k likeliest. The start symbol and `forbidden` words (as <unk>) never come. A seed gives the same words
    again.
    """
    if not (temperature >= 0 and math.isfinite(temperature)):
        raise RunError(f"temperature is a number from 0 on; got {temperature}")
    if top_k is not None and top_k < 1:
        raise RunError(f"top_k is 1 at least, or left out; got {top_k}")
    if seed is not None and not -(2**63) <= seed < 2**64:
        raise RunError(f"a seed is a whole number of at most 64 bits; got {seed}")
    wrong = [word for word in prompt if not 0 <= word < model.vocabulary]
    if wrong:
        raise RunError(f"a word's number is below {model.vocabulary}, the vocabulary's size; got {wrong[0]}")
    never = sorted({model.start, *forbidden})
    if len(never) >= model.vocabulary:
        raise RunError("every word is forbidden, so there is none to draw")
    return _draw(model, prompt, length, temperature, top_k, seed, never)


def _draw(
    model: LanguageModel,
    prompt: Sequence[int],
    length: int | None,
    temperature: float,
    top_k: int | None,
    seed: int | None,
    never: list[int],
) -> Iterator[int]:
    device = model.embedding.device
    generator = torch.Generator(device)
    generator.seed() if seed is None else generator.manual_seed(seed)
    model.eval()
    with torch.inference_mode():
        scores, state = model.step(torch.tensor([model.start], device=device))
        for word in prompt:
            scores, state = model.step(torch.tensor([word], device=device), state)
    done = 0
    while length is None or done < length:
        with torch.inference_mode():
            scores[0, never] = -math.inf
            word = choose(scores[0], temperature, top_k, generator)
        yield word
        with torch.inference_mode():
            scores, state = model.step(torch.tensor([word], device=device), state)
        done += 1


def choose(scores: Tensor, temperature: float, top_k: int | None, generator: torch.Generator) -> int:
    """One word by its score."""
    if temperature == 0:
        return int(scores.argmax())
    if top_k is not None and top_k < len(scores):
        best, words = scores.topk(top_k)
    else:
        best, words = scores, None
    drawn = int(torch.multinomial((best.double() / temperature).softmax(-1), 1, generator=generator))
    return drawn if words is None else int(words[drawn])
