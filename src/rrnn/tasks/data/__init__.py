"""Where texts come from: corpora, labelled texts, word vectors, downloads."""
