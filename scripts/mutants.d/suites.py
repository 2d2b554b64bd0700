"""Which tests are run for a mutant, and how: the test binaries, built once, and what each test runs."""

import atexit
import hashlib
import json
import os
import pathlib
import re
import signal
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SCRATCH = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "mutants"

# The suite of each role: package, test binary, filter. It is asked first; the others only about what survives it.
OWN = {
    "archive": [("oncebox-store-sql", "at_once_postgres", ""), ("oncebox-store-sql", "records_apart", ""), ("oncebox-store-sql", "conformance", "quarantine::"), ("oncebox", "consumer", "archive::")],
    "audit": [("oncebox-store-sql", "records_apart", ""), ("oncebox-store-sql", "audit", ""), ("oncebox-store-sql", "conformance", "quarantine::")],
    "counters": [("oncebox-store-sql", "counters", ""), ("oncebox", "counting", "")],
    "depths": [("oncebox-store-sql", "records_apart", ""), ("oncebox-store-sql", "parked_depths", ""), ("oncebox-store-sql", "conformance", "quarantine::")],
    "horizon": [("oncebox-store-sql", "at_once_postgres", ""), ("oncebox-store-sql", "records_apart", ""), ("oncebox-store-sql", "conformance", "quarantine::"), ("oncebox", "consumer", "horizon::")],
    "inbox": [("oncebox-store-sql", "records_apart", ""), ("oncebox-store-sql", "parked_apart", ""), ("oncebox-store-sql", "conformance", "inbox::"),
              ("oncebox-store-sql", "conformance", "parked::"), ("oncebox-store-sql", "inbox", "")],
    "journal": [("oncebox-store-sql", "at_once_postgres", ""), ("oncebox-store-sql", "records_apart", ""), ("oncebox-store-sql", "conformance", "quarantine::"),
                ("oncebox", "consumer", "journal::"), ("oncebox-store-sql", "journal_size", "")],
    "lanes": [("oncebox-store-sql", "at_once_postgres", ""), ("oncebox-store-sql", "queues_apart", ""), ("oncebox-store-sql", "conformance", "queue::"), ("oncebox-store-sql", "leases", "")],
    "names": [("oncebox-store-sql", "queues_apart", ""), ("oncebox-store-sql", "conformance", "inbox::"), ("oncebox-store-sql", "conformance", "queue::")],
    "offsets": [("oncebox-store-sql", "outbox_apart", ""), ("oncebox-store-sql", "conformance", "offsets::")],
    "outbox": [("oncebox-store-sql", "at_once_postgres", ""), ("oncebox-store-sql", "outbox_apart", ""), ("oncebox-store-sql", "trail", ""),
               ("oncebox-store-sql", "conformance", "outbox::"), ("oncebox-store-sql", "outbox", "")],
    "parked": [("oncebox-store-sql", "parked_apart", ""), ("oncebox-store-sql", "parked_behind_postgres", ""), ("oncebox-store-sql", "records_shared", ""), ("oncebox-store-sql", "quarantine_apart", ""),
               ("oncebox-store-sql", "conformance", "parked::"), ("oncebox-store-sql", "behind", "")],
    "quarantine": [("oncebox-store-sql", "at_once_postgres", ""), ("oncebox-store-sql", "quarantine_apart", ""), ("oncebox-store-sql", "records_shared", ""), ("oncebox-store-sql", "replays_apart", ""), ("oncebox-store-sql", "conformance", "quarantine::")],
    "queue": [("oncebox-store-sql", "queues_apart", ""), ("oncebox-store-sql", "conformance", "queue::"), ("oncebox-store-sql", "leases", "")],
    "replays": [("oncebox-store-sql", "at_once_postgres", ""), ("oncebox-store-sql", "replays_apart", ""), ("oncebox-store-sql", "conformance", "quarantine::"), ("oncebox-admin", "operations", "")],
    "schema": [("oncebox-store-sql", "migrations", "")],
    "session": [("oncebox-store-sql", "transactions_postgres", ""), ("oncebox-store-sql", "sessions_postgres", ""), ("oncebox-store-sql", "transactions_sqlite", ""),
                ("oncebox", "standby", ""), ("oncebox", "server_trouble", "")],
    "trail": [("oncebox-store-sql", "trail", ""), ("oncebox-store-sql", "trail_beyond", "")],
    "versions": [("oncebox-store-sql", "conformance", "versions::")],
}

# All binaries that have a say, in the order in which they are asked.
BINARIES = {
    "oncebox-store-sql": [
        "conformance", "archive_size", "audit", "behind", "counters", "errors", "fences", "hopeful_claims", "inbox", "insert_once",
        "journal_size", "layer0", "leases", "migrations", "outbox", "outbox_apart", "outbox_size", "parked_apart", "parked_behind_postgres", "parked_depths",
        "at_once_postgres", "plans", "previous_version", "quarantine_apart", "queues_apart", "record_size", "records_apart", "records_shared", "replays_apart", "sessions_postgres", "status_size", "trail", "trail_beyond",
        "transactions_postgres", "transactions_sqlite",
    ],
    "oncebox": ["consumer", "counting", "hot_rows", "queue_source", "retention", "server_trouble", "standby"],
    "oncebox-admin": ["operations"],
}

# Tests whose names say that they do not run statements of a dialect.
NOT_OF = {
    "postgres": re.compile(r"(^|::)(memory|sqlite)(::|$)|_on_sqlite$"),
    "sqlite": re.compile(r"(^|::)(memory|postgres)(::|$)|_on_postgres$"),
}


def build(root=ROOT, target=None, binaries=None):
    """Builds the test binaries and says where they are: {(package, name): path}."""
    wanted = {(package, name) for package, names in (binaries or BINARIES).items() for name in names}
    # The features of the whole workspace, which are those of the gate: what it has built is not built again. A copy is built
    # from the beginning, so there only what is needed.
    packages = ["--workspace"] if root == ROOT else [word for package in binaries for word in ("--package", package)]
    command = ["cargo", "test", *packages, "--all-features", "--no-run", "--message-format=json"]
    for name in sorted({name for _, name in wanted}):
        command += ["--lib"] if name == "lib" else ["--test", name]
    environment = dict(os.environ)
    if target:
        environment["CARGO_TARGET_DIR"] = str(target)
    process = subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, env=environment, text=True)
    found, errors = {}, []
    for line in process.stdout:
        if not line.startswith("{"):
            continue
        message = json.loads(line)
        if message.get("reason") == "compiler-message" and message["message"]["level"] == "error":
            errors.append(message["message"])
        if message.get("reason") != "compiler-artifact" or not message.get("executable"):
            continue
        package = re.split(r"[#/@]", message["package_id"].split("#")[0])[-1]
        package = {"core": "oncebox-core", "store-sql": "oncebox-store-sql", "admin": "oncebox-admin",
                   "testkit": "oncebox-testkit", "pipeline": "oncebox-pipeline", "cli": "oncebox-cli"}.get(package, package)
        name = "lib" if "lib" in message["target"]["kind"] else message["target"]["name"]
        if (package, name) in wanted:
            found[package, name] = message["executable"]
    return found, (errors if process.wait() else [])


def built():
    """The test binaries of this tree."""
    found, errors = build()
    if errors:
        raise SystemExit("".join(error["rendered"] for error in errors))
    SCRATCH.mkdir(parents=True, exist_ok=True)
    (SCRATCH / "binaries.json").write_text(json.dumps([[*place, path] for place, path in found.items()]))
    return found


def as_built():
    return {(package, name): path for package, name, path in json.loads((SCRATCH / "binaries.json").read_text())}


class Run:
    """How a run of some tests ended: `failed` names the first test that failed, or is None."""

    def __init__(self, failed, hung, output, seconds):
        self.failed, self.hung, self.output, self.seconds = failed, hung, output, seconds

    @property
    def passed(self):
        return self.failed is None and not self.hung


PLACE = [ROOT]  # where tests run: a test that fails may leave something behind for those who look into it
RUNNING = set()
STOPPED = threading.Event()  # nothing that fails from now on says anything


def end(group):
    """Ends a test process with all that it started."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        pass


@atexit.register
def end_all():
    for group in list(RUNNING):
        end(group)


def run(binary, package, tests, limit, extra=None, threads=4):
    """Runs tests of one binary until the first failure. What outlasts the limit is ended with all that it started."""
    folder = PLACE[0] / "crates" / package.removeprefix("oncebox-")
    environment = {**os.environ, "RUST_BACKTRACE": "0", "CARGO_MANIFEST_DIR": str(folder), **(extra or {})}
    command = [binary, "--exact", *tests, f"--test-threads={threads}", "--color=never"]
    began = time.monotonic()
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, start_new_session=True,
    )
    RUNNING.add(process.pid)
    os.set_blocking(process.stdout.fileno(), False)
    output, failed, hung, poll = b"", None, False, 0.01
    while True:
        output += process.stdout.read() or b""
        if match := re.search(rb"^test (\S+) \.\.\. FAILED", output, re.M):
            failed = match[1].decode()
            time.sleep(0.05)
            output += process.stdout.read() or b""
            break
        if process.poll() is not None:
            output += process.stdout.read() or b""
            break
        if time.monotonic() - began > limit:
            hung = True
            break
        time.sleep(poll)
        poll = min(0.1, poll * 1.3)
    end(process.pid)
    code = process.wait()
    RUNNING.discard(process.pid)
    process.stdout.close()
    if failed is None and not hung and code != 0:
        match = re.search(rb"^test (\S+) \.\.\. FAILED", output, re.M)
        failed = match[1].decode() if match else (tests[0] if len(tests) == 1 else "(the test process died)")
    return Run(failed, hung, output.decode(errors="replace"), time.monotonic() - began)


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()


def in_groups(package, name, tests):
    """Few tests at first, because most mutants fall at once; then more of them in one process."""
    ranges = ((0, 3), (3, 10), (10, 30), (30, 90), (90, len(tests)))
    return [(package, name, tests[begin:end]) for begin, end in ranges if tests[begin:end]]


def listed(binary):
    output = subprocess.run([binary, "--list"], capture_output=True, text=True, check=True).stdout
    return [line.removesuffix(": test") for line in output.splitlines() if line.endswith(": test")]


def survey(found, jobs, say, kind, is_asked):
    """What each test comes by: {(package, name): {test: {"seconds": …, "seen": […]}}}. Kept as long as a binary is the same."""
    SCRATCH.mkdir(parents=True, exist_ok=True)
    variable = "ONCEBOX_MUTANTS_SEEN" if kind == "rust" else "ONCEBOX_SQL_SEEN"
    kept = SCRATCH / f"survey-{kind}.json"
    known = json.loads(kept.read_text()) if kept.exists() else {}
    surveyed = {}
    for (package, name), binary in found.items():
        stamp = f"{binary} {os.stat(binary).st_mtime_ns}"
        entry = known.setdefault(f"{package} {name}", {"stamp": stamp, "tests": {}})
        if entry["stamp"] != stamp:
            entry.update(stamp=stamp, tests={})
        wanted = [test for test in listed(binary) if is_asked(package, name, test)]
        new = [test for test in wanted if test not in entry["tests"]]
        if new:
            say(f"looking at what {len(new)} tests of {package} {name} come by")

            def look(test, package=package, name=name, binary=binary):
                seen = SCRATCH / f"seen.{digest(package + name + test)[:24]}"
                seen.unlink(missing_ok=True)
                ran = run(binary, package, [test], 120, {variable: str(seen)})
                digests = sorted(set(seen.read_text().split())) if seen.exists() else []
                seen.unlink(missing_ok=True)
                if not ran.passed:
                    say(f"  left out, because it fails without a mutant: {name} {test}")
                return test, {"seconds": round(ran.seconds, 3), "seen": digests, "passed": ran.passed}

            with ThreadPoolExecutor(jobs) as pool:
                entry["tests"].update(pool.map(look, new))
            new_file = kept.with_suffix(".new")
            new_file.write_text(json.dumps(known))
            new_file.replace(kept)
        surveyed[package, name] = {test: entry["tests"][test] for test in wanted if entry["tests"][test]["passed"]}
    return surveyed
