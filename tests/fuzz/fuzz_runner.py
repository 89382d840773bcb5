"""Runs cases in worker processes with limits of time and memory, and makes one table of all."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import re
import resource
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path

from fuzz_case import Outcome, try_case

_CONTEXT = multiprocessing.get_context("fork")  # TVM is imported once
_CASES = 100  # of one worker: what it has kept in memory then goes with it


@dataclass(frozen=True)
class Limits:
    """Of a case: seconds of processor time and by the clock, bytes of address space."""

    cpu: int = 90
    clock: int = 300
    memory: int = 6 << 30


@dataclass
class Found:
    """A finding: the first case that has it, and how many do."""

    name: str
    seed: int
    outcome: Outcome
    count: int = 1

    def __str__(self) -> str:
        return f"{self.name} --seed {self.seed}: {self.outcome.kind}: {self.outcome.what} ({self.count} x)"


@dataclass
class Report:
    """What was tried, and every finding once."""

    tried: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    outside: Counter[tuple[str, str]] = field(default_factory=Counter)
    tallies: dict[str, Counter[str]] = field(default_factory=dict)
    findings: dict[tuple[str, str, str], Found] = field(default_factory=dict)
    slowest: dict[str, tuple[float, int]] = field(default_factory=dict)

    def took(self, name: str, seed: int, seconds: float) -> None:
        """How long a case took."""
        self.slowest[name] = max(self.slowest.get(name, (0.0, 0)), (seconds, seed))

    def add(self, name: str, seed: int, outcome: Outcome) -> list[Found]:
        """Count a case; its findings that are new."""
        self.tried[name] += 1
        self.tallies.setdefault(name, Counter()).update(outcome.tally)
        new = []
        for one in (outcome, *outcome.others):
            if one.kind == "outside":
                self.outside[name, one.what] += 1
            elif one.kind:
                self.failed[name] += 1
                key = (name, one.kind, one.what)
                if key in self.findings:
                    self.findings[key].count += 1
                else:
                    new.append(self.findings.setdefault(key, Found(name, seed, one)))
        return new

    def __str__(self) -> str:
        titles = ("class", "cases", "exact", "built", "refused", "TVM crashed", "failed", "findings")
        rows = [titles]
        for name in self.tried:
            tally = self.tallies[name]
            findings = sum(found.name == name for found in self.findings.values())
            crashed = sum(count for (own, _), count in self.outside.items() if own == name)
            numbers = tally["exact"], tally["built"], tally["refused"], crashed, self.failed[name], findings
            rows.append((name, *map(str, (self.tried[name], *numbers))))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(
                cell.ljust(width) if not at else cell.rjust(width)
                for at, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            for row in rows
        ]
        return "\n".join([*lines, *map(str, self.findings.values())])


class _Worker:
    """A process that tries cases of one class, one at a time."""

    def __init__(self, name: str, limits: Limits, directory: Path) -> None:
        self.name, self.cases, self.seed, self.stage = name, 0, 0, ""
        self.directory = Path(tempfile.mkdtemp(dir=directory))
        self.pipe, theirs = _CONTEXT.Pipe()
        self.process = _CONTEXT.Process(target=_work, args=(name, theirs, self.pipe, limits, self.directory))
        self.process.start()
        theirs.close()

    def start(self, seed: int) -> None:
        self.seed, self.stage, self.cases, self.began = seed, "", self.cases + 1, time.monotonic()
        self.pipe.send(seed)

    def read(self) -> Outcome | None:
        """The outcome of the case; None while it runs. A worker that died is one."""
        try:
            said = self.pipe.recv()
        except (EOFError, ConnectionResetError):
            self.process.join()
            died = self._died()
            self.end()
            return died
        if isinstance(said, str):
            self.stage = said
            return None
        return said

    def _died(self) -> Outcome:
        code = self.process.exitcode or 0
        log = (self.directory / "log").read_text(errors="replace")
        stack = log[log.rfind("(most recent call first)") :]
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        kind = {"SIGXCPU": "timeout", "SIGALRM": "timeout", "SIGKILL": "memory"}.get(how, "crash")
        frames = re.findall(r'File "[^"]*?([^"/]+)", line \d+ in (\w+)', stack)
        noted = re.findall(r"^# (.+)$", log, re.MULTILINE)
        where = " in ".join([how, *map(":".join, frames[:1]), *noted[-1:]])
        if self.stage:
            return Outcome({}, "outside", f"{where} in {self.stage}")
        return Outcome({}, kind, where, log[-8000:])

    def end(self) -> None:
        self.pipe.close()
        self.process.kill()
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)  # its compilers and programs
        self.process.join()


def _work(name: str, pipe: Connection, parents: Connection, limits: Limits, directory: Path) -> None:
    parents.close()
    os.setsid()
    log = os.open(directory / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    faulthandler.enable(file=log)
    for number in (signal.SIGXCPU, signal.SIGALRM):
        faulthandler.register(number, file=log, chain=True)  # where it was, and then the end
    tempfile.tempdir = str(directory)
    os.environ["TMPDIR"] = str(directory)
    os.chdir(directory)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (limits.memory, limits.memory))
    while True:
        try:
            seed = pipe.recv()
        except EOFError:
            os._exit(0)
        os.truncate(directory / "log", 0)
        used = resource.getrusage(resource.RUSAGE_SELF)
        hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
        resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + limits.cpu, hard))
        signal.alarm(limits.clock)
        pipe.send(try_case(name, seed, pipe.send))
        signal.alarm(0)


def fuzz(
    classes: Sequence[str],
    *,
    seed: int,
    jobs: int,
    seconds: float,
    cases: int | None = None,
    limits: Limits = Limits(),
    say: Callable[[str], None] = print,
) -> Report:
    """Try cases of all classes, seeds from `seed` on, as long as `seconds` last; or `cases` of each class."""
    report, began = Report(), time.monotonic()
    spent = dict.fromkeys(classes, 0.0)
    next_seed = dict.fromkeys(classes, seed)
    idle: dict[str, list[_Worker]] = {name: [] for name in classes}
    busy: dict[Connection, _Worker] = {}
    directory = Path(tempfile.mkdtemp(prefix="fuzz_"))
    try:
        while True:
            left = [name for name in classes if cases is None or next_seed[name] < seed + cases]
            if time.monotonic() - began > seconds:
                left = []
            while left and len(busy) < jobs:
                running = Counter(worker.name for worker in busy.values())
                name = min(left, key=lambda name: spent[name] + running[name])  # each class as long as the others
                worker = idle[name].pop() if idle[name] else _Worker(name, limits, directory)
                worker.start(next_seed[name])
                busy[worker.pipe] = worker
                next_seed[name] += 1
                left = [name for name in classes if cases is None or next_seed[name] < seed + cases]
            if not busy:
                return report
            for pipe in wait(list(busy)):
                worker = busy[pipe]
                outcome = worker.read()
                if outcome is None:
                    continue
                del busy[pipe]
                seconds_taken = time.monotonic() - worker.began
                spent[worker.name] += seconds_taken
                report.took(worker.name, worker.seed, seconds_taken)
                for found in report.add(worker.name, worker.seed, outcome):
                    say(f"{time.monotonic() - began:7.0f} s  {found}")
                if pipe.closed:
                    continue
                if worker.cases < _CASES:
                    idle[worker.name].append(worker)
                else:
                    worker.end()
    finally:
        for worker in [*busy.values(), *(worker for workers in idle.values() for worker in workers)]:
            worker.end()
        shutil.rmtree(directory, ignore_errors=True)
