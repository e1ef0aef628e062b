"""Says how a reader replays a site: a line below each page, and the README of the archive."""

from __future__ import annotations

from html import escape
from urllib.parse import quote, urlsplit

from ngbkit.publish.citation import Citation
from ngbkit.publish.manifest import Manifest

README = "README.md"
"""The file of a site, and of its archive, that says how to verify, replay and cite it."""
_BINDER = "https://mybinder.org/v2"
# The services of Binder, by the host of the repository.
_HOSTS = {"github.com": "gh", "gitlab.com": "gl", "codeberg.org": "git"}


def format_install(version: str) -> str:
    """Format the line that installs the ngbkit that built a site."""
    return f'pip install "ngbkit[all]=={version}"'


def format_command(version: str, *options: str) -> str:
    """Format the line that replays the archive of a site, with the ngbkit that built it."""
    return " ".join([format_install(version), "&& ngbkit replay archive.zip", *options])


def locate_binder(repository: str) -> str:
    """Return the address at which Binder opens a public repository; empty without one, or for an unknown host."""
    parts = urlsplit(repository)
    service, name = _HOSTS.get(parts.hostname or ""), parts.path.strip("/").removesuffix(".git")
    if not service or not name:
        return ""
    identifier = {"gh": name, "gl": quote(name, safe=""), "git": quote(repository, safe="")}[service]
    return f"{_BINDER}/{service}/{identifier}/HEAD?urlpath=lab%2Ftree%2F"


def render_replay(version: str, repository: str) -> str:
    """Render as HTML the lines that replay a site, and the link to Binder if Binder opens its repository."""
    lines = {
        "Replay it from its recordings, measuring nothing:": format_command(version),
        "Measure it on your machine, and compare the findings:": format_command(version, "--again"),
    }
    rows = "".join(f"<p>{escape(text)}</p><pre>{escape(line)}</pre>" for text, line in lines.items())
    address = locate_binder(repository)
    binder = f'<p><a href="{escape(address)}">Open it on Binder</a></p>' if address else ""
    archive = '<p>in the folder of <a href="archive.zip" download>archive.zip</a></p>'
    return f'<div class="ngb-replay">{rows}{archive}{binder}</div>'


def write_readme(manifest: Manifest, citation: Citation, repository: str = "") -> str:
    """Write the README of an archive: its content, and how to verify, replay and cite it."""
    authors = ", ".join(author.name for author in citation.authors)
    licenses = ", ".join(f"{license.name} ({license.url})" for license in citation.licenses)
    version, address = manifest.version, locate_binder(repository)
    notebooks = "\n".join(f"- `notebooks/{name}.ipynb`" for name in manifest.notebooks)
    figures = len(manifest.figures)
    parts = [
        f"# {manifest.title}",
        f"Notebooks with their measurements and {figures} figures, published with ngbkit {version}.\n\n{notebooks}",
        "The measurements are in `notebooks/data/recorded`, the data of each figure is in `_static/datasets`, and "
        "`ngbkit-site.json` lists every figure with its cell and its data.",
        f"## Verify\n\n    {format_install(version)}\n    ngbkit verify .",
        "in this folder, once it is unpacked.",
        f"## Replay\n\n    {format_command(version)}",
        "executes the notebooks from their recordings, measures nothing, and says which figures are the same. "
        "`jupyter lab replayed/published/notebooks` opens them.",
        *([f"[Open the repository on Binder]({address})"] if address else []),
        f"## Measure again\n\n    {format_command(version, '--again')}",
        "measures the same sweeps on your machine, and says which findings hold there.",
        "## Cite",
        " ".join(filter(None, [f"{authors}:" if authors else "", f"*{manifest.title}*.", repository])),
        f"License: {licenses}." if licenses else "Its authors state no license.",
    ]
    return "\n\n".join(parts) + "\n"
