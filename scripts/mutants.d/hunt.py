"""Runs mutants against tests, several at a time, and keeps what came of each."""

import collections
import json
import queue
import re
import threading
import time

import suites


class Hunt:
    """`plan(mutant)` gives the groups of tests to ask, in order: [(package, binary name, [tests])]."""

    def __init__(self, found, surveyed, server, jobs, results_path, say):
        self.found, self.surveyed, self.server = found, surveyed, server
        self.jobs, self.say, self.path = jobs, say, results_path
        self.results = json.loads(results_path.read_text()) if results_path.exists() else {}
        self.lock = threading.Lock()
        self.killers = collections.defaultdict(collections.Counter)  # {what mutants share: {(package, name, test): kills}}

    def save(self):
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps(self.results, indent=1))
        new.replace(self.path)

    def forget_survivors(self):
        self.results = {key: result for key, result in self.results.items() if result["end"] != "survived"}

    def run(self, mutants, plan, extra, stamp):
        """`extra(mutant)` gives the environment that brings the mutant to life, `stamp(mutant)` what its result rests on."""
        waiting, done = queue.Queue(), 0
        todo = [m for m in mutants if self.results.get(m.key, {}).get("stamp") != stamp(m)]
        for mutant in todo:
            waiting.put(mutant)
        if len(todo) < len(mutants):
            self.say(f"{len(mutants) - len(todo)} of {len(mutants)} mutants were judged before")
        began = time.monotonic()

        def work(worker):
            nonlocal done
            environment, used = None, 0
            while True:
                try:
                    mutant = waiting.get_nowait()
                except queue.Empty:
                    return
                if environment is None or used >= 30:
                    environment, used = self.server.environment(worker), 0
                used += 1
                groups = self.killers_first(mutant, plan(mutant))
                result = self.judge(mutant, groups, {**environment, **extra(mutant)})
                if suites.STOPPED.is_set():
                    return
                result["stamp"] = stamp(mutant)
                with self.lock:
                    done += 1
                    self.results[mutant.key] = result
                    self.save()
                    minutes = (time.monotonic() - began) / 60
                    self.say(f"{done}/{len(todo)} {minutes:.1f} min  {result['end']:9} {mutant.key}"
                             + (f"  [{result['by']}]" if result.get("by") else ""))

        threads = [threading.Thread(target=work, args=(f"w{n}",), daemon=True) for n in range(self.jobs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def killers_first(self, mutant, groups):
        """What killed a mutant next door is asked first, one at a time."""
        with self.lock:
            known = [place for place, _ in self.killers[mutant.statement].most_common(4)]
        first = [place for place in known if any(place[:2] == (p, n) and place[2] in tests for p, n, tests in groups)]
        front = [(package, name, [test]) for package, name, test in first]
        rest = [
            (package, name, [test for test in tests if (package, name, test) not in first]) for package, name, tests in groups
        ]
        return front + [group for group in rest if group[2]]

    def judge(self, mutant, groups, environment):
        began, doubtful, asked = time.monotonic(), [], 0
        for package, name, tests in groups:
            tests = list(tests)
            while tests:
                facts = self.surveyed[package, name]
                limit = 25 + 6 * sum(facts[test]["seconds"] for test in tests)
                binary = self.found[package, name]
                ran = suites.run(binary, package, tests, limit, environment)
                if ran.passed:
                    asked += len(tests)
                    break
                if ran.hung:
                    # A machine that is busy hangs too: the same tests without the mutant decide.
                    asleep = {key: value for key, value in environment.items() if not key.endswith("_MUTANT")}
                    if suites.run(binary, package, tests, limit, asleep).passed:
                        return self.end("killed", f"{name} (time limit of {limit:.0f} s)", began, asked)
                    doubtful.append(f"{name} (too slow)")
                    break
                if ran.failed not in tests:
                    return self.end("killed", f"{name} {ran.failed}", began, asked)
                if unfit := self.unfit(ran.output):
                    return self.end("unfit", unfit, began, asked)
                # Twice, because a test that fails for another reason, once in a thousand, proves nothing.
                again = suites.run(binary, package, [ran.failed], 25 + 6 * facts[ran.failed]["seconds"], environment)
                if unfit := self.unfit(again.output):
                    return self.end("unfit", unfit, began, asked)
                if not again.passed:
                    with self.lock:
                        self.killers[mutant.statement][package, name, ran.failed] += 1
                    return self.end("killed", f"{name} {ran.failed}", began, asked)
                doubtful.append(f"{name} {ran.failed}")
                tests.remove(ran.failed)
        result = self.end("survived", "", began, asked)
        if doubtful:
            result["doubtful"] = doubtful
        return result

    @staticmethod
    def end(end, by, began, asked):
        return {"end": end, "by": by, "seconds": round(time.monotonic() - began, 1), "asked": asked}

    # What a server says of a text that is no statement: such a mutant says nothing about tests.
    NO_STATEMENT = re.compile(
        r"""(?:SQLSTATE |code: ")(?:42601|42P18|42P08|42702|42P10|42803|42883|42804|42P20)"""
        r"|syntax error|ambiguous column|no such column|ON CONFLICT clause does not match|could not determine data type"
    )

    def unfit(self, output):
        found = self.NO_STATEMENT.search(output)
        return found[0] if found else None
