"""An author signs a site with an SSH key, and readers verify the signature with the public key."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ngbkit.errors import UsageError
from ngbkit.publish import signing
from ngbkit.publish.manifest import FILE


def make_key(file: Path) -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(file)], check=True)
    return file


def test_a_signature_is_of_the_signer_and_of_the_manifest(tmp_path: Path) -> None:
    """The signer's key verifies; another key, an altered manifest and a missing signature are each a difference."""
    author, other = make_key(tmp_path / "author"), make_key(tmp_path / "other")
    (tmp_path / FILE).write_text("a manifest")
    unsigned = signing.verify(tmp_path, author.with_suffix(".pub"))
    first = signing.sign(tmp_path, author).read_bytes()
    again = signing.sign(tmp_path, author).read_bytes()
    described = signing.verify(tmp_path, None)
    verified = signing.verify(tmp_path, author.with_suffix(".pub"))
    wrong = signing.verify(tmp_path, other.with_suffix(".pub"))
    (tmp_path / FILE).write_text("another manifest")
    altered = [signing.verify(tmp_path, key) for key in (author.with_suffix(".pub"), None)]

    assert first == again
    assert "the site is not signed" == unsigned.difference
    assert (True, "") == (verified.is_verified, verified.difference)
    assert (False, "") == (described.is_verified, described.difference)
    assert "signed by SHA256:" in described.description
    assert "no signature of this manifest by a key in" in wrong.difference
    assert ["it is no signature of this manifest"] * 2 == [state.difference[:35] for state in altered]


def test_a_file_without_a_key_is_refused(tmp_path: Path) -> None:
    """The messages name the file, for the author and for the reader."""
    (tmp_path / "key").write_text("no key")
    (tmp_path / FILE).write_text("a manifest")
    signing.sign(tmp_path, make_key(tmp_path / "author"))

    with pytest.raises(UsageError, match=r"invalid key: got .*key"):
        signing.check_key(tmp_path / "key")
    with pytest.raises(UsageError, match=r"invalid key: got .*missing"):
        signing.check_key(tmp_path / "missing")
    with pytest.raises(UsageError, match=r"invalid signer: got .*key"):
        signing.verify(tmp_path, tmp_path / "key")
