"""Phrases that must not return to code, docs and messages, with replacements; see "How we write" in CONTRIBUTING.md."""

import re
import subprocess
from bisect import bisect
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CHECKED = (
    "dpmodule docs examples notebooks benchmarks tools .ci setup.py README.md CHANGELOG.md CONTRIBUTING.md"
)
ENDINGS = (".py", ".pyi", ".md", ".cpp", ".hpp", ".h", ".ipynb")
WRITTEN = ("benchmarks/RESULTS.md", "benchmarks/results_tables.md")
"""Reports that the benchmarks write from checked sources."""

ADVERB = r"(?!(?:longer|more|less|such|other|need|better|worse|faster|slower|larger|smaller|one)\b)"

PHRASES = {
    # the phrase, in lower case: what to write instead
    rf"(?<!there)(?<!where) (?:is|are|was|were|be|being) no {ADVERB}\w": "is not a",
    r"(?:go|goes|going|gone|went) on (?:with|from|where|bit|after)\b": "resume, continue",
    r"(?:is|are|was|were|be) gone on\b": "resume, continue",
    r"\b(?:broken|break|breaks|breaking|broke) off\b": "interrupted, cancelled",
    r"\bcom(?:e|es|ing) along\b": "built-in",
    r"\bfill(?:s|ed|ing)? up\b": "pad",
    r"nobody": "no caller, nothing, no one",
    r"\bor none(?: =|, which)": "may be None",
    r"\bstand(?:s|ing)? (?:behind|before|at|in|beside|there|here|together)\b": "is, is in, comes before",
    r"\bstand(?:s|ing)? (?:for|as|on)\b": "means, represents, is on",
    r"\bstood\b": "was, was in",
    r"\bbehind\b": "after, following",
    r"\banew\b": "again",
    r"in vain\b": "without effect",
    r"by (?:itself|themselves)\b": "alone, on its own, automatically",
    r"any more\b": "no longer, any longer",
    r"\b(?:lie|lies|lay|lying) (?:in|at|there|on|beside|under|within|between|outside|inside)\b": "is in, is stored in",
    r"once more\b": "again",
    r"(?:and|with) (?:its|their) kin\b": "and similar",
    r"\btold\b": "reported, distinguished, documented",
    r"\b(?:give|gives|gave|given) back\b": "return, release",
    r"\bone(?:'s own| looks| sleeps)\b": "your own",
    r"of (?:one's|no) own\b": "your own",
    r"besides?\b": "next to, in addition to, with",
    r"\bhears? (?:that|of)\b": "is called, receives",
    r"at once\b": "immediately, in one step, together",
    r"\b(?:dealt|deals?) out\b": "distribute",
    r"\bcan(?:not)? tell\b": "can report, can decide",
    r"\btells? (?:of|by|from|how|what|whether|where|which|whose|apart)\b": "reports, decides by, distinguishes",
    r"to and fro\b": "in both directions",
    r"\bsays? (?:what|how|where|whether|which|who|whose|so|of)\b": "states, returns, describes",
    r"\bsaid (?:what|how|where|by|so|of|there|twice|once)\b": "declared, described",
    r"as (?:these|those) (?:are|do|were)\b": "in the same way",
    r"who(?:ever|m)\b": "the caller",
    r'"""(?:say|tell) ': "Return",
    r'"""(?:how (?:many|much|often|long)|whether|where|which) ': "a noun first: Number of, True if, Path of",
}


def names():
    """Return the names of the files to check: those of the repository, or all of an unpacked source archive."""
    if (ROOT / ".git").exists():
        command = ["git", "ls-files", *CHECKED.split()]
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        return listed.stdout.splitlines()
    checked = [ROOT / name for name in CHECKED.split()]
    found = [path for each in checked for path in (each, *each.rglob("*")) if path.is_file()]
    return [path.relative_to(ROOT).as_posix() for path in sorted(found)]


def sources():
    """Yield names and texts of the files to check."""
    for name in names():
        if name.endswith(ENDINGS) and name not in WRITTEN and (ROOT / name).is_file():
            text = (ROOT / name).read_text(encoding="utf-8")
            yield name, without_examples(text) if name == "CONTRIBUTING.md" else text


def without_examples(text):
    """Remove the column of bad examples from the table of "How we write"."""
    begin = text.index("| instead of |")
    end = text.index("\n\n", begin)
    return text[:begin] + re.sub(r"^\| [^|]+ \|", "|", text[begin:end], flags=re.M) + text[end:]


def flat(text):
    """Return a text in lower case as one line, since phrases may wrap, and the positions of its lines there."""
    lines, starts, length = [], [], 0
    for line in text.lower().splitlines():
        line = line.strip().removeprefix("// ").removeprefix("# ").removeprefix("> ").removeprefix("- ")
        lines.append(line)
        starts.append(length)
        length += len(line) + 1
    return " ".join(lines), starts


@pytest.fixture(scope="module")
def found():
    """Lines with each phrase."""
    patterns = {phrase: re.compile(phrase) for phrase in PHRASES}
    lines = {phrase: [] for phrase in PHRASES}
    for name, source in sources():
        text, starts = flat(source)
        for phrase, pattern in patterns.items():
            for match in pattern.finditer(text):
                near = text[max(0, match.start() - 40) : match.end() + 40]
                lines[phrase].append(f"{name}:{bisect(starts, match.start())}: {near}")
    return lines


@pytest.mark.parametrize("phrase", PHRASES)
def test_a_phrase_does_not_return(found, phrase):
    assert not found[phrase], f"write: {PHRASES[phrase]}\n" + "\n".join(found[phrase])
