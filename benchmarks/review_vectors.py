"""Word vectors that know reviews: GloVe's, and beside each a second one, made of the words that stand near in amazon's.

    RRNN_DATA=… python benchmarks/review_vectors.py reviews.npz
    python benchmarks/paper_classify.py … --set vectors=reviews.npz vector_length=7 …

(Length 7 is 5 for each half of a word that has both.) No label is read, nor any text of other data sets. They are not
for amazon itself, whose test texts are among them.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rrnn.errors import DataError, RRNNError
from rrnn.tasks.data.labelled import load_dataset
from rrnn.tasks.data.vectors import cooccurrence_vectors, read_vectors


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--vectors", default="glove", help="beside which (%(default)s)")
    parser.add_argument("--width", type=int, default=200, help="of the new ones (%(default)s)")
    args = parser.parse_args()
    try:
        if args.out.suffix != ".npz" or not args.out.parent.is_dir():  # said before a minute's work
            raise DataError(f"vectors are saved as .npz in a folder that exists, not as {args.out}")
        amazon = load_dataset("amazon", cleaning="glove")
        examples = [*amazon.train, *amazon.dev, *amazon.test]
        near = cooccurrence_vectors((example.tokens for example in examples), args.width)
        both = read_vectors(args.vectors).unit().beside(near)
        both.save(args.out)
    except RRNNError as error:
        raise SystemExit(f"error: {error}") from None
    words = sum(len(example.tokens) for example in examples)
    print(f"{args.out}: {len(both)} words × {both.width}, from {words} words of {len(examples)} texts")


if __name__ == "__main__":
    main()
