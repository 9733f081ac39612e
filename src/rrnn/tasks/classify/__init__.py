"""Text classifiers of any cell: the paper's section on text classification and its appendix."""
