"""What the README quotes of a command's output."""

from pathlib import Path

README = Path(__file__).resolve().parents[1] / "README.md"


def quoted_lines(part):
    """The lines of the first indented block in the README of which the first line has `part`."""
    lines = README.read_text(encoding="utf-8").splitlines()
    first = next(index for index, line in enumerate(lines) if line.startswith("    ") and part in line)
    block = []
    for line in lines[first:]:
        if line and not line.startswith("    "):
            break
        block.append(line[4:])
    return [line for line in block if line.strip()]


def assert_readme_quotes(output, part):
    """The lines are in the output, in this order. `...` stands for lines left out, and for the end of a line."""
    rest = iter(output.splitlines())
    for quoted in quoted_lines(part):
        if quoted.strip() != "...":
            begin = quoted.removesuffix("...")
            assert any(line.startswith(begin) if begin != quoted else line == quoted for line in rest), quoted
