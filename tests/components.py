"""Install what the tests of `make test-real` run, by kind: ``python -m tests.components proxies databases``.

Programs come from Debian packages, which root installs; what the locks name goes into ``.sdk``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from tests.interop.sdk_process import SdkUnavailableError, node_environment, python_environment

__all__: list[str] = []

_ROOT: Final = Path(__file__).resolve().parents[1]
_NODE: Final = {"node": "nodejs", "npm": "npm"}
#: Programs and their packages.
_PROGRAMS: Final = {
    "sdks": _NODE,
    "frameworks": {},
    "providers": {"glewlwyd": "glewlwyd", **_NODE},
    "proxies": {
        "nginx": "nginx-light",
        "haproxy": "haproxy",
        "apache2": "apache2-bin",
        "caddy": "caddy",
        "curl": "curl",
    },
    "databases": {
        "redis-server": "redis-server",
        "initdb": "postgresql",
        "sqlite3": "sqlite3",
        "prometheus": "prometheus",
    },
    "pipelines": {"rsync": "rsync", "git": "git", **_NODE},
    "packaging": {"openssl": "openssl", "chromium": "chromium", "curl": "curl", **_NODE},
}
#: Folders with a lock.
_LOCKED: Final = {
    "sdks": ["tests/interop/sdks/python-[0-9]*", "tests/interop/sdks/server-*", "tests/interop/sdks/js-*"],
    "frameworks": ["tests/interop/sdks/*", "tests/fuzz/frameworks"],
    "providers": ["tests/real/[!e]*-[0-9]*", "examples/production/oidc-provider-*"],
    "proxies": ["tests/real/envoy-*"],
    "databases": [],
    "pipelines": ["tests/pipelines/tools", "tests/pipelines/gitlab-ci-local-*"],
    "packaging": ["tests/packaging/pyright-*", "tests/docs/playwright-*", "docs/site/scripts"],
}
_PATH: Final = os.pathsep.join(
    [os.environ["PATH"], "/usr/sbin", *sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin")), reverse=True)]
)


def _install_packages(packages: list[str]) -> None:
    command = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages]
    if not hasattr(os, "geteuid") or os.geteuid() or shutil.which("apt-get") is None:
        sys.exit(f"missing programs; as root on Debian, run: {' '.join(command)}")
    policy = Path("/usr/sbin/policy-rc.d")
    if not policy.exists():  # the tests start the servers; the packages must not
        policy.write_text("#!/bin/sh\nexit 101\n")
        policy.chmod(0o755)
    subprocess.run(["apt-get", "update", "-qq"], check=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)


def _make_environment(locked: Path) -> None:
    if (locked / "package-lock.json").is_file():
        node_environment(locked)
    elif (locked / "requirements.txt").is_file():
        python_environment(locked)


def _main(kinds: list[str]) -> None:
    unknown = set(kinds) - _PROGRAMS.keys()
    if unknown or not kinds:
        sys.exit(f"{' '.join(sorted(unknown)) or 'nothing'}: the kinds are {', '.join(_PROGRAMS)}")
    programs = {name: package for kind in kinds for name, package in _PROGRAMS[kind].items()}
    packages = {package for name, package in programs.items() if shutil.which(name, path=_PATH) is None}
    if packages:
        _install_packages(sorted(packages))
    folders = {folder for kind in kinds for pattern in _LOCKED[kind] for folder in _ROOT.glob(pattern)}
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        try:
            list(threads.map(_make_environment, sorted(folders)))
        except SdkUnavailableError as error:
            sys.exit(str(error))


if __name__ == "__main__":
    _main(sys.argv[1:])
