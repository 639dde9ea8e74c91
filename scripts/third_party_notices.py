"""Prints the licences of everything that a build of mlmtrain carries: its crates, their C sources, Rust's library.

    python3 scripts/third_party_notices.py [--features cuda] > THIRD-PARTY-NOTICES.txt

It needs `cargo` with the sources of the crates (`cargo fetch`) and nothing else. Each text comes once, after the crates
that bring it. A crate without a licence file takes those of a crate from the same repository, else, under MIT, MIT's
text with its authors; any other is an error.
"""

import argparse
import html
import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
NAMES = re.compile(r"(licen[cs]e|copying|notice|copyright|unlicense)(?!.*\.(sh|py|rs|toml)$)", re.IGNORECASE)
# zstd is under BSD or GPL at one's choice, and only scripts of xz, which are not built, are under the GPL.
NOT_TAKEN = re.compile(r"\s*GNU (LESSER )?GENERAL PUBLIC LICENSE|\s*XZ Utils Licensing")
TARGET = "x86_64-unknown-linux-gnu"


def linked_crates(features):
    """All packages whose code ends up in the program: no build scripts, no procedural macros, no tests."""
    call = ["cargo", "metadata", "--locked", "--format-version=1", "--filter-platform", TARGET]
    metadata = json.loads(subprocess.check_output(call + features, cwd=ROOT))
    packages = {package["id"]: package for package in metadata["packages"]}
    dependencies = {node["id"]: node["deps"] for node in metadata["resolve"]["nodes"]}
    found, waiting = set(), [metadata["resolve"]["root"]]
    while waiting:
        crate = waiting.pop()
        if crate in found:
            continue
        found.add(crate)
        for dependency in dependencies[crate]:
            runs = any(kind["kind"] is None for kind in dependency["dep_kinds"])
            targets = packages[dependency["pkg"]]["targets"]
            if runs and not any("proc-macro" in target["kind"] for target in targets):
                waiting.append(dependency["pkg"])
    found -= set(metadata["workspace_members"])
    return sorted((packages[crate] for crate in found), key=lambda crate: (crate["name"], crate["version"]))


def licence_texts(crate):
    folder = Path(crate["manifest_path"]).parent
    files = sorted(path for path in folder.rglob("*") if NAMES.match(path.name) and path.is_file())
    texts = [path.read_text(encoding="utf-8", errors="replace").strip() for path in files]
    return [text for text in texts if text and not NOT_TAKEN.match(text)]


def rust_notices():
    sysroot = subprocess.check_output(["rustc", "--print", "sysroot"], text=True).strip()
    page = Path(sysroot) / "share/doc/rust/COPYRIGHT-library.html"
    if not page.exists():
        sys.exit(f"error: `{page}` is missing: it holds the notices of Rust's library\n  hint: rustup brings it")
    body = page.read_text(encoding="utf-8").partition("<body>")[2]
    text = html.unescape(re.sub(r"<[^>]*>", "", body))
    return re.sub(r"\n\s*\n+", "\n\n", text).strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--features", help="features of the build, as cargo takes them")
    features = parser.parse_args().features
    crates = linked_crates(["--features", features] if features else [])
    own = {crate["id"]: licence_texts(crate) for crate in crates}
    of_repository = {crate["repository"]: own[crate["id"]] for crate in crates if own[crate["id"]]}
    mit = (ROOT / "LICENSE-MIT").read_text(encoding="utf-8")
    bearers = {}
    for crate in crates:
        texts = own[crate["id"]] or (crate["repository"] and of_repository.get(crate["repository"]))
        if not texts and re.search(r"\bMIT\b", crate["license"] or ""):
            holders = ", ".join(crate["authors"]) or f"the authors of {crate['name']}"
            texts = [re.sub(r"(?m)^Copyright.*$", lambda _: f"Copyright (c) {holders}", mit).strip()]
        if not texts:
            name, licence = crate["name"], crate["license"]
            sys.exit(f"error: {name} ({licence}) has no licence file\n  hint: teach `{__file__}` where its text lies")
        for text in texts:
            bearers.setdefault(text, []).append(f"{crate['name']} {crate['version']} ({crate['license']})")
    rule = "=" * 100
    print("mlmtrain is under MIT or Apache-2.0. It contains the following, each under the licence below its name.")
    for text, names in bearers.items():
        print("", rule, *names, rule, "", text, sep="\n")
    print("", rule, "Rust's standard library", rule, "", rust_notices(), sep="\n")


main()
