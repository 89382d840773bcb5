"""TFLite files that libFuzzer (atheris) grows by the coverage of the importer and of byoc_hw but its planner.

A case is a minute of it: a process of its own over the corpus in out/fuzz/corpus. A finding's file is in
out/fuzz/found; python tests/fuzz --file FILE tries it again.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent

if __name__ == "__main__":
    sys.path[:0] = [str(HERE), str(HERE.parent)]
    import atheris

    # Not the planner: what atheris makes of its functions crashes in CPython.
    package = HERE.parents[1] / "byoc_hw"
    planner = [
        ".".join(path.relative_to(package.parent).with_suffix("").parts) for path in package.glob("plan/**/*.py")
    ]
    with atheris.instrument_imports(include=["byoc_hw", "tflite", "tvm.relay.frontend.tflite"], exclude=planner):
        import tvm.relay.frontend.tflite  # noqa: F401 - to be instrumented

        import byoc_hw  # noqa: F401

from fuzz_case import OUT, Case, Outcome, judged  # noqa: E402 - behind what is to be instrumented
from fuzz_tflite import compile_file, mutated, odd, seeds  # noqa: E402

SECONDS = 60
ENDS = {70: "timeout", 71: "memory", 77: "crash"}  # libFuzzer's exit codes


def run(case: Case) -> None:
    corpus, found = OUT / "corpus", OUT / "found"
    for folder in (corpus, found):
        folder.mkdir(parents=True, exist_ok=True)
    limits = [f"-max_total_time={SECONDS}", f"-seed={case.seed + 1}", "-timeout=60", "-rss_limit_mb=4096"]
    process = subprocess.run(
        [sys.executable, __file__, corpus, *limits, f"-artifact_prefix={found}/"],
        capture_output=True,
        text=True,
        errors="replace",
        cwd=case.directory,
    )
    for line in process.stdout.splitlines():
        record = json.loads(line)
        case.tally.update(record["tally"])
        if record["kind"]:
            case.found.append(Outcome(**{**record, "tally": {}}))
    if process.returncode != 0:
        end = process.stderr[-4000:]
        files = [word for word in end.split() if word.startswith(str(found))]
        kind = ENDS.get(process.returncode, "crash")
        case.found.append(Outcome({}, kind, f"libFuzzer ended with {process.returncode} {files[-1:]}", end))


def try_file(path: Path) -> Outcome:
    """A file of out/fuzz/found again."""
    whole = path.resolve()  # a case has a directory of its own
    return judged("coverage", 0, lambda case: compile_file(case, whole, compared=False))


def main(corpus: Path) -> None:
    """libFuzzer's own process. Prints a line of JSON for each new finding, and every 100 files what they were."""
    known: set[tuple[str, str]] = set()
    tally: Counter[str] = Counter()

    def say(outcome: Outcome) -> None:
        print(json.dumps({**vars(outcome), "others": ()}), flush=True)

    def one(data: bytes) -> None:
        def compile_data(case: Case) -> None:
            path = case.directory / "model.tflite"
            path.write_bytes(data)
            compile_file(case, path, compared=False)

        outcome = judged("coverage", 0, compile_data)
        tally.update(outcome.tally)
        if tally.total() >= 100:
            say(Outcome(dict(tally)))
            tally.clear()
        if outcome.kind and (outcome.kind, outcome.what) not in known:
            known.add((outcome.kind, outcome.what))
            file = OUT / "found" / f"{hashlib.sha256(data).hexdigest()[:12]}.tflite"
            file.write_bytes(data)
            say(Outcome({}, outcome.kind, outcome.what, f"{file}\n{outcome.detail}"))

    def change(data: bytes, largest: int, seed: int) -> bytes:
        rng = random.Random(seed)
        if rng.random() < 0.2:
            return atheris.Mutate(data, largest)
        changed = odd(rng) if rng.random() < 0.05 else data
        for _ in range(rng.randint(1, 4)):
            changed = mutated(changed, rng)
        return changed[:largest]

    given = Path(os.environ.get("BYOC_HW_MODELS", OUT)).glob("*.tflite")  # those of MLPerf Tiny, for example
    for number, data in enumerate([*seeds(), *(path.read_bytes() for path in sorted(given))]):
        (corpus / f"seed{number}").write_bytes(data)
    atheris.Setup(sys.argv, one, custom_mutator=change)
    atheris.Fuzz()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
