"""Search over columns: exact cosine, words by BM25, and the vectors of stores that keep none."""
