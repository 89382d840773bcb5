"""The sanitizers under which tests run C. -g1 has the lines that a report names, and compiles faster than -g."""

FLAGS = ["-O1", "-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
SANITIZED = " ".join(FLAGS)
