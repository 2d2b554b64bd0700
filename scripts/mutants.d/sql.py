"""Mutants of SQL statements: one small, well-formed change each, as edits of the text.

What is changed, one at a time:

  dropped      a conjunct of WHERE, ON or HAVING becomes true, a disjunct false; a column leaves USING or a row comparison
  negated      the condition of a CASE
  boundary     < and <=, > and >= change places; not in comparisons with the clock, where it moves an instant by a microsecond
  unlocked     FOR UPDATE and its kin, SKIP LOCKED, NOWAIT, and calls for an advisory lock
  conflict     ON CONFLICT vanishes, loses its target, or does nothing instead of an update
  unset        an assignment leaves its column as it was
  unordered    ORDER BY vanishes
  unlimited    LIMIT grows by a million

A parameter stays in the text even where it decides nothing any more: its type must be known, and it is still bound.
"""

import dataclasses
import re

TOKEN = re.compile(
    r"--[^\n]*|'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|\{schema\}|\$\d+|[A-Za-z_][A-Za-z_0-9]*|\d+(?:\.\d+)?"
    r"|::|->>|->|<=|>=|<>|!=|\|\||&&|[^\sA-Za-z0-9_]"
)
# What ends a condition at its own depth.
ENDS = {
    "where", "order", "group", "having", "limit", "offset", "for", "returning", "on", "union", "except", "intersect",
    "join", "left", "cross", "inner", "set", "window", "do", "then", "when", "else", "end",
}
LOCK = re.compile(
    r"\bfor\s+(?:no\s+key\s+update|update|key\s+share|share)(?:\s+of\s+\w+)?(\s+skip\s+locked|\s+nowait)?", re.I
)


@dataclasses.dataclass(frozen=True)
class Token:
    text: str
    start: int
    end: int
    depth: int

    @property
    def word(self):
        return self.text.lower()


@dataclasses.dataclass(frozen=True)
class Mutant:
    """`name` says what changed in words that stay the same when lines move."""

    dialect: str
    role: str
    verb: str
    name: str
    original: str
    text: str

    @property
    def statement(self):
        return f"{self.role}/{self.verb}"

    @property
    def key(self):
        return f"{self.dialect} {self.statement}: {self.name}"

    @property
    def group(self):
        return f"{self.dialect} {self.role}"


def tokens(text):
    found, depth = [], 0
    for match in TOKEN.finditer(text):
        if match[0].startswith("--"):
            continue
        if match[0] == ")":
            depth -= 1
        found.append(Token(match[0], match.start(), match.end(), depth))
        if match[0] == "(":
            depth += 1
    return found


def squeeze(text):
    return " ".join(text.split())


class Maker:
    """Makes the mutants of one statement."""

    def __init__(self, dialect, text):
        self.dialect, self.text = dialect, text
        self.tokens = tokens(text)
        self.made = []  # (name, text)

    def all(self):
        self.conditions()
        self.cases()
        self.boundaries()
        self.using()
        self.rows()
        self.locks()
        self.conflicts()
        self.assignments()
        self.orders()
        self.limits()
        names, named = {}, []
        for name, text in self.made:
            names[name] = names.get(name, 0) + 1
            named.append((name if names[name] == 1 else f"{name} #{names[name]}", text))
        return named

    def edit(self, name, start, end, new):
        self.made.append((squeeze(name), self.text[:start] + new + self.text[end:]))

    def span(self, first, last):
        """The text from token `first` to just before token `last`."""
        return self.text[self.tokens[first].start : self.tokens[last - 1].end]

    def clause_end(self, at):
        """Where the clause ends whose first token is `at`."""
        depth, cases = self.tokens[at].depth, 0
        while at < len(self.tokens):
            token = self.tokens[at]
            if token.depth < depth:
                break
            if token.depth == depth:
                if token.word == "case":
                    cases += 1
                elif cases and token.word == "end":
                    cases -= 1
                elif not cases and (token.word in ENDS or token.text == ";"):
                    break
            at += 1
        return at

    def split(self, first, last, word):
        """The parts of a condition between the given word, at its own depth."""
        depth, parts, begin, between, cases = self.tokens[first].depth, [], first, False, 0
        for at in range(first, last):
            token = self.tokens[at]
            if token.depth != depth:
                continue
            cases += {"case": 1, "end": -1}.get(token.word, 0)
            if token.word == "between":
                between = True
            elif token.word == word and not cases:
                if word == "and" and between:
                    between = False
                    continue
                parts.append((begin, at))
                begin = at + 1
        return parts + [(begin, last)]

    def conditions(self):
        for at, token in enumerate(self.tokens):
            if token.word == "on" and self.tokens[at + 1].word == "conflict":
                continue
            if token.word not in ("where", "having", "on") or self.is_index_predicate(at):
                continue
            self.condition(at + 1, self.clause_end(at + 1), top=True)

    def is_index_predicate(self, at):
        """Whether this WHERE says which partial index a conflict is about: without it there is none."""
        while at and self.tokens[at].depth == self.tokens[at - 1].depth:
            at -= 1
        close = self.tokens[at - 1] if at else None
        if close is None or close.text != ")":
            return False
        depth, back = close.depth, at - 2
        while back and self.tokens[back].depth > depth:
            back -= 1
        return back >= 2 and self.tokens[back - 1].word == "conflict"

    def condition(self, first, last, top=False):
        ors = self.split(first, last, "or")
        if len(ors) > 1:
            for begin, end in ors:
                text = self.span(begin, end)
                self.edit(f"dropped: or {text}", self.tokens[begin].start, self.tokens[end - 1].end, f"({text}) and false")
                self.within(begin, end)
            return
        for begin, end in self.split(first, last, "and"):
            text = self.span(begin, end)
            if squeeze(text).lower() == "true":
                continue
            self.edit(f"dropped: {text}", self.tokens[begin].start, self.tokens[end - 1].end, f"({text} or true)")
            self.within(begin, end)

    def within(self, begin, end):
        """A condition in brackets has parts of its own."""
        if self.tokens[begin].text == "(" and self.closing(begin) == end - 1:
            inner = (begin + 1, end - 1)
            if any(len(self.split(*inner, word)) > 1 for word in ("and", "or")):
                self.condition(*inner)
            return
        for word in ("and", "or"):
            if len(self.split(begin, end, word)) > 1:
                self.condition(begin, end)
                return

    def closing(self, at):
        depth = self.tokens[at].depth
        return next(i for i in range(at + 1, len(self.tokens)) if self.tokens[i].depth == depth)

    def cases(self):
        for at, token in enumerate(self.tokens):
            if token.word != "when":
                continue
            end = next(
                i for i in range(at + 1, len(self.tokens))
                if self.tokens[i].depth == token.depth and self.tokens[i].word == "then"
            )
            text = self.span(at + 1, end)
            self.edit(f"negated: when {text}", self.tokens[at + 1].start, self.tokens[end - 1].end, f"not ({text})")

    def boundaries(self):
        flip = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
        for at, token in enumerate(self.tokens):
            if token.text not in flip:
                continue
            right = squeeze(self.text[token.end : token.end + 30])
            if right.startswith(("(select now", "clock.now", "now")) or "now" in self.tokens[at - 1].text:
                continue
            left = self.tokens[at - 1].text
            if at > 2 and self.tokens[at - 2].text == ".":
                left = self.tokens[at - 3].text + "." + left
            self.edit(
                f"boundary: {left} {token.text} {right.split(' ')[0].rstrip(')')}", token.start, token.end, flip[token.text]
            )

    def using(self):
        for at, token in enumerate(self.tokens):
            if token.word == "using" and self.tokens[at + 1].text == "(":
                close = self.closing(at + 1)
                columns = [t for t in self.tokens[at + 2 : close] if t.text != ","]
                for column in columns if len(columns) > 1 else []:
                    rest = ", ".join(other.text for other in columns if other is not column)
                    self.edit(
                        f"dropped: using {column.text}", self.tokens[at + 1].start, self.tokens[close].end, f"({rest})"
                    )

    def list_items(self, first, last):
        """The items of a list between commas at its own depth."""
        return self.split(first, last, ",")

    def rows(self):
        """(a, b) in (select x, y …): without a and x, or without b and y."""
        for at, token in enumerate(self.tokens):
            if token.word != "in" or at == 0 or self.tokens[at - 1].text != ")":
                continue
            opening = next(
                i for i in range(at - 2, -1, -1) if self.tokens[i].depth == token.depth and self.tokens[i].text == "("
            )
            columns = self.list_items(opening + 1, at - 1)
            if len(columns) < 2 or self.tokens[at + 1].text != "(" or self.tokens[at + 2].word != "select":
                continue
            close = self.closing(at + 1)
            from_at = next(
                i for i in range(at + 3, close)
                if self.tokens[i].depth == token.depth + 1 and self.tokens[i].word == "from"
            )
            values = self.list_items(at + 3, from_at)
            for out in range(len(columns)):
                left = ", ".join(self.span(*part) for i, part in enumerate(columns) if i != out)
                right = ", ".join(self.span(*part) for i, part in enumerate(values) if i != out)
                new = (
                    f"({left}) in (select {right} "
                    + self.text[self.tokens[from_at].start : self.tokens[close].end]
                )
                self.edit(
                    f"dropped: {self.span(*columns[out])} of a row", self.tokens[opening].start, self.tokens[close].end, new
                )

    def locks(self):
        for match in LOCK.finditer(self.text):
            if not any(token.start == match.start() for token in self.tokens):
                continue  # in a comment
            self.edit(f"unlocked: {match[0]}", match.start(), match.end(), "")
            if match[1]:
                self.edit(f"unlocked: {match[1]} of {match[0]}", match.start(1), match.end(1), "")
        for token in self.tokens:
            if re.fullmatch(r"pg_advisory_xact_lock\w*", token.word):
                self.edit(f"unlocked: {token.text}", token.start, token.end, "hashint8")

    def conflicts(self):
        for at, token in enumerate(self.tokens):
            if token.word != "on" or self.tokens[at + 1].word != "conflict":
                continue
            do = next(i for i in range(at, len(self.tokens)) if self.tokens[i].word == "do")
            if self.tokens[do + 1].word == "nothing":
                self.edit("conflict: on conflict vanished", token.start, self.tokens[do + 1].end, "")
                if do > at + 2:
                    target = self.span(at + 2, do)
                    self.edit(
                        f"conflict: without target {target}", self.tokens[at + 2].start, self.tokens[do - 1].end, ""
                    )
            else:
                end = self.clause_end(do + 3)
                if end < len(self.tokens) and self.tokens[end].word == "where":
                    end = self.clause_end(end + 1)
                if not re.search(r"\$\d", self.span(do, end)):
                    name = "conflict: nothing in place of an update"
                    self.edit(name, self.tokens[do].start, self.tokens[end - 1].end, "do nothing")

    def assignments(self):
        for at, token in enumerate(self.tokens):
            if token.word != "set":
                continue
            end = self.set_end(at + 1)
            items = self.list_items(at + 1, end)
            target = self.target(at)
            for begin, last in items if len(items) > 1 else []:
                if self.tokens[begin + 1].text != "=":
                    continue
                column, value = self.tokens[begin].text, self.span(begin + 2, last)
                self.edit(
                    f"unset: {column} = {value}",
                    self.tokens[begin + 2].start,
                    self.tokens[last - 1].end,
                    f"case when true then {target}.{column} else {value} end",
                )

    def set_end(self, at):
        depth, cases = self.tokens[at].depth, 0
        while at < len(self.tokens) and self.tokens[at].depth >= depth:
            token = self.tokens[at]
            if token.depth == depth:
                cases += {"case": 1, "end": -1}.get(token.word, 0)
                if not cases and token.word in ("from", "where", "returning", "on"):
                    break
            at += 1
        return at

    def target(self, at):
        """What the row that SET changes is called."""
        depth = self.tokens[at].depth
        for back in range(at - 1, -1, -1):
            if self.tokens[back].depth != depth or self.tokens[back].word not in ("update", "into"):
                continue
            if self.tokens[back].word == "update" and self.tokens[back - 1].word == "do":
                continue
            name = back + 1
            if self.tokens[name + 1].text == ".":
                name += 2
            if self.tokens[name + 1].word == "as":
                name += 2
            return self.tokens[name].text
        raise ValueError("SET without UPDATE or INSERT")

    def orders(self):
        for at, token in enumerate(self.tokens):
            if token.word == "order" and self.tokens[at + 1].word == "by":
                end = self.clause_end(at + 2)
                text = self.span(at, end)
                if "$" not in text:
                    self.edit(f"unordered: {text}", token.start, self.tokens[end - 1].end, "")

    def limits(self):
        for at, token in enumerate(self.tokens):
            if token.word != "limit":
                continue
            end = self.clause_end(at + 1)
            text = self.span(at + 1, end)
            cast = "::int8" if self.dialect == "postgres" else ""
            self.edit(
                f"unlimited: limit {text}",
                self.tokens[at + 1].start, self.tokens[end - 1].end, f"(({text}){cast} + 1000000)",
            )


def mutants(folder, dialects, only):
    """All mutants of the statements in `folder`, by dialect, role and verb."""
    for dialect in dialects:
        for path in sorted((folder / dialect).glob("*/*.sql")):
            role, verb = path.parent.name, path.stem
            if only and role not in only and f"{role}/{verb}" not in only:
                continue
            original = path.read_text()
            for name, text in Maker(dialect, original).all():
                yield Mutant(dialect, role, verb, name, original, text)
