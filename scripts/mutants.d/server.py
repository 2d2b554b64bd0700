"""A PostgreSQL server for mutants alone: tests leave thousands of schemas behind, and mutants leave tests in the middle."""

import os
import pathlib
import shutil
import subprocess
import tempfile

from suites import ROOT


class Server:
    """Lives in memory where it can; each worker has a database of its own, made anew from time to time."""

    def __init__(self):
        memory = pathlib.Path("/dev/shm")
        self.folder = pathlib.Path(
            tempfile.mkdtemp(prefix="oncebox-mutants.", dir=memory if os.access(memory, os.W_OK) else None)
        )
        self.folder.chmod(0o755)
        (self.folder / "files").mkdir()
        self.url = None

    def start(self):
        started = subprocess.run(
            [ROOT / "scripts/postgres", "start", self.folder / "server"], capture_output=True, text=True, check=False
        )
        if started.returncode:
            raise SystemExit(f"scripts/mutants: no PostgreSQL server: {started.stderr.strip()}")
        self.url = started.stdout.strip()
        # Nothing here lives long enough to be vacuumed.
        self.ask("alter system set autovacuum = off")
        self.ask("select pg_reload_conf()")

    def ask(self, statement):
        psql = shutil.which("psql") or max(pathlib.Path("/usr/lib/postgresql").glob("*/bin/psql"))
        subprocess.run(
            [psql, self.url, "-q", "-v", "ON_ERROR_STOP=1", "-c", statement], capture_output=True, text=True, check=True
        )

    def environment(self, worker):
        """What tests of this worker are given, with a new database and a new folder for files."""
        files = self.folder / "files" / worker
        shutil.rmtree(files, ignore_errors=True)
        files.mkdir()
        given = {"TMPDIR": str(files)}
        if self.url:
            self.ask(f"drop database if exists {worker} with (force)")
            self.ask(f"create database {worker}")
            given["ONCEBOX_TEST_POSTGRES_URL"] = self.url.removesuffix("postgres") + worker
            given["ONCEBOX_TEST_POSTGRES_DIR"] = str(self.folder / "server")
        return given

    def stop(self):
        if (self.folder / "server").exists():
            subprocess.run([ROOT / "scripts/postgres", "stop", self.folder / "server"], capture_output=True, check=False)
        shutil.rmtree(self.folder, ignore_errors=True)
