"""Documents: links lead somewhere, pages are found and short enough, and what they say of the code is so."""
import ast
import pathlib
import re
import unicodedata

import pytest

ROOT = pathlib.Path(__file__).parents[1]
PACKAGE = ROOT / "clrec_tf"
DOCS = sorted((ROOT / "docs").glob("*.md"))
PAGES = [*(ROOT / f"{name}.md" for name in ("README", "SECURITY", "BUILD_NOTES", "CHANGELOG")),
         ROOT / "launch/kubernetes/README.md", *DOCS]
FILES = r"`((?:clrec_tf|tests|launch|configs|\.ci)/[\w./-]+\.\w+|\w+(?:/\w+)*\.(?:py|flags|sh))`"  # as pages name them
HOPS = 3  # modules to open after train.py until any equation


def read(path) -> str:
    return path.read_text(encoding="utf-8")


def prose(path) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", read(path), flags=re.MULTILINE | re.DOTALL)


def anchors(path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", prose(path), re.MULTILINE)
    kept = ["".join(c for c in title.lower() if c in " -_" or unicodedata.category(c)[0] in "LN") for title in titles]
    return {title.replace(" ", "-") for title in kept}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_lead_somewhere(path):
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(path)):
        if link.startswith("http"):
            continue
        target, _, anchor = link.partition("#")
        file = (path.parent / target).resolve() if target else path
        assert file.exists(), link
        assert not anchor or anchor in anchors(file), link


def test_code_and_flagfiles_cite_pages_and_anchors_that_exist():
    files = [*PACKAGE.rglob("*.py"), *(ROOT / "configs").glob("*.flags"), *(ROOT / "tests").rglob("*.py"), *PAGES,
             ROOT / "Makefile", *(path for path in (ROOT / ".ci").iterdir())]
    for file in files:
        for page, anchor in re.findall(r"\b(docs/\w+\.md)(?:#([\w-]+))?", read(file)):
            assert (ROOT / page).exists(), f"{file}: {page}"
            assert not anchor or anchor in anchors(ROOT / page), f"{file}: {page}#{anchor}"


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_a_page_says_at_once_what_the_reader_can_do_after_it(path):
    title, empty, first = read(path).splitlines()[:3]
    assert title.startswith("# ") and not empty and first.startswith("After this page you ")
    assert f"docs/{path.name}" in read(ROOT / "README.md")


@pytest.mark.parametrize("name, lines", [("README.md", 200), ("BUILD_NOTES.md", 150)])
def test_pages_that_stay_short(name, lines):
    assert len(read(ROOT / name).splitlines()) <= lines


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_lines_of_text_are_short(path):
    for line in prose(path).splitlines():
        assert len(line) <= 120 or line.startswith(("|", "    ")), line


def test_the_folders_of_the_architecture_page_are_those_of_the_package():
    rows = dict(re.findall(r"^\| `([\w/]+)/` \| (.*) \|$", read(ROOT / "docs" / "architecture.md"), re.MULTILINE))
    folders = {path.parent.relative_to(PACKAGE).as_posix(): ast.get_docstring(ast.parse(read(path)))
               for path in PACKAGE.glob("**/__init__.py") if path.parent != PACKAGE}
    assert rows == {folder: text.split("\n\n")[0].replace("\n", " ") for folder, text in folders.items()}


def test_modules_commands_and_tests_that_pages_name_exist():
    for path in PAGES:
        for name in re.findall(FILES, read(path)):
            places = [ROOT / name, PACKAGE / name, ROOT / "tests" / name, ROOT / "launch" / name,
                      *(ROOT / "launch").rglob(pathlib.Path(name).name)]
            shown = f"```python\n# {name}\n" in read(path)  # the file itself, to be saved by the reader
            assert shown or any(place.exists() for place in places), f"{path.name}: {name}"
    made = set(re.findall(r"^([\w-]+):", read(ROOT / "Makefile"), re.MULTILINE))
    for target in re.findall(r"(?:`|^)make ([\w-]+)", "\n".join(map(read, PAGES)), re.MULTILINE):
        assert target in made, target


def module(name) -> pathlib.Path:
    """The file of a module or of a folder."""
    path = ROOT.joinpath(*name.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def imported(path) -> set[pathlib.Path]:
    """The package's modules that a module imports, inside functions too."""
    modules = set()
    for node in ast.walk(ast.parse(read(path))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("clrec_tf"):
            for name in (f"{node.module}.{alias.name}" for alias in node.names):
                modules.add(module(name) if module(name).exists() else module(node.module))
    return modules


def named(path) -> set[pathlib.Path]:
    """Modules that a module's texts send the reader to, as folder/module.py."""
    files = {PACKAGE / name for name in re.findall(r"\b[a-z_]+/[a-z_]+\.py", read(path))}
    return {file for file in files if file.exists()}


def test_imports_point_one_way_as_the_architecture_page_says():
    page = read(ROOT / "docs" / "architecture.md").partition("\nImports point one way:")[2]
    lines = [line.split() for line in page.split("```")[1].strip().splitlines()]
    level = {folder: number for number, folders in enumerate(lines) for folder in folders}
    assert set(level) == {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    for path in (path for folder in level for path in (PACKAGE / folder).rglob("*.py")):
        folder = path.relative_to(PACKAGE).parts[0]
        for other in imported(path):
            first = other.relative_to(PACKAGE).parts[0]
            for_all = first in (folder, "errors.py", "config.py", "__init__.py")
            assert for_all or level.get(first, len(lines)) < level[folder], f"{path} imports {other}"


def test_from_train_to_any_equation_in_few_hops():
    distance, layer = {PACKAGE / "train.py": 0}, [PACKAGE / "train.py"]
    while layer:
        layer = [(distance.setdefault(new, distance[opened] + 1), new)[1]
                 for opened in layer for new in imported(opened) | named(opened) if new not in distance]
    names = re.findall(r"`((?:losses|encoders|objectives|models)\.\w+)", read(ROOT / "docs" / "method.md"))
    assert len(set(names)) > 10
    for name in names:
        assert distance[module(f"clrec_tf.{name}")] <= HOPS, name
