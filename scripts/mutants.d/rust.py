"""Mutants of Rust: a copy of the workspace whose sources hold a sample of them, built once; a number wakes one."""

import dataclasses
import json
import subprocess

import suites

# Where something is decided.
FOLDERS = ["crates/oncebox/src/consumer", "crates/oncebox/src/relay", "crates/core/src", "crates/store-sql/src"]

# Tests of a crate are asked first about its own mutants.
BINARIES = {
    "oncebox-core": ["lib"],
    "oncebox-testkit": ["memory"],
    "oncebox": ["lib", "consumer", "counting", "queue_source", "retention", "server_trouble", "standby"],
    "oncebox-store-sql": [
        "lib", "conformance", "at_once_postgres", "audit", "behind", "counters", "errors", "fences", "hopeful_claims", "inbox",
        "insert_once", "layer0", "leases", "migrations", "outbox", "outbox_apart", "parked_apart", "parked_behind_postgres", "parked_depths",
        "previous_version", "quarantine_apart", "queues_apart", "records_apart", "records_shared", "replays_apart", "sessions_postgres", "trail", "trail_beyond",
        "transactions_postgres", "transactions_sqlite",
    ],
    "oncebox-admin": ["operations"],
}


@dataclasses.dataclass(frozen=True)
class Mutant:
    id: int
    key: str
    file: str
    line: int

    @property
    def statement(self):
        """What a neighbour shares with it: the function."""
        return self.key.split(":")[0]

    @property
    def group(self):
        """The crate, and in the library the folder."""
        parts = self.file.split("/")
        return f"{parts[1]} {parts[3]}" if parts[1] == "oncebox" else parts[1]


def copy_tree(copy):
    """The files that git knows or would take; what hasn't changed keeps its time, so that cargo doesn't build it again."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=suites.ROOT, capture_output=True, check=True,
    ).stdout.decode().split("\0")
    kept = set()
    for name in filter(None, listed):
        source, target = suites.ROOT / name, copy / name
        if not source.is_file():
            continue
        kept.add(name)
        if any(name.startswith(folder + "/") for folder in FOLDERS) and name.endswith(".rs") and target.exists():
            continue  # the rewriting decides whether it changes
        data = source.read_bytes()
        if not target.exists() or target.read_bytes() != data:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
            target.chmod(source.stat().st_mode)
    for path in (copy / "crates").rglob("*.rs"):
        if str(path.relative_to(copy)) not in kept:
            path.unlink()


def prepared(seed, sample, say):
    """Builds a sample of mutants: (mutants, {(package, name): binary}). What does not compile is left out and counted."""
    copy = suites.SCRATCH / "tree"
    copy.mkdir(parents=True, exist_ok=True)
    copy_tree(copy)
    suites.PLACE[0] = copy
    subprocess.run(["cargo", "build", "--quiet", "--package", "oncebox-mutants"], cwd=suites.ROOT, check=True)
    # A folder of its own: cargo gives the files of the copy the names of the original's.
    target = suites.SCRATCH / "target"
    without = set()
    while True:
        command = [
            str(suites.SCRATCH.parent / "debug/oncebox-mutants"), str(suites.ROOT), str(copy),
            "--seed", str(seed), "--sample", str(sample), "--without", ",".join(map(str, sorted(without))), *FOLDERS,
        ]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
        say(told[0])
        mutants = json.loads(told[-1])
        found, errors = suites.build(copy, target, BINARIES)
        if not errors:
            return [Mutant(m["id"], m["key"], m["file"], m["line"]) for m in mutants], found, without
        guilty = set()
        for error in errors:
            for span in error["spans"]:
                guilty |= blamed(span, mutants)
        guilty -= without
        if not guilty:
            for error in errors:
                print(error["rendered"])
            raise SystemExit("scripts/mutants: the copy does not compile, and no mutant is to blame")
        say(f"{len(guilty)} mutants do not compile and are left out")
        without |= guilty


def blamed(span, mutants):
    """The mutants that a compiler's error lies in: the narrowest, if there is one."""
    name = span["file_name"]
    name = name[name.find("crates/"):]
    inside = [
        m for m in mutants
        if m["file"] == name and m["bytes"]["start"] <= span["byte_start"] and span["byte_end"] <= m["bytes"]["end"]
    ]
    if not inside:
        inside = [
            m for m in mutants
            if m["file"] == name and m["bytes"]["start"] < span["byte_end"] and span["byte_start"] < m["bytes"]["end"]
        ]
    if not inside:
        return set()
    width = min(m["bytes"]["end"] - m["bytes"]["start"] for m in inside)
    return {m["id"] for m in inside if m["bytes"]["end"] - m["bytes"]["start"] == width}


def package_of(file):
    crate = file.split("/")[1]
    return "oncebox" if crate == "oncebox" else f"oncebox-{crate}"


def reached(mutant, surveyed):
    """The tests that come by the mutant: those of its own crate first, quick ones first."""
    groups = []
    own = package_of(mutant.file)
    for (package, name), tests in sorted(surveyed.items(), key=lambda item: item[0][0] != own):
        quick = sorted((facts["seconds"], test) for test, facts in tests.items() if str(mutant.id) in facts["seen"])
        groups += suites.in_groups(package, name, [test for _, test in quick])
    return groups


