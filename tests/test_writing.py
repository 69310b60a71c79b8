"""Phrases that must not return to code, docs and messages, each with a replacement (see "How we write")."""

import re
import subprocess
from bisect import bisect
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PLACES = [
    "dpmodule",
    "docs",
    "examples",
    "notebooks",
    "benchmarks",
    "tools",
    ".ci",
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "setup.py",
]
ENDINGS = (".py", ".pyi", ".md", ".cpp", ".hpp", ".h", ".ipynb")
MEASURED = ("benchmarks/RESULTS.md", "benchmarks/results_tables.md")
"""Reports that benchmarks write; the sentences of their sources are checked."""

NO = r"(?!longer\b|more\b|less\b|such\b|other\b|need\b|better\b|worse\b|faster\b|slower\b|larger\b|smaller\b|one\b)"
THERE = r"(?<!there )(?<!There )(?<!where )"
PHRASES = {
    # the phrase: what to write instead
    rf"\b{THERE}(?:is|are|was|were|be|being) no {NO}\w": "is not a",
    r"\b(?:go(?:es|ing)?|gone|went) on (?:with|from|where|bit|after)\b": "resume, continue",
    r"\b(?:is|are|was|were|be) gone on\b": "resume, continue",
    r"\bbroken off\b|\bbr(?:eak|oke|eaks|eaking) off\b": "interrupted, cancelled",
    r"\bcom(?:e|es|ing) along\b": "built-in",
    r"\bfill(?:s|ed|ing)? up\b": "pad",
    r"\bnobody\b": "no caller, nothing, no one",
    r"\bor None(?: =|, which)": "may be None",
    r"\bstand(?:s|ing)? (?:behind|before|at|in|beside|there|here|together)\b|\bstood\b": "is, is in, comes before",
    r"\bstand(?:s|ing)? (?:for|as|on)\b": "means, represents, is on",
    r"\bbehind\b": "after, following",
    r"\banew\b": "again",
    r"\bin vain\b": "without effect",
    r"\bby (?:itself|themselves)\b": "alone, on its own, automatically",
    r"\bany more\b": "no longer, any longer",
    r"\bl(?:ie|ies|ay|ying) (?:in|at|there|on|beside|under|within|between|outside|inside)\b": "is in, is stored in",
    r"\bonce more\b": "again",
    r"\b(?:and|with) (?:its|their) kin\b": "and similar",
    r"\btold\b": "reported, distinguished, documented",
    r"\b(?:gives?|gave|given) back\b": "return, release",
    r"\bone'?s own\b|\bone looks\b|\bone sleeps\b": "your own",
    r"\bbesides\b": "also, in addition to",
    r"\bbeside\b": "next to, with, in addition to",
    r"\bhears? (?:that|of)\b": "is called, receives",
    r"\bat once\b": "immediately, in one step, together",
    r"\bdealt out\b|\bdeals? out\b": "distribute",
    r"\bof (?:one's|no) own\b": "your own",
    r"\bcan(?:not)? tell\b": "can report, can decide",
    r"\btells? (?:of|by|from|how|what|whether|where|which|whose|apart)\b": "reports, decides by, distinguishes",
    r"\bto and fro\b": "in both directions",
    r"\bsays? (?:what|how|where|whether|which|who|whose|so|of)\b": "states, returns, describes",
    r"\bsaid (?:what|how|where|by|so|of|there|twice|once)\b": "declared, described",
    r"\bas (?:these|those) (?:are|do|were)\b": "in the same way",
    r"\b[Ww]ho(?:ever|m)\b": "the caller",
    r'"""(?:Say|Tell) ': "Return",
    r'"""(?:How (?:many|much|often|long)|Whether|Where|Which) ': "Number of, True if, Path of: a noun first",
}

TO_DO = set(PHRASES)
"""Phrases that still occur."""

LEAD = re.compile(r"^\s*(?:#+|//+|\*|>|-)?\s*")


def sources():
    listed = subprocess.run(
        ["git", "ls-files", *PLACES], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [name for name in listed.stdout.splitlines() if name.endswith(ENDINGS) and name not in MEASURED]


def flat(text):
    """Return a text as one line, so that phrases may wrap, and where its lines begin there."""
    lines, starts, length = [], [], 0
    for line in text.splitlines():
        lines.append(LEAD.sub("", line).rstrip())
        starts.append(length)
        length += len(lines[-1]) + 1
    return " ".join(lines), starts


@pytest.fixture(scope="module")
def found():
    """Lines that hold each phrase."""
    patterns = {phrase: re.compile(phrase) for phrase in PHRASES}
    lines = {phrase: [] for phrase in PHRASES}
    for name, source in sources():
        text, starts = flat(source)
        for phrase, pattern in patterns.items():
            for match in pattern.finditer(text):
                near = text[max(0, match.start() - 30) : match.end() + 30]
                lines[phrase].append(f"{name}:{bisect(starts, match.start())}: {near}")
    return lines


@pytest.mark.parametrize("phrase", PHRASES)
def test_a_phrase_does_not_return(found, phrase):
    if phrase in TO_DO:
        return
    assert not found[phrase], f"write: {PHRASES[phrase]}\n" + "\n".join(found[phrase])


def test_nothing_is_left_to_do_that_is_done(found):
    assert {phrase for phrase in TO_DO if phrase not in PHRASES} == set()
