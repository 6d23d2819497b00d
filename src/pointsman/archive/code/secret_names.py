"""The names of files that are never read or searched: secrets, their backup copies, and third-party folders."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache

# Anywhere in a path, also as a file: a submodule has a file `.git`.
_FOLDERS = frozenset(
    {
        *(".git", "git~1", "node_modules", "node_m~1"),  # with a tilde: the short names that Windows gives them
        *(".aws", ".ssh", ".gnupg", ".azure", ".gcloud", ".kube", ".password-store"),
    }
)
_DOT_ENV = re.compile(r"\.envs?(?:[^a-z].*)?|\.envrc.*", re.DOTALL)  # also .env.local and .env-prod; not .environment

# By the name of the file only: a folder may well be called `credentials`.
_FILES = frozenset(
    {
        *(".npmrc", ".netrc", "_netrc", ".pypirc", ".pgpass", ".my.cnf", ".mylogin.cnf", ".htpasswd", ".dockercfg"),
        *(".git-credentials", ".dockerconfigjson", ".s3cfg", ".boto", ".vault-token", ".vault_pass", ".terraformrc"),
        *("npmrc", "netrc", "pypirc", "htpasswd", "credentials", "kubeconfig", "wp-config.php", "pointsman.yaml"),
        *("search-api.yaml", ".secrets", ".bash_history", ".zsh_history", "wallet.dat"),
    }
)
# Files that are secrets only in a certain folder.
_BESIDE = {"config.json": ".docker", "settings.xml": ".m2", "access_tokens.db": "gcloud", "hosts.yml": "gh"}
_ENDINGS = (
    *(".pem", ".key", ".p8", ".p12", ".pfx", ".pkcs8", ".pkcs12", ".ppk", ".jks", ".keystore", ".bks", ".keytab"),
    *(".kdb", ".kdbx", ".agekey", ".ovpn", ".tfstate", ".tfvars", ".env", ".kubeconfig"),
)
_DATA = r"(?:\.(?:json|ya?ml|toml|ini|cfg|conf|csv|txt|xml|properties|plist|enc))+"
_SECRET = re.compile(
    r"""
    id_(?:rsa|dsa|ecdsa|ed25519)(?:_sk)?(?:[^a-z].*)?                  # private keys, also id_rsa_prod
  | (?:.*[^a-z])?(?:credentials?|secrets?)DATA                         # credentials.json, app-secrets.yml
  | (?:.*[^a-z])?(?:client|app)[_-]?(?:secrets?|credentials?)(?:[^a-z].*)?DATA
  | (?:.*[^a-z])?service[_-]?accounts?(?:[_-]?keys?)?(?:[^a-z].*)?DATA # service-account-prod.json
  | (?:.*[^a-z])?(?:private|priv)[_-]?keys?(?:[_-]?\d+)?(?:DATA)?       # private_key, app-private-key.txt
  | ssh_host_(?:[a-z0-9]+_)?key                                        # of a machine
  | (?:.*[^a-z])?adminsdk(?:[^a-z].*)?DATA | gha-creds-.*DATA          # service accounts by other names
  | .*\.(?:pem|key|p12|pfx|env)\.txt
  | (?:.*[^a-z])?kubeconfig(?:[^a-z].*)?DATA | kubeconfig[_-][^.]+
    """.replace("DATA", _DATA),
    re.VERBOSE | re.DOTALL,
)
_CODE = (".py", ".go", ".rs", ".ts", ".tsx", ".js", ".jsx", ".java", ".md")  # `id_rsa_test.go` is about keys, not a key

# One layer of what editors, people and archivers add to a name; stripped until none is left.
_BEFORE = re.compile(r"\#|\.\#|\._|~\$|\.(?=\.)|(?:copy|backup) of ")
_AFTER = re.compile(
    r"""
    (?: ~ | \# | [\s._-]*\(\d+\) | [\s._-]+copy(?:[\s._-]*\d+)?
      | [._-](?:bak|backup|bkp|old|orig|original|save|saved|tmp|temp|new|prev|sw[a-p]|dist|sample|example|template
          |disabled|gz|tgz|zip|tar|bz2|xz|zst|7z|rar|pub|gpg|asc|age)?\d*
    )$
    """,
    re.VERBOSE,
)
_BETWEEN = re.compile(r"(?:[\s._-]*\(\d+\)|[\s._-]+copy(?:[\s._-]*\d+)?)(?=\.[^.]+$)")  # `credentials (1).json`


def is_blocked(parts: Sequence[str]) -> bool:
    """Whether the file with this path, as components from the root, is never read."""
    if not parts:
        return False
    if any(map(is_blocked_folder, parts)) or _is_secret(parts[-1]):
        return True
    return len(parts) > 1 and _fold(parts[-1]) in _BESIDE and _fold(parts[-2]) == _BESIDE[_fold(parts[-1])]


@lru_cache(maxsize=16_384)
def is_blocked_folder(name: str) -> bool:
    """Whether a folder of this name is never entered."""
    return any(form in _FOLDERS or _DOT_ENV.fullmatch(form) for form in _strip_layers(_fold(name)))


@lru_cache(maxsize=16_384)
def _is_secret(name: str) -> bool:
    return any(map(_names_a_secret, _strip_layers(_fold(name))))


def _names_a_secret(form: str) -> bool:
    if form in _FILES or form.endswith(_ENDINGS):
        return True
    return not form.endswith(_CODE) and _SECRET.fullmatch(form.removeprefix(".")) is not None


@lru_cache(maxsize=16_384)
def _fold(name: str) -> str:
    """Normalize a name as the most lenient file systems do: no case, invisible characters, trailing dots or blanks."""
    if not name.isascii():
        name = unicodedata.normalize("NFKC", name)
        name = "".join(char for char in name if unicodedata.category(char) not in {"Cf", "Cc", "Mn"})
    return name.casefold().partition(":")[0].strip().rstrip(". ")  # after a colon: an alternate data stream


def _strip_layers(folded: str) -> Iterator[str]:
    """The name with its layers stripped one by one: `.id_rsa.bak.swp`, `.id_rsa.bak`, `.id_rsa`."""
    for form in folded.split("/"):  # a full-width solidus folds to a slash
        while form:
            yield form
            bare = _BETWEEN.sub("", _AFTER.sub("", form)).rstrip(". ")
            before = _BEFORE.match(bare)
            bare = bare[before.end() :] if before else bare
            if bare == form:
                break
            form = bare
