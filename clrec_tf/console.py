"""The console command `clrec`, with the package's commands as its own: `clrec train` is python -m clrec_tf.train."""
import ast
import difflib
import pathlib
import re
import runpy
import sys

EXIT_USER_ERROR = 2


def commands() -> dict[str, str]:
    """Command -> what it does, from the first line of its own help; nothing of it is imported."""
    found = {path.stem: _summary(path) for path in sorted(pathlib.Path(__file__).parent.glob("*.py"))}
    return {name: line for name, line in found.items() if line}


def _summary(path: pathlib.Path) -> str:
    """What a module's help says it does; "" where it is no command."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
        if line := re.match(rf"python -m clrec_tf\.{path.stem}\b[^:\n]*: (.*)", text):
            return line[1]
    return ""


def usage() -> str:
    """The help of `clrec` alone."""
    known = commands()
    width = max(map(len, known)) + 2
    return "\n".join(["clrec COMMAND --flag=value …: trains, evaluates and serves candidate generators.", "",
                      *(f"  {name:<{width}}{line}" for name, line in known.items()), "",
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
