"""The console command `clrec`, whose subcommands are the package's commands: `clrec train` is python -m clrec_tf.train."""
import ast
import difflib
import pathlib
import re
import runpy
import sys
import textwrap

EXIT_USER_ERROR = 2


def commands() -> dict[str, str]:
    """Command -> what it does, from the first line of its own help; nothing of it is imported."""
    found = {}
    for path in sorted(pathlib.Path(__file__).parent.glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
        mark = rf"python -m clrec_tf\.{path.stem}\b[^:\n]*: (.*)"
        found |= {path.stem: line[1] for line in [next(filter(None, (re.match(mark, text) for text in texts)), None)]
                  if line}
    return found


def usage() -> str:
    """The help of `clrec` alone."""
    known = commands()
    width = max(map(len, known)) + 2
    lines = [textwrap.shorten(f"{line}", 118 - width, placeholder=" …") for line in known.values()]
    return "\n".join(["clrec COMMAND --flag=value …: trains, evaluates and serves candidate generators.", "",
                      *(f"  {name:<{width}}{line}" for name, line in zip(known, lines)), "",
                      "clrec COMMAND --help lists the command's flags."])


def main() -> None:
    """Runs a command as the interpreter would; ends with its exit code, or 2 where there is no such command."""
    name, known = (sys.argv + ["--help"])[1], commands()
    if name in ("-h", "--help"):
        print(usage())
        sys.exit(0)
    if name not in known:
        alike = difflib.get_close_matches(name, known, 1)
        meant = f"did you mean {alike[0]}?" if alike else f"choose from {', '.join(known)}"
        print(f"error: clrec has no command {name!r}: {meant}", file=sys.stderr)
        sys.exit(EXIT_USER_ERROR)
    del sys.argv[1]
    runpy.run_module(f"clrec_tf.{name}", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
