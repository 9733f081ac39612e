"""The papers of the zoo: title, where it appeared, and its number on arXiv where it has one."""

REFERENCES: dict[str, str] = {
    "Peng et al. 2018": "Rational Recurrences. EMNLP 2018, arXiv:1808.09357",
    "Lei et al. 2017, version 1": "Training RNNs as Fast as CNNs. arXiv:1709.02755v1",
    "Lei et al. 2018, version 2": (
        "Simple Recurrent Units for Highly Parallelizable Recurrence. EMNLP 2018, arXiv:1709.02755"
    ),
    "Lei et al. 2015, 2016": (
        "Molding CNNs for text: non-linear, non-consecutive convolutions. EMNLP 2015, arXiv:1508.04112; "
        "Semi-supervised Question Retrieval with Gated Convolutions. NAACL 2016, arXiv:1512.05726"
    ),
    "Mikolov et al. 2015": "Learning Longer Memory in Recurrent Neural Networks. ICLR 2015 workshop, arXiv:1412.7753",
    "Balduzzi and Ghifary 2016": "Strongly-Typed Recurrent Neural Networks. ICML 2016, arXiv:1602.02218",
    "Bradbury et al. 2017": "Quasi-Recurrent Neural Networks. ICLR 2017, arXiv:1611.01576",
    "Schwartz et al. 2018": (
        "SoPa: Bridging CNNs, RNNs, and Weighted Finite-State Machines. ACL 2018, arXiv:1805.06061"
    ),
    "Kim 2014": "Convolutional Neural Networks for Sentence Classification. EMNLP 2014, arXiv:1408.5882",
    "Feng et al. 2024": "Were RNNs All We Needed? arXiv:2410.01201",
    "Qin et al. 2023": (
        "Hierarchically Gated Recurrent Neural Network for Sequence Modeling. NeurIPS 2023, arXiv:2311.04823"
    ),
    "Katharopoulos et al. 2020": (
        "Transformers are RNNs: Fast Autoregressive Transformers with Linear Attention. ICML 2020, arXiv:2006.16236"
    ),
    "Sun et al. 2023": (
        "Retentive Network: A Successor to Transformer for Large Language Models. arXiv:2307.08621"
    ),
    "Yang et al. 2024": (
        "Gated Linear Attention Transformers with Hardware-Efficient Training. ICML 2024, arXiv:2312.06635"
    ),
    "Qin et al. 2024": "HGRN2: Gated Linear RNNs with State Expansion. COLM 2024, arXiv:2404.07904",
    "Gu and Dao 2023": (
        "Mamba: Linear-Time Sequence Modeling with Selective State Spaces. COLM 2024, arXiv:2312.00752"
    ),
    "Dao and Gu 2024": (
        "Transformers are SSMs: Generalized Models and Efficient Algorithms Through Structured State Space Duality. "
        "ICML 2024, arXiv:2405.21060"
    ),
    "Gu et al. 2022": (
        "On the Parameterization and Initialization of Diagonal State Space Models. NeurIPS 2022, arXiv:2206.11893"
    ),
    "Orvieto et al. 2023": (
        "Resurrecting Recurrent Neural Networks for Long Sequences. ICML 2023, arXiv:2303.06349"
    ),
    "gates of Grazzi et al. 2025": (
        "Unlocking State-Tracking in Linear RNNs Through Negative Eigenvalues. arXiv:2411.12537"
    ),
    "Lahoti et al. 2026": "Mamba-3: Improved Sequence Modeling using State Space Principles. ICLR 2026",
    "Peng et al. 2024": "Eagle and Finch: RWKV with Matrix-Valued States and Dynamic Recurrence. arXiv:2404.05892",
    "De et al. 2024": (
        "Griffin: Mixing Gated Linear Recurrences with Local Attention for Efficient Language Models. arXiv:2402.19427"
    ),
    "Schlag et al. 2021": "Linear Transformers Are Secretly Fast Weight Programmers. ICML 2021, arXiv:2102.11174",
    "Yang et al. 2025": "Gated Delta Networks: Improving Mamba2 with Delta Rule. ICLR 2025, arXiv:2412.06464",
    "Foerster et al. 2017": (
        "Input Switched Affine Networks: An RNN Architecture Designed for Interpretability. ICML 2017, arXiv:1611.09434"
    ),
    "Elman 1990": "Finding Structure in Time. Cognitive Science 14(2)",
    "Elman 1990, without tanh": "Finding Structure in Time. Cognitive Science 14(2)",
    "Hochreiter and Schmidhuber 1997": "Long Short-Term Memory. Neural Computation 9(8)",
    "Cho et al. 2014": (
        "Learning Phrase Representations using RNN Encoder-Decoder for Statistical Machine Translation. EMNLP 2014, "
        "arXiv:1406.1078"
    ),
}
"""How `Model.paper` names a paper → its title and where it appeared."""
