"""Data: corpora, labelled texts, word vectors and vocabularies, and where to download them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rrnn.tasks import export_lazily

if TYPE_CHECKING:
    from rrnn.tasks.data.corpus import Corpus as Corpus
    from rrnn.tasks.data.corpus import load_corpus as load_corpus
    from rrnn.tasks.data.labelled import Dataset as Dataset
    from rrnn.tasks.data.labelled import Example as Example
    from rrnn.tasks.data.labelled import load_dataset as load_dataset
    from rrnn.tasks.data.synthetic import SyntheticTask as SyntheticTask
    from rrnn.tasks.data.synthetic import get_task as get_task
    from rrnn.tasks.data.text_files import tokenise as tokenise
    from rrnn.tasks.data.vectors import Vectors as Vectors
    from rrnn.tasks.data.vectors import cooccurrence_vectors as cooccurrence_vectors
    from rrnn.tasks.data.vectors import read_vectors as read_vectors
    from rrnn.tasks.vocabulary import Vocabulary as Vocabulary

_EXPORTS = {
    "Corpus": "data.corpus",
    "load_corpus": "data.corpus",
    "Dataset": "data.labelled",
    "Example": "data.labelled",
    "load_dataset": "data.labelled",
    "SyntheticTask": "data.synthetic",
    "get_task": "data.synthetic",
    "tokenise": "data.text_files",
    "Vectors": "data.vectors",
    "cooccurrence_vectors": "data.vectors",
    "read_vectors": "data.vectors",
    "Vocabulary": "vocabulary",
}

export_lazily(__name__, _EXPORTS)
