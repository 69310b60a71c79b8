"""The parts of the site that Sphinx itself does not check; they are imported without it."""

import importlib
import re
import sys
import types
from pathlib import Path

import pytest

import dpmodule as mx
from helpers.walk import walks

DOCS = Path(__file__).parents[1] / "docs"
sys.path.insert(0, str(DOCS / "extensions"))
import docstrings  # noqa: E402 (found by the line above)
import public  # noqa: E402
import redirects  # noqa: E402

sys.path.remove(str(DOCS / "extensions"))

BESIDE = ("dpmodule.agents", "dpmodule.autobatch", "dpmodule.params", "dpmodule.types")
"""Public modules that are not attributes of the package until they are imported."""

WITHOUT_NAMES = {"dpmodule.contrib", "dpmodule.mode"}
"""Modules of the package that have no public name of their own: a page of another has what is in them."""


def test_every_public_module_has_a_place_in_the_reference():
    listed = {importlib.import_module(name).__name__ for name in public.listed_modules()}
    shown = (getattr(mx, name) for name in mx.__all__)
    wanted = {each.__name__ for each in shown if isinstance(each, types.ModuleType)}
    assert {*wanted, *BESIDE} - listed == WITHOUT_NAMES


def test_no_module_is_listed_twice():
    listed = public.listed_modules()
    assert sorted(set(listed)) == sorted(listed)


@walks(public.listed_modules(), family=lambda name: name[len("dpmodule.")])
def test_every_public_name_has_one_entry(module):
    lines = list(public.entries(module))
    entries = [line.split()[2] for line in lines if line.startswith((".. auto", ".. py:data"))]
    names = public.public_names(importlib.import_module(module))
    assert sorted(entries) == sorted([module, *(f"{module}.{name}" for name in names)])


def test_what_two_modules_show_is_described_where_it_is_made():
    assert ".. autoclass:: dpmodule.base.MXNetError" in public.entries("dpmodule.base")
    assert "   The same as :py:obj:`dpmodule.base.MXNetError`." in public.entries("dpmodule.error")


def test_operators_have_pages_of_their_own():
    assert not {"FullyConnected", "dot"} & {*public.public_names(mx.nd), *public.public_names(mx.sym)}
    assert {"NDArray", "zeros", "load"} <= {*public.public_names(mx.nd)}
    assert any("argmax(*inputs, **attributes)" in line for line in public.entries("dpmodule.ndarray"))


def test_stars_and_bars_are_text_but_in_code():
    lines = ["(*d), |x|, `*args`", ">>> 2 * 3", "6 * 1", "", "(*d)"]
    assert [*docstrings.escaped(lines)] == ["(\\*d), \\|x\\|, `*args`", ">>> 2 * 3", "6 * 1", "", "(\\*d)"]


def test_redirects_are_read():
    redirects.read(DOCS / "redirects.txt")


@pytest.mark.parametrize("line", ["a.html", "a.html b.html c.html", "old.html b.html"])
def test_a_bad_redirect_is_an_error_with_its_line(tmp_path, line):
    file = tmp_path / "redirects.txt"
    file.write_text(f"# moved\nold.html new.html  # why\n{line}\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"redirects\.txt:3: expected an old and a new page"):
        redirects.read(file)


def test_redirects_are_pairs(tmp_path):
    file = tmp_path / "redirects.txt"
    file.write_text("# moved\n\nold.html new.html  # why\n", encoding="utf-8")
    assert redirects.read(file) == {"old.html": "new.html"}


INSTALLED = {"dpmodule/functor.h"}
"""What pages name as a compiler finds it."""

TERMS = re.findall(r"^## (.*)$", (DOCS / "glossary.md").read_text(encoding="utf-8"), re.MULTILINE)
START = sorted((DOCS / "start").glob("*.md"))
OF_ART = """
    activation, adagrad, agent, annealing, attention, augmentation, automatic batching, autograd, backend,
    backpropagation, backward, bag of words, batch, batch norm, beam, bias, bucket, callback, checkpoint,
    clipping, context, convolution, coroutine, cross-entropy, dataloader, decoder, descriptor, device, dialogue,
    distillation, dropout, embedding, encoder, engine, entropy, episode, epoch, event loop, executor, feature,
    fine-tuning, forward, freezing, functor, gradient, graph, hidden state, hogwild, hyperparameter, inference,
    initializer, iterator, kernel, key-value store, kvstore, label, language model, layer, learning rate, logit,
    loss, lstm, mask, metric, mini-batch, minibatch, mixed precision, module, momentum, monitor, multislot,
    node, normalization, one-hot, onnx runtime, operator, optimizer, overfitting, padding, parameter, parley,
    perplexity, pipeline, pooling, prefetching, quantization, ragged value, record file, recordio,
    regularization, reward, rollout, safetensors, schedule, seed, shard, slot, softmax, sparse, storage type,
    symbol, teacher, tensor, token, trainer, transducer, trie, unrolling, validation set, vocabulary, weight,
    weight decay, worker, world, zero-copy
"""
"""What newcomers may not know, whether a page has it yet or not; a page that uses a word has it explained."""


def blank(text, pattern):
    """Return a text with what fits replaced by blanks, so that lines and places stay."""
    return re.sub(
        pattern, lambda found: re.sub(r"[^\n]", " ", found[0]), text, flags=re.DOTALL | re.MULTILINE
    )


def prose_of(page):
    return blank(page.read_text(encoding="utf-8"), r"```.*?```|`[^`]*`|^#[^\n]*$")


def first_use(term, prose):
    spaced = re.escape(term).replace(r"\ ", r"\s+")
    return re.search(rf"\b{spaced}(?:s|es)?\b", prose, re.IGNORECASE)


def asked_for(page, term, prose, place, what):
    return f"docs/start/{page.name}:{prose.count(chr(10), 0, place) + 1}: {term!r}: {what}"


@pytest.mark.parametrize("page", START, ids=lambda page: page.stem)
def test_start_pages_link_each_term_where_they_first_use_it(page):
    unlinked, prose = [], prose_of(page)
    for term in TERMS:
        link = f"](../glossary.md#{term.lower().replace(' ', '-')})"
        own = blank(prose, rf"\[[^\]]*\]\((?!{re.escape(link[2:])})[^)]*\)")
        first = first_use(term, own)
        if first and not own[first.end() :].startswith((link, f"*{link}")):
            unlinked.append(asked_for(page, term, own, first.start(), f"link its first use by [...{link}"))
    assert not unlinked, "\n".join(unlinked)


@pytest.mark.parametrize("page", START, ids=lambda page: page.stem)
def test_terms_of_art_of_start_pages_are_in_the_glossary(page):
    prose, known = blank(prose_of(page), r"\]\([^)]*\)"), {term.lower() for term in TERMS}
    unknown = [
        asked_for(page, term, prose, found.start(), "enter it in docs/glossary.md, or use a plain word")
        for term in (" ".join(each.split()) for each in OF_ART.split(","))
        if term not in known and (found := first_use(term, prose))
    ]
    assert not unknown, "\n".join(unknown)


def test_the_glossary_has_what_start_pages_use_and_nothing_else():
    text = (DOCS / "glossary.md").read_text(encoding="utf-8")
    entries = dict(re.findall(r"^## (.*)\n\n((?:(?!## ).*\n?)+)", text, re.MULTILINE))
    links = set(re.findall(r"\]\((?:\.\./glossary\.md)?#([\w-]+)\)", text + "".join(map(prose_of, START))))
    assert sorted(entries, key=str.lower) == [*entries] == TERMS
    assert {term.lower().replace(" ", "-") for term in entries} == links
    assert [term for term, text in entries.items() if len(text.split()) < 5] == []


def test_files_that_pages_name_exist():
    root = DOCS.parent
    pages = [root / "README.md", root / "CONTRIBUTING.md", *DOCS.glob("*.md"), *DOCS.glob("[gims]*/*.md")]
    start = r"(?:\.ci|benchmarks|docs|dpmodule|examples|notebooks|tests)/"
    missing = [
        f"{page.relative_to(root)}: {name}"
        for page in pages
        for name in re.findall(rf"`({start}[\w./-]+)`", page.read_text(encoding="utf-8"))
        if name not in INSTALLED and not (root / name).exists()
    ]
    assert missing == []


def test_files_that_the_architecture_names_exist():
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([\w/]+\.(?:py|cfg|cpp|hpp))`", text))
    places = (DOCS.parent, DOCS.parent / "dpmodule")
    assert {name for name in named if not any((place / name).exists() for place in places)} == set()
