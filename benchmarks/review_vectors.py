"""Word vectors that know reviews: GloVe's, and beside each one of the words that stand near it in amazon's reviews.

    RRNN_DATA=… python benchmarks/review_vectors.py reviews.npz
    python benchmarks/paper_classify.py … --set vectors=reviews.npz vector_length=7 …

No label is read, and nothing but sst's training texts of the data that are then classified: for amazon itself its test
texts would have to be left out.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rrnn.errors import RRNNError
from rrnn.tasks.data.cooccurrence import cooccurrence_vectors
from rrnn.tasks.data.labelled import load_dataset
from rrnn.tasks.data.vectors import read_vectors


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--vectors", default="glove", help="beside which (%(default)s)")
    parser.add_argument("--width", type=int, default=100, help="of the new ones (%(default)s)")
    args = parser.parse_args()
    try:
        amazon, sst = (load_dataset(name, cleaning="glove") for name in ("amazon", "sst"))
        examples = [*amazon.train, *amazon.dev, *amazon.test, *sst.train]
        near = cooccurrence_vectors((example.tokens for example in examples), args.width)
        both = read_vectors(args.vectors).unit().beside(near)
        both.save(args.out)
    except RRNNError as error:
        raise SystemExit(f"error: {error}") from None
    words = sum(len(example.tokens) for example in examples)
    print(f"{args.out}: {len(both)} words × {both.width}, from {words} words of {len(examples)} texts")


if __name__ == "__main__":
    main()
