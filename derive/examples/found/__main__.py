"""Copies the Functions into a folder ``found`` here, to audit and to change them."""

from pathlib import Path

if __name__ == "__main__":
    there, here = Path(__file__).parent, Path("found")
    here.mkdir(exist_ok=True)
    for file in sorted(there.glob("[a-z]*.py")):
        (here / file.name).write_text(file.read_text(encoding="utf-8"), encoding="utf-8")
        print(f"wrote {here.as_posix()}/{file.name}")
