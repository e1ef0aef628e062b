"""Signs the manifest of a site with an SSH key of its author, as git signs commits, and verifies the signature."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from ngbkit.errors import UsageError
from ngbkit.publish.manifest import FILE, SIGNATURE

# A signature for another purpose, such as of a commit, is none of a site.
_NAMESPACE, _SIGNER = "ngbkit-site", "author"


@dataclass(frozen=True, slots=True)
class SignatureState:
    """The state of a site's signature: a sentence, if a signer was verified, and the fault if there is one."""

    description: str
    is_verified: bool = False
    difference: str = ""


def check_key(key: Path) -> None:
    """Refuse a key that cannot sign, before anything is built; UsageError."""
    if not key.is_file():
        raise UsageError(f"invalid key: got {key}; expected the file of an SSH key, such as ~/.ssh/id_ed25519.")
    _run("-l", "-f", str(key), fault=f"invalid key: got {key}; expected the file of an SSH key")


def sign(site: Path, key: Path) -> Path:
    """Sign the manifest of a site; a key with a passphrase asks for it, or is used by the agent."""
    target = site / SIGNATURE
    target.unlink(missing_ok=True)
    _run("-Y", "sign", "-f", str(key), "-n", _NAMESPACE, str(site / FILE), fault=f"signing with {key} failed")
    return target


def verify(site: Path, signer: Path | None) -> SignatureState:
    """Verify the signature of a site by a file of public keys; without one, describe it."""
    signature = site / SIGNATURE
    if not signature.is_file():
        text = "not signed: who alters the data and then makes all of the site again is not found"
        return SignatureState(text, difference="the site is not signed" if signer else "")
    content = (site / FILE).read_bytes()
    if signer is None:
        check = ["-Y", "check-novalidate", "-n", _NAMESPACE, "-s", str(signature)]
        answer = _call(check, content)
        if answer.returncode:
            return SignatureState("signed, but not this manifest", difference="it is no signature of this manifest")
        name = answer.stdout.decode(errors="replace").strip().rpartition(" ")[2]
        return SignatureState(f"signed by {name}; --signer with the author's public key says whether it is theirs")
    with TemporaryDirectory(prefix="ngbkit-signer-") as folder:
        allowed = Path(folder) / "signers"
        allowed.write_text("".join(f"{_SIGNER} {line}\n" for line in _read_keys(signer)))
        check = ["-Y", "verify", "-f", str(allowed), "-I", _SIGNER, "-n", _NAMESPACE, "-s", str(signature)]
        if _call(check, content).returncode:
            difference = f"it is no signature of this manifest by a key in {signer}"
            return SignatureState("not signed by the signer", difference=difference)
    return SignatureState(f"signed by a key in {signer}", is_verified=True)


def _read_keys(file: Path) -> list[str]:
    """Read public keys, one a line, as of ``id_ed25519.pub``."""
    try:
        lines = [line.strip() for line in file.read_text().splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} cannot be read: {error}. Name a file of public SSH keys, such as key.pub.") from error
    keys = [line for line in lines if line.startswith(("ssh-", "ecdsa-", "sk-"))]
    if not keys:
        raise UsageError(f"invalid signer: got {file}; expected public SSH keys, one a line, such as of key.pub.")
    return keys


def _run(*arguments: str, fault: str) -> None:
    answer = _call(list(arguments))
    if answer.returncode:
        reason = answer.stderr.decode(errors="replace").strip().splitlines()
        raise UsageError(f"{fault}: {reason[-1] if reason else 'ssh-keygen failed'}. Name another by --sign KEY.")


def _call(arguments: list[str], content: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(["ssh-keygen", *arguments], input=content, capture_output=True, check=False)
    except FileNotFoundError:
        raise UsageError("ssh-keygen signs and verifies, and is not installed. Install OpenSSH.") from None
