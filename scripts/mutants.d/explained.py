"""The list of survivors that are known to be harmless, each with the reason.

One or more lines that name mutants (`*` stands for a word or a part of it, `**` for any text), then indented lines with a sentence. Lines that begin with # are
remarks. Names do not depend on line numbers, so an entry stays valid until its statement or expression changes.
"""

import pathlib
import re


class Explained:
    def __init__(self, path):
        self.entries = []  # (pattern as written, compiled, sentence)
        names, sentence = [], []
        for line in [*pathlib.Path(path).read_text().splitlines(), ""]:
            if line.startswith("#"):
                continue
            if line[:1].isspace() and line.strip():
                sentence.append(line.strip())
                continue
            if sentence:
                self.add(names, " ".join(sentence))
                names, sentence = [], []
            if line.strip():
                names.append(line.strip())
        if names:
            raise SystemExit(f"{path}: no sentence explains {names[0]!r}")

    def add(self, names, sentence):
        for name in names:
            parts = re.split(r"(\*\*?)", name)
            pattern = "".join({"*": "[^ ]*", "**": ".*"}.get(part) or re.escape(part) for part in parts)
            self.entries.append((name, re.compile(pattern), sentence))

    def why(self, key):
        for _, pattern, sentence in self.entries:
            if pattern.fullmatch(key):
                return sentence
        return None

    def idle(self, keys):
        """Entries about SQL that name none of these mutants."""
        keys = list(keys)
        return [
            name for name, pattern, _ in self.entries
            if not name.startswith("crates/") and not any(pattern.fullmatch(key) for key in keys)
        ]
